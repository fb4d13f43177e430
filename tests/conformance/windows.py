"""windows.json: the members of an anchor, as Airflow's windows give them."""

from datetime import datetime
from typing import Any

from tests.conformance.answers import build, construct
from tests.conformance.harness import Vector


def members(vector: Vector) -> dict[str, Any]:
    found = build(vector).to_upstream(_decoded(vector["input"]))
    return {"members": [one.isoformat() if isinstance(one, datetime) else one for one in found]}


def _decoded(given: Any) -> Any:
    """Strings that look like dates are times."""
    try:
        return datetime.fromisoformat(given)
    except (TypeError, ValueError):
        return given


ANSWERS = {"construct": construct, "members": members}
