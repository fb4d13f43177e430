"""Why a job has not run for a key, or when it did, worked out from what was read: pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from datetime import datetime
from typing import Final, NamedTuple

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.runs import Run, RunRequest
from tidegate.core.audit import AuditKind
from tidegate.core.instants import from_ms
from tidegate.core.policies import WaitPolicy
from tidegate.definitions.progress import window_count
from tidegate.definitions.routes import JobRoutes, Route
from tidegate.runtime.audit_log import EventName, events_of
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.fates import (
    Fate,
    Ignored,
    OpenRound,
    distinct,
    fates,
    ignored_of,
)
from tidegate.runtime.mapping import Plan, map_event
from tidegate.runtime.pending import RoundState

_OF_EVENTS_WITHOUT_A_KEY: Final = frozenset(
    {
        AuditKind.NO_PARTITION_KEY,
        AuditKind.PARTITIONED_EVENT,
        AuditKind.CROSS_TEAM,
        AuditKind.MAPPING_FAILED,
        AuditKind.NOT_A_MEMBER,
        AuditKind.FAN_OUT_EXCEEDED,
    }
)
"""What keeps an event from every key of a job; the entries name the event's own key."""
_OF_THE_JOB: Final = frozenset(
    {
        AuditKind.FIRED,
        AuditKind.JOB_PAUSED,
        AuditKind.JOB_RESUMED,
        AuditKind.CONSUMER_REGISTERED,
        AuditKind.REPLAYED,
        AuditKind.DISPATCH_CAP_REACHED,
        AuditKind.STATE_REPAIRED,
    }
)
"""What is about a job as a whole, and no round of it, though it names no key either where rounds have none."""


class Seen(NamedTuple):
    """The last event of a member."""

    at: datetime
    event_id: str
    source: str
    """CloudEvents source."""
    position: str
    """On the source topic."""
    partition_key: str | None


class LastSeen:
    """When each member of a round was last seen, by the routes of the job as it is now."""

    def __init__(self, plan: Plan, key: str) -> None:
        self._plan, self._key = plan, key
        self._found: dict[tuple[int, int], tuple[tuple[int, str, int], Seen]] = {}

    def take(self, source: str, event: AcceptedEvent) -> None:
        """Take in an event from a source partition, in any order: of equal times the later offset wins (B104)."""
        place = (event.at, source, event.offset)
        seen = Seen(
            from_ms(event.at), event.id, event.source, f"{source}@{event.offset}", event.partition_key
        )
        for each in map_event(event, self._plan, "")[0]:
            placement = each.target.placement
            member = (each.asset, placement.member)
            if placement.key == self._key and (member not in self._found or self._found[member][0] < place):
                self._found[member] = (place, seen)

    def of(self, asset: int, member: int) -> Seen | None:
        found = self._found.get((asset, member))
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class MissingMember:
    name: str
    last_seen: Seen | None
    """None where no event of it was read."""


@dataclass(frozen=True, slots=True)
class AssetProgress:
    """How full one asset's window is."""

    asset: str
    arrived: int
    expected: int
    needed: int
    policy: str
    """What it waits by: the wait policy, as a definition has it."""
    missing: tuple[MissingMember, ...]


@dataclass(frozen=True, slots=True)
class EventFates:
    """An event that concerns a round, and what became of it."""

    event_id: str
    source: str | None
    fates: tuple[Fate, ...]


@dataclass(frozen=True, slots=True)
class RunReport:
    run_id: str
    generation: int
    cause: str
    is_partial: bool
    state: str
    """As the dispatcher has it."""
    error: str | None
    sent_at: datetime | None
    updated_at: datetime | None
    completed_by: str | None
    events: int


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Why a job has not run for a key, or when it did."""

    job: str
    key: str | None
    verdict: str
    revision: int
    """The job's definition now."""
    read_since: datetime
    """From when on events, runs and audit entries were read."""
    opened_at: datetime | None
    """When the open round began; None where none is open."""
    opened_by_revision: int | None
    assets: tuple[AssetProgress, ...]
    deadline: tuple[str, datetime] | None
    """What happens to the open round without any further event, and when."""
    held: tuple[str, ...]
    """What keeps complete rounds from running: a pause, or the limit on active runs."""
    fired: tuple[int, datetime] | None
    """Generation and time of the last firing that the rollup remembers."""
    runs: tuple[RunReport, ...]
    events: tuple[EventFates, ...]
    """Every event that was read of for this key."""
    ignored: tuple[Ignored, ...]
    """What was audited of this job and key."""
    ignored_for_all_keys: tuple[Ignored, ...]
    """Events that the job's mappers had no key for, so that they could count for none."""
    ignored_counts: Mapping[str, int]
    """Both, by kind."""


def explain_round(
    defined: DefinedJob,
    key: str,
    state: RoundState,
    last_seen: LastSeen,
    requests: Sequence[RunRequest],
    runs: Mapping[str, Run],
    entries: Sequence[AuditEntry],
    held: tuple[str, ...],
    read_since: datetime,
) -> RoundReport:
    """The report on a downstream key, which is empty for a job without partitions.

    `requests` are those of this job and key, `entries` all of the job, both in order; `runs` the states by run id.
    """
    shown = key or None
    routes = JobRoutes(defined.job).routes
    asked = distinct(requests)
    of_key = [entry for entry in entries if _is_of_key(entry, shown)]
    elsewhere = [entry for entry in entries if entry.kind in _OF_EVENTS_WITHOUT_A_KEY]
    waiting = OpenRound(shown, [EventName(each.source, each.id) for each in state.events])
    assets = _progress(routes, key, state, last_seen)
    report = RoundReport(
        job=defined.job.id,
        key=shown,
        verdict="",
        revision=defined.revision,
        read_since=read_since,
        opened_at=state.open.opened_at if state.open else None,
        opened_by_revision=state.revision,
        assets=assets,
        deadline=state.deadline,
        held=held,
        fired=state.fired,
        runs=tuple(_run_report(each, runs.get(each.run_id)) for each in asked),
        events=_events(asked, of_key, waiting),
        ignored=tuple(map(ignored_of, of_key)),
        ignored_for_all_keys=tuple(map(ignored_of, elsewhere)),
        ignored_counts=dict(Counter(entry.kind.value for entry in (*of_key, *elsewhere))),
    )
    return replace(report, verdict=_verdict(report, routes, of_key))


def _is_of_key(entry: AuditEntry, key: str | None) -> bool:
    return entry.partition_key == key and entry.kind not in _OF_EVENTS_WITHOUT_A_KEY | _OF_THE_JOB


def _progress(
    routes: Sequence[Route], key: str, state: RoundState, last_seen: LastSeen
) -> tuple[AssetProgress, ...]:
    present: dict[int, set[int]] = {}
    for event in state.events:
        present.setdefault(event.asset, set()).add(event.member)
    if state.open is not None:
        counts = state.open.assets
    elif state.fired is None:
        labels = JobRoutes(routes[0].job).labels if routes else ()
        counts = tuple(
            window_count(name, route, key, (), None) for name, route in zip(labels, routes, strict=True)
        )
    else:  # nothing is missing from a round that has fired
        counts = ()
    found = []
    for index, count in enumerate(counts):
        absent = [member for member in range(count.expected) if member not in present.get(index, ())]
        missing = tuple(
            MissingMember(name, last_seen.of(index, member))
            for name, member in zip(count.missing, absent, strict=True)
        )
        policy = getattr(routes[index].mapper, "wait_policy", None) if index < len(routes) else None
        said = "its first event" if policy is None else _written(policy)
        found.append(AssetProgress(count.asset, count.arrived, count.expected, count.needed, said, missing))
    return tuple(found)


def _written(policy: WaitPolicy) -> str:
    """A wait policy as a definition has it."""
    values = (getattr(policy, each.name) for each in dataclass_fields(policy) if each.name != "deadline")
    text = f"{type(policy).__name__}({', '.join(map(repr, values))})"
    if (deadline := policy.deadline) is not None:
        text += f".or_after({deadline.after}, then={deadline.then!r}, since={deadline.since!r})"
    return text


def _run_report(request: RunRequest, run: Run | None) -> RunReport:
    return RunReport(
        run_id=request.run_id,
        generation=request.generation,
        cause=request.cause,
        is_partial=request.is_partial,
        state=run.state.value if run else "asked for, not dispatched yet",
        error=run.error if run else request.failed,
        sent_at=from_ms(run.sent_at) if run else None,
        updated_at=from_ms(run.updated_at) if run else None,
        completed_by=request.completed_by,
        events=len(request.events),
    )


def _events(
    requests: Sequence[RunRequest], entries: Sequence[AuditEntry], waiting: OpenRound
) -> tuple[EventFates, ...]:
    """Every event that is named anywhere, in that order, once."""
    named = [EventName(each["source"], each["id"]) for request in requests for each in request.events]
    named += waiting.events
    named += (each for entry in entries for each in events_of(entry))
    distinct: list[EventName] = []
    by_id: dict[str, list[EventName]] = {}
    for each in named:
        if not any(each.is_same(other) for other in by_id.get(each.id, ())):
            by_id.setdefault(each.id, []).append(each)
            distinct.append(each)
    return tuple(
        EventFates(each.id, each.source, fates(each, requests, entries, [waiting])) for each in distinct
    )


_ENDS_WITHOUT_A_RUN: Final = frozenset(
    {AuditKind.DEADLINE_DROPPED, AuditKind.ROUND_DISCARDED, AuditKind.ROUND_CLOSED}
)


def _last_end(entries: Iterable[AuditEntry]) -> AuditEntry | None:
    """What last became of a round of the key other than a run; None where nothing did."""
    ends = [entry for entry in entries if entry.kind in _ENDS_WITHOUT_A_RUN]
    return max(ends, key=lambda entry: entry.at, default=None)


def _verdict(report: RoundReport, routes: Sequence[Route], entries: Iterable[AuditEntry]) -> str:
    """What a person should know first."""
    lacking = [each for each in report.assets if each.arrived < each.needed]
    if report.opened_at is not None:
        if report.opened_by_revision is not None and report.opened_by_revision < report.revision:
            return "its events wait to be mapped again by the new definition of the job"
        never = [each.asset for each in report.assets if each.needed > each.expected]
        if never:
            return f"it can never fire: {', '.join(never)} asks for more members than its window has"
        return "waits for " + "; ".join(
            f"{each.asset}: {each.arrived} of {each.expected} are in, {each.needed} are needed"
            for each in lacking
        )
    if (over := _last_end(entries)) is not None and (
        report.fired is None or from_ms(over.at) >= report.fired[1]
    ):
        return f"its last round is gone: {over.message}"
    if report.runs:
        last = report.runs[-1]
        return f"ran: generation {last.generation} is {last.state}"
    if report.fired is not None:
        generation, at = report.fired
        return f"fired before the time that was read: generation {generation} on {at:%Y-%m-%d at %H:%M:%S}Z"
    if not routes:
        return "the job waits for no asset, so that no event starts it"
    if any(each.mapper.is_rollup and not each.members(report.key or "") for each in routes):
        return f"no event was seen, and {report.key!r} is no key that the job's mapper reads"
    return "no event of this key has reached the job"
