"""to_partition_date.json: the date of a downstream key, and the producer's date carried along."""

from datetime import datetime
from typing import Any

from tests.conformance.answers import build, instant_answer
from tests.conformance.harness import Vector


def to_partition_date(vector: Vector) -> dict[str, Any]:
    return instant_answer(build(vector).to_partition_date(vector["input"]))


def carry_partition_date(vector: Vector) -> dict[str, Any]:
    given = vector["input"]
    return instant_answer(
        build(vector).carry_partition_date(None if given is None else datetime.fromisoformat(given))
    )


ANSWERS = {"carry_partition_date": carry_partition_date, "to_partition_date": to_partition_date}
