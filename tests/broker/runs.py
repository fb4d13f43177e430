"""What tests of the dispatcher share: asking for runs as the rollup does, and reading what came of it."""

from collections import Counter
from datetime import UTC, datetime

from redis.asyncio import Redis

from tests.broker.conftest import Installed, read_all, send, until_async
from tests.broker.events import audit
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import (
    JobState,
    PassedEvent,
    Run,
    RunCommand,
    RunEvent,
    RunRequest,
    RunRequestBatch,
    RunState,
    WindowProgress,
    read_runs_record,
)
from tidegate.contracts.topics import RUN_EVENTS, RUN_REQUESTS, RUNS
from tidegate.core.audit import AuditKind

JOB, TOPIC = "daily", "run-commands.daily"
PARTITIONS = 2
MINE = partition_of(JOB, PARTITIONS)
SOURCE = "contributions/0#0"
AT = datetime(2010, 3, 14, 8, tzinfo=UTC)


def request(offset: int, run_id: str = "", **changes: object) -> RunRequest:
    fields: dict[str, object] = {
        "offset": offset,
        "ordinal": 0,
        "run_id": run_id or f"run-{offset}",
        "job": JOB,
        "incarnation": "test",
        "revision": 1,
        "partition_key": f"day-{offset}",
        "partition_date": AT,
        "generation": 1,
        "completed_by": "e1",
        "windows": [WindowProgress(asset="hourly", arrived=1, expected=1)],
        "events": [
            PassedEvent(
                asset="hourly", id="e1", source="/s", partition_key="k", received_at=AT, extra={"n": offset}
            )
        ],
    }
    return RunRequest.model_validate({**fields, **changes})


async def ask(at: Installed, *requests: RunRequest, source: str = SOURCE) -> None:
    """Write requests as the rollup would: one record."""
    raw = RunRequestBatch(source=source, requests=requests).to_bytes()
    await send(at.kafka, [(RUN_REQUESTS, MINE, None, raw)])


async def report(at: Installed, *events: RunEvent | bytes) -> None:
    raw = [each if isinstance(each, bytes) else each.to_bytes() for each in events]
    await send(at.kafka, [(RUN_EVENTS, MINE, JOB.encode(), each) for each in raw])


def said(run_id: str, state: RunState, attempt: int = 1, error: str | None = None) -> RunEvent:
    return RunEvent(run_id=run_id, job=JOB, attempt=attempt, state=state, error=error)


async def commands(at: Installed) -> list[RunCommand]:
    return [RunCommand.from_bytes(record.value) for record in await read_all(at.kafka, TOPIC)]


async def states(at: Installed) -> dict[str, Run | None]:
    """What `runs` says last of every run; None for a tombstone."""
    found: dict[str, Run | None] = {}
    for record in await read_all(at.kafka, RUNS):
        state = read_runs_record(record.key.decode(), record.value) if record.value else None
        if not isinstance(state, JobState):
            found[record.key.decode()] = state
    return found


async def audit_counts(at: Installed) -> Counter[tuple[str, str | None]]:
    """(kind, partition key) of every distinct entry, but for those on a backlog and on rounds that fired.

    Those name runs that are on record, each once.
    """
    entries = await audit(at)
    told = [
        run["run_id"]
        for each in entries
        if each.kind is AuditKind.FIRED
        for run in (each.details or {})["runs"]
    ]
    assert len(told) == len(set(told))
    assert set(told) <= set(await states(at))
    usual = (AuditKind.FIRED, AuditKind.DISPATCH_CAP_REACHED)
    return Counter((each.kind.value, each.partition_key) for each in entries if each.kind not in usual)


async def until_dispatched(at: Installed, *offsets: int, timeout: float = 60) -> None:
    """Return when the runs requested at `offsets` have commands, and check that no run has two."""
    wanted = {f"run-{offset}" for offset in offsets}

    async def dispatched() -> bool:
        return wanted <= {each.run_id for each in await commands(at)}

    await until_async(dispatched, f"commands for {len(wanted)} runs up to {offsets[-1]}", timeout)
    assert set(Counter(each.run_id for each in await commands(at)).values()) == {1}


async def until_state(at: Installed, run_id: str, state: RunState) -> Run:
    async def reached() -> bool:
        run = (await states(at)).get(run_id)
        return run is not None and run.state is state

    await until_async(reached, f"{run_id} to be {state}")
    run = (await states(at))[run_id]
    assert run is not None
    return run


async def stored_runs(at: Installed) -> set[str]:
    """The runs that Redis holds."""
    async with Redis.from_url(at.redis, decode_responses=True) as redis:
        return {str(run_id) for run_id in await redis.hkeys(f"{at.namespace}:{{d{MINE}}}:runs")}
