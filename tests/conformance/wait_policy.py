"""wait_policy.json: how many members are enough."""

from typing import Any

from tests.conformance.answers import build, construct
from tests.conformance.harness import Vector


def is_satisfied(vector: Vector) -> dict[str, Any]:
    return {"satisfied": build(vector).is_satisfied(vector["input"]["matched"], vector["input"]["expected"])}


def is_unreachable(vector: Vector) -> dict[str, Any]:
    return {"unreachable": build(vector).is_unreachable(vector["input"]["expected"])}


def evaluate_keys(vector: Vector) -> dict[str, Any]:
    policy = build(vector)
    expected = set(vector["input"]["expected"])
    matched = len(expected & set(vector["input"]["received"]))
    satisfied = policy.is_satisfied(matched, len(expected))
    unreachable = policy.is_unreachable(len(expected))
    return {"satisfied": satisfied, "unreachable": unreachable, "fires": satisfied and not unreachable}


ANSWERS = {
    "construct": construct,
    "evaluate_keys": evaluate_keys,
    "is_satisfied": is_satisfied,
    "is_unreachable": is_unreachable,
}
