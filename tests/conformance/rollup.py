"""rollup.json: windows and mappers together."""

from typing import Any

from tests.conformance.answers import build, construct
from tests.conformance.harness import Vector
from tests.conformance.mappers import to_downstream
from tidegate import NotAMemberError


def to_upstream(vector: Vector) -> dict[str, Any]:
    return {"keys": list(build(vector).to_upstream(vector["input"]))}


def covers(vector: Vector) -> dict[str, Any]:
    rollup = build(vector)
    try:
        place = rollup.placements(vector["input"])[0]
    except NotAMemberError:
        downstream = rollup.to_downstream(vector["input"])
        return {"downstream": downstream, "window_size": len(rollup.to_upstream(downstream)), "counts": False}
    return {"downstream": place.key, "window_size": place.size, "counts": 0 <= place.member < place.size}


ANSWERS = {
    "construct": construct,
    "covers": covers,
    "to_downstream": to_downstream,
    "to_upstream": to_upstream,
}
