"""What docs/rules.md decides otherwise about keys that a run adds."""

import re
from typing import Any

from tests.conformance.harness import Answer, Rule, Vector

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _calls(vector: Vector) -> list[list[Any]]:
    """The keys of every call; one that is no list counts as a list of itself."""
    return [call if isinstance(call, list) else [call] for call in vector["input"]]


def _error(keys: list[Any]) -> str | None:
    for key in keys:
        if not isinstance(key, str):
            return "TypeError"
        if not key.strip() or len(key) > 250 or _CONTROL.search(key):
            return "ValueError"
    return None


def _all_or_nothing(vector: Vector) -> Answer:
    answer: dict[str, Any] = {}
    held: list[str] = []
    for keys in _calls(vector):
        if (error := _error(keys)) is not None:
            answer["error"] = error
        else:
            held += keys
    return answer | {"keys": list(dict.fromkeys(held)), "unordered": True}


RULES = [
    Rule(
        "D12",
        "what is no text is a TypeError wherever it stands, and control characters are refused",
        lambda vector: any(
            not isinstance(key, str) or _CONTROL.search(key) is not None
            for keys in _calls(vector)
            for key in keys
        ),
        _all_or_nothing,
    ),
]
