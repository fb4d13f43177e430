"""What docs/rules.md decides otherwise about a run's partition date."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.conformance.harness import Answer, Rule, Vector
from tests.conformance.rules import decided
from tests.conformance.rules.model import Model, Refused, Subject


def _at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _only(dates: Iterable[datetime | None]) -> str | None:
    """The one date there is, whatever is missing (D2)."""
    found = set(dates) - {None}
    return next(iter(found)).isoformat() if len(found) == 1 else None  # type: ignore[union-attr]


def _reconciled(vector: Vector) -> Answer:
    return {"carried_date": _only(map(_at, vector["input"]["carried_dates"])), "pending_rows": 1}


def _read(model: Model, assets: dict[str, Any], key: str) -> set[datetime]:
    """The dates that mappers read from a key; raises Refused where one fails."""
    read = set()
    for mapper in assets.values():
        if isinstance(mapper, str):
            raise Refused
        if (at := model.date(mapper, key)) is not None:
            read.add(at)
    return read


def _resolve(model: Model, subject: Subject, given: Any) -> Answer:
    try:
        read = _read(model, subject["assets"], given["partition_key"])
    except Refused:
        return {"partition_date": None}
    return {"partition_date": _only(read or {_at(given["carried_date"])})}


def _typed(model: Model, subject: Subject, given: Any) -> Answer:
    if given is None:
        return {"instant": None}
    try:
        return {"instant": _only(_read(model, subject["assets"], given))}
    except Refused:
        return {"error": "InvalidPartitionKeyError"}


_OPS: dict[str, Callable[[Model, Subject, Any], Answer]] = {
    "resolve": _resolve,
    "manual_trigger_date": _typed,
}


@lru_cache(maxsize=4096)
def _worked_out(op: str, subject: str, given: str) -> tuple[Answer, tuple[str, ...]]:
    model = Model()
    answer = _OPS[op](model, json.loads(subject), json.loads(given))
    return answer, tuple(model.touched)


def _of(vector: Vector) -> tuple[Answer, tuple[str, ...]]:
    if vector["op"] not in _OPS:
        return None, ()
    return _worked_out(vector["op"], json.dumps(vector["subject"]), json.dumps(vector["input"]))


def _rests_on(decision: str) -> Rule:
    return Rule(
        decision,
        decided.ABOUT[decision],
        lambda vector: decision in _of(vector)[1],
        lambda vector: _of(vector)[0],
    )


def _has_date(vector: Vector) -> bool:
    return vector["op"] == "event_origin_date" and bool(vector["input"]["producer_has_date"])


RULES = [
    Rule(
        "F05",
        "several carried dates are a conflict, in every order",
        lambda vector: vector["op"] == "reconcile",
        _reconciled,
    ),
    Rule(
        "F37",
        "events of every origin may carry a key and a date",
        _has_date,
        lambda vector: {"partition_date": "2026-03-10T00:00:00+00:00", "partition_key_possible": True},
    ),
    *map(_rests_on, decided.ABOUT),
]
