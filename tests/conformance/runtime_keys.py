"""Answers to the vectors of `outlet_events[...].add_partitions`."""

from typing import Any

from tests.conformance.harness import Answer, Ask, Vector
from tidegate.sdk.outlets import OutletAccessor


def add_partitions(vector: Vector) -> Answer:
    outlet = OutletAccessor("asset")
    answer: dict[str, Any] = {}
    for keys in vector["input"]:
        try:
            outlet.add_partitions(keys)
        except Exception as error:
            answer["error"] = next(name for name in ("TypeError", "ValueError") if name in _bases(error))
    return answer | {"keys": list(outlet.partitions)}


def _bases(error: Exception) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


ANSWERS: dict[str, Ask] = {"add_partitions": add_partitions}
