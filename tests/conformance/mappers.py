"""mappers.json: upstream keys to downstream keys."""

from typing import Any

from tests.conformance.answers import build, construct
from tests.conformance.harness import Vector


def to_downstream(vector: Vector) -> dict[str, Any]:
    keys = build(vector).to_downstream(vector["input"])
    return {"key": keys} if isinstance(keys, str) else {"keys": list(keys)}


ANSWERS = {"construct": construct, "to_downstream": to_downstream}
