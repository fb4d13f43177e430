"""What became of an event: asked by the report on a round and by that on an event, so that both say the same (B103)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.runs import RunRequest
from tidegate.core.audit import AuditKind
from tidegate.core.instants import from_ms
from tidegate.runtime.audit_log import EventName, events_of

WAITING: Final = "waiting"
INCLUDED: Final = "included"
COMPLETED: Final = "completed"

_LED_TO_A_RUN: Final = frozenset({AuditKind.ROUND_FIRED, AuditKind.DEADLINE_FAILED})
"""What is audited of events beside their run."""


class Fate(NamedTuple):
    """One thing that became of an event, for one job."""

    how: str
    """`waiting` in an open round, `included` in a run, `completed` a run, or the kind of an audit entry."""
    key: str | None
    """The run's key."""
    run_id: str | None = None
    why: str = ""
    """What the audit entry says."""


@dataclass(frozen=True, slots=True)
class OpenRound:
    """An open round of a job, as far as events are asked about."""

    key: str | None
    events: Collection[EventName]


def fates(
    event: EventName,
    requests: Iterable[RunRequest],
    entries: Iterable[AuditEntry],
    open_rounds: Iterable[OpenRound],
) -> tuple[Fate, ...]:
    """What became of an event for one job, given all that was read about that job.

    Runs come in the order of their requests, then what was audited, then the rounds that it still waits in.
    """
    found = []
    for request in distinct(requests):
        if any(event.is_same(EventName(each["source"], each["id"])) for each in request.events):
            how = COMPLETED if request.completed_by == event.id else INCLUDED
            found.append(Fate(how, request.partition_key, request.run_id))
    for entry in entries:
        if entry.kind not in _LED_TO_A_RUN and any(event.is_same(each) for each in _befallen(entry)):
            found.append(Fate(entry.kind.value, entry.partition_key, why=entry.message))
    for waiting in open_rounds:
        if any(event.is_same(each) for each in waiting.events):
            found.append(Fate(WAITING, waiting.key))
    return tuple(found)


def _befallen(entry: AuditEntry) -> list[EventName]:
    """The events that an entry says something of; an event that takes the place of another goes on as it would."""
    named = list(events_of(entry))
    replaced = (entry.details or {}).get("replaced_event_id")
    is_replaced = [replaced is not None and each == EventName(None, replaced) for each in named]
    wanted = entry.kind is AuditKind.MEMBER_REPLACED
    return [each for each, is_older in zip(named, is_replaced, strict=True) if is_older is wanted]


def distinct(requests: Iterable[RunRequest]) -> list[RunRequest]:
    """Every request once: it may be written again after a crash."""
    return list({each.run_id: each for each in requests}.values())


@dataclass(frozen=True, slots=True)
class Ignored:
    """An audit entry about the job."""

    kind: str
    at: datetime
    event_id: str | None
    message: str


def ignored_of(entry: AuditEntry) -> Ignored:
    return Ignored(entry.kind.value, from_ms(entry.at), entry.event_id, entry.message)
