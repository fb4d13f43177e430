"""What is decided otherwise about to_partition_date.json."""

from datetime import datetime
from typing import Any

from tests.conformance.rules.decided import rules
from tests.conformance.rules.model import Model, Subject


def to_partition_date(model: Model, subject: Subject, given: Any) -> Any:
    model.check(subject)
    return _instant(model.date(subject, given))


def carry_partition_date(model: Model, subject: Subject, given: Any) -> Any:
    model.check(subject)
    return _instant(model.carry(subject, None if given is None else datetime.fromisoformat(given)))


def _instant(at: datetime | None) -> dict[str, str | None]:
    return {"instant": None if at is None else at.isoformat()}


RULES = rules({"carry_partition_date": carry_partition_date, "to_partition_date": to_partition_date})
