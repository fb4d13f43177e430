"""`tidegate explain`: reads what a report on a round or on an event is made of."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pydantic import ValidationError
from redis.asyncio import Redis

from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.definitions import Installation
from tidegate.contracts.placement import partition_of
from tidegate.contracts.redis_keys import runs_key, runs_prefix
from tidegate.contracts.runs import (
    JobState,
    Run,
    RunRequest,
    read_run_requests_record,
    requests_in,
    stored_run,
)
from tidegate.contracts.topics import ACCEPTED, RUN_REQUESTS
from tidegate.core.errors import DefinitionError, TidegateError
from tidegate.core.instants import from_ms
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.definitions.routes import UNPARTITIONED
from tidegate.runtime.audit_log import EventName, Wanted, as_written, read_audit
from tidegate.runtime.dead_letters import Kept, dead_letters
from tidegate.runtime.definitions_view import DefinedJob, DefinitionsView, definitions_view
from tidegate.runtime.event_report import EventReport, ThenAndNow, explain_event, keys_by_job
from tidegate.runtime.fates import OpenRound
from tidegate.runtime.mapping import Plan, plan
from tidegate.runtime.pending import pending_rounds, round_state
from tidegate.runtime.reading import LogReader, log_reader
from tidegate.runtime.round_report import LastSeen, RoundReport, explain_round

_KEYS_NAMED: Final = 5


class NothingToExplainError(TidegateError, LookupError):
    """Nothing is known of the event."""


async def holds(redis: Redis, namespace: str, installation: Installation, job: DefinedJob) -> tuple[str, ...]:
    """What keeps the complete rounds of a job from running, in words: a pause, a limit on active runs."""
    prefix = runs_prefix(namespace, partition_of(job.job.id, installation.partitions))
    async with redis.pipeline(transaction=False) as pipeline:
        for kind in ("paused", "active", "queued"):
            pipeline.hget(prefix + kind, job.job.id)
        paused, *counts = await pipeline.execute()
    active, queued = (int(count or 0) for count in counts)
    found = []
    if paused:
        state = JobState.from_bytes(paused)
        found.append(
            f"paused by {state.by} at {from_ms(state.at).isoformat()}: {queued} runs wait for"
            f" `tidegate resume {job.job.id}`"
        )
    limit = job.job.active_runs_limit
    if limit is not None and queued and active >= limit:
        found.append(f"{active} runs are active, of at most {limit}: {queued} wait until one of them ends")
    return tuple(found)


async def report_on_round(
    bootstrap: str, redis: Redis, namespace: str, job: str, key: str | None, since: int
) -> RoundReport:
    """Why `job` has not run for `key`, from what was written at or after `since`, in ms since 1970.

    Raises DefinitionError for a job that is not defined, and where it needs a key, or has none.
    """
    async with definitions_view(bootstrap) as view, log_reader(bootstrap) as reader:
        installation = view.installation
        assert installation is not None
        defined = view.defined(job)
        downstream = await _downstream(redis, namespace, installation, view, defined, key)
        state = await round_state(redis, namespace, installation.shards, view, job, downstream)
        ways = plan([defined], view.known_assets(), multi_team=view.is_multi_team_at(view.next_offset))
        last_seen = LastSeen(ways, downstream)
        if state.open is not None or state.fired is None:
            async for source, event in _accepted(reader, since, _partitions(ways, installation)):
                last_seen.take(source, event)
        on = [partition_of(job, installation.partitions)]
        written = [as_written(job), *([] if key is None else [as_written(key)])]
        requests = [
            each
            async for each in _requests(reader, since, written, on)
            if each.job == job
            and each.incarnation == defined.incarnation
            and (each.partition_key or UNPARTITIONED) == downstream
        ]
        audited = await read_audit(reader, since, Wanted(job=job), on)
        runs = await _runs(redis, namespace, on[0], [each.run_id for each in requests])
        held = await holds(redis, namespace, installation, defined)
        return explain_round(
            defined,
            downstream,
            state,
            last_seen,
            requests=requests,
            runs=runs,
            entries=audited.entries,
            held=held,
            read_since=from_ms(max(0, since)),
        )


async def reports_on_event(
    bootstrap: str, redis: Redis, namespace: str, event_id: str, since: int
) -> tuple[list[EventReport], list[Kept], list[AuditEntry]]:
    """What is known of an event id from what was written at or after `since`, in ms since 1970.

    Gives a report for each accepted event of that id (of one source each), the dead letters, and the audit entries that
    name it. Raises NothingToExplainError where there is nothing of it.
    """
    async with definitions_view(bootstrap) as view, log_reader(bootstrap) as reader:
        installation = view.installation
        assert installation is not None
        accepted: dict[EventName, tuple[str, AcceptedEvent]] = {}
        async for source, event in _accepted(reader, since, containing=as_written(event_id)):
            if event.id == event_id:  # what ingest wrote twice is one event
                accepted.setdefault(EventName(event.source, event.id), (source, event))
        refused = [each async for each in dead_letters(reader, since) if each.event_id == event_id]
        audited = (await read_audit(reader, since, Wanted(event_id=event_id))).entries
        if not (accepted or refused or audited):
            start = f"{from_ms(max(0, since)):%Y-%m-%d %H:%M:%S}Z"
            raise NothingToExplainError(
                f"no event {event_id!r} was accepted, refused or audited since {start}:"
                " look further back with --since, check the id, and see with `tidegate status` how far ingest has read"
            )
        requests = [each async for each in _requests(reader, since, [as_written(event_id)])]
        reports = []
        for source, event in accepted.values():
            await view.wait_for(event.definitions)
            definitions = _definitions(view, event.definitions)
            waiting = await _open_rounds(redis, namespace, installation, view, event, definitions)
            reports.append(explain_event(source, event, definitions, requests, audited, waiting))
        return reports, refused, audited


async def _downstream(
    redis: Redis,
    namespace: str,
    installation: Installation,
    view: DefinitionsView,
    defined: DefinedJob,
    key: str | None,
) -> str:
    """The key as rounds are named by it; raises DefinitionError where the job has none, or is asked without one."""
    job = defined.job
    if not isinstance(job.schedule, PartitionedAssetTimetable):
        if key is not None:
            raise DefinitionError(f"job {job.id!r} runs without partition keys: leave {key!r} out")
        return UNPARTITIONED
    if key is not None:
        return key
    found = await pending_rounds(redis, namespace, installation.shards, view, job.id, _KEYS_NAMED)
    keys = ", ".join(repr(each.key) for each in found.rounds)
    more = f" and {found.total - len(found.rounds)} more" if found.total > len(found.rounds) else ""
    raise DefinitionError(
        f"job {job.id!r} runs for partition keys: name one" + (f" (open are {keys}{more})" if keys else "")
    )


def _partitions(ways: Plan, installation: Installation) -> set[int] | None:
    """Where the events of a job's assets stand on accepted-events; None for anywhere, since aliases name any asset."""
    return None if ways.by_alias else {partition_of(name, installation.partitions) for name in ways.by_asset}


async def _accepted(
    reader: LogReader, since: int, partitions: Collection[int] | None = None, containing: bytes = b""
) -> AsyncIterator[tuple[str, AcceptedEvent]]:
    """Every accepted event with its source partition; records that cannot be read have audit entries."""
    async for record in reader.since(ACCEPTED, since, partitions):
        raw = record.value or b""
        if containing in raw and (read := _read(AcceptedBatch.from_bytes, raw)) is not None:
            for event in read.events:
                yield read.source, event


async def _requests(
    reader: LogReader, since: int, containing: Iterable[bytes], partitions: Collection[int] | None = None
) -> AsyncIterator[RunRequest]:
    written = list(containing)
    async for record in reader.since(RUN_REQUESTS, since, partitions):
        raw = record.value or b""
        if (
            all(each in raw for each in written)
            and (read := _read(read_run_requests_record, raw)) is not None
        ):
            for request in requests_in(read):
                yield request


M = TypeVar("M")


def _read(read: Callable[[bytes], M], raw: bytes) -> M | None:
    try:
        return read(raw)
    except ValidationError:
        return None


async def _runs(redis: Redis, namespace: str, partition: int, run_ids: Sequence[str]) -> dict[str, Run]:
    """The states of runs, as far as the dispatcher remembers them."""
    if not run_ids:
        return {}
    found = await redis.hmget(runs_key(namespace, partition), list(run_ids))
    return {run_id: stored_run(str(raw)) for run_id, raw in zip(run_ids, found, strict=True) if raw}


def _definitions(view: DefinitionsView, stamp: int) -> ThenAndNow:
    then, now = view.jobs_at(stamp), view.jobs()
    return ThenAndNow(
        plan(then.values(), view.assets_at(stamp), multi_team=view.is_multi_team_at(stamp)),
        then.keys(),
        plan(now.values(), view.known_assets(), multi_team=view.is_multi_team_at(view.next_offset)),
        now,
    )


async def _open_rounds(
    redis: Redis,
    namespace: str,
    installation: Installation,
    view: DefinitionsView,
    event: AcceptedEvent,
    definitions: ThenAndNow,
) -> Mapping[str, list[OpenRound]]:
    """The open rounds that the event may wait in, by its keys then and now."""
    keys: dict[str, set[str]] = {}
    for ways in (definitions.then, definitions.now):
        for job, some in keys_by_job(event, ways)[0].items():
            keys.setdefault(job, set()).update(some)
    found: dict[str, list[OpenRound]] = {}
    for job in keys.keys() & definitions.jobs_now.keys():
        for key in sorted(keys[job]):
            state = await round_state(redis, namespace, installation.shards, view, job, key)
            names = [EventName(each.source, each.id) for each in state.events]
            found.setdefault(job, []).append(OpenRound(key or None, names))
    return found
