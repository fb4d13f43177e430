"""What the topics ask of the library in the same way."""

from datetime import datetime
from typing import Any

from tests.conformance.harness import Vector
from tidegate.core.plain import from_plain


def build(vector: Vector) -> Any:
    """The subject of a vector: its configuration has the shape of Tidegate's plain data."""
    return from_plain(vector["subject"])


def construct(vector: Vector) -> dict[str, bool]:
    build(vector)
    return {"ok": True}


def instant_answer(at: datetime | None) -> dict[str, str | None]:
    return {"instant": None if at is None else at.isoformat()}
