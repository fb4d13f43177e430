"""What became of an event, for every job, worked out from what was read: pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.runs import RunRequest
from tidegate.core.instants import from_ms, from_us
from tidegate.runtime.audit_log import EventName, events_of
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.fates import COMPLETED, INCLUDED, WAITING, Fate, Ignored, OpenRound, fates, ignored_of
from tidegate.runtime.mapping import Plan, map_event


@dataclass(frozen=True, slots=True)
class JobReport:
    """One event, as one job sees it."""

    job: str
    keys: tuple[str | None, ...]
    """The keys that the job's mappers gave it; empty where it counts for none."""
    fates: tuple[Fate, ...]
    why_not: str | None
    """Why it did not reach the job; None where it did."""


@dataclass(frozen=True, slots=True)
class EventReport:
    """What became of one accepted event."""

    event_id: str
    source: str
    asset: str
    partition_key: str | None
    partition_date: datetime | None
    team: str | None
    aliases: tuple[str, ...]
    received_at: datetime
    position: str
    definitions: int
    """It was mapped by the definitions below this offset."""
    notes: tuple[Ignored, ...]
    """What ingest said of it, and of records that repeat it."""
    jobs: tuple[JobReport, ...]


class ThenAndNow(NamedTuple):
    """The definitions that an event meets."""

    then: Plan
    jobs_then: Collection[str]
    """Every job as of the event's stamp."""
    now: Plan
    jobs_now: Mapping[str, DefinedJob]


def keys_by_job(event: AcceptedEvent, plan: Plan) -> tuple[dict[str, list[str]], list[AuditEntry]]:
    """The downstream keys that every job's mappers give an event, and what they refuse."""
    mapped, refused = map_event(event, plan, "")
    found: dict[str, list[str]] = {}
    for each in mapped:
        keys = found.setdefault(each.job.id, [])
        if each.target.placement.key not in keys:
            keys.append(each.target.placement.key)
    return found, refused


def explain_event(
    source: str,
    event: AcceptedEvent,
    definitions: ThenAndNow,
    requests: Sequence[RunRequest],
    entries: Sequence[AuditEntry],
    open_rounds: Mapping[str, Sequence[OpenRound]],
) -> EventReport:
    """The report on an event from a source partition; `open_rounds` are by job, the others of any job, in order."""
    name = EventName(event.source, event.id)
    then, refused = keys_by_job(event, definitions.then)
    now, _ = keys_by_job(event, definitions.now)
    reports = []
    for job in sorted({*definitions.jobs_then, *definitions.jobs_now}):
        became = fates(
            name,
            [each for each in requests if each.job == job],
            [each for each in entries if each.job == job],
            open_rounds.get(job, ()),
        )
        why_not = None
        if job not in then and not any(each.how in (WAITING, INCLUDED, COMPLETED) for each in became):
            why_not = _why_not(job, event, definitions, refused, is_waited_for=job in now)
        reports.append(JobReport(job, tuple(key or None for key in then.get(job, ())), became, why_not))
    return EventReport(
        event_id=event.id,
        source=event.source,
        asset=event.asset,
        partition_key=event.partition_key,
        partition_date=None if event.partition_date is None else from_us(event.partition_date),
        team=event.team,
        aliases=tuple(event.aliases),
        received_at=from_ms(event.at),
        position=f"{source}@{event.offset}",
        definitions=event.definitions,
        notes=tuple(ignored_of(each) for each in entries if each.job is None and _names(each, name)),
        jobs=tuple(reports),
    )


def _names(entry: AuditEntry, event: EventName) -> bool:
    return any(event.is_same(each) for each in events_of(entry))


def _why_not(
    job: str,
    event: AcceptedEvent,
    definitions: ThenAndNow,
    refused: Iterable[AuditEntry],
    *,
    is_waited_for: bool,
) -> str:
    if reasons := [f"{each.kind.value}: {each.message}" for each in refused if each.job == job]:
        return "; ".join(reasons)
    if job not in definitions.jobs_then:
        revision = definitions.jobs_now[job].revision
        return (
            f"the job was defined after the event came (definitions@{revision}, the event saw those below"
            f" {event.definitions})"
        )
    if is_waited_for:
        return "the job waits for the asset only since a later definition"
    return f"the job does not wait for asset {event.asset!r}"
