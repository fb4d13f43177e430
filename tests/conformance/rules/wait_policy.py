"""What is decided otherwise about wait_policy.json."""

from typing import Any

from tests.conformance.harness import Rule, Vector


def _is_no_number(vector: Vector) -> bool:
    subject = vector["subject"]
    return subject["type"] == "MinimumCount" and type(subject.get("n")) is not int


def _leaves_none(vector: Vector) -> bool:
    """MinimumCount(-n) for a window of at most n members."""
    n = vector["subject"].get("n", 1)
    return vector["op"] in ("is_satisfied", "evaluate_keys") and n < 0 and _size(vector) + n <= 0


def _one_is_needed(vector: Vector) -> Any:
    given = vector["input"]
    if vector["op"] == "is_satisfied":
        return {"satisfied": given["matched"] >= 1}
    satisfied = any(key in given["expected"] for key in given["received"])
    return {"satisfied": satisfied, "unreachable": False, "fires": satisfied}


def _size(vector: Vector) -> int:
    expected = vector["input"]["expected"]
    return len(set(expected)) if isinstance(expected, list) else expected


RULES = [
    Rule(
        "F30", "the number of a policy is a whole one", _is_no_number, lambda vector: {"error": "TypeError"}
    ),
    Rule("F10", "a window never fires on nothing", _leaves_none, _one_is_needed),
]
