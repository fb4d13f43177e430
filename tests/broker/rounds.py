"""What tests of rounds share: services up to run requests, definitions in force, what waits and what ran."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

from tests.broker.conftest import Installed, read_all, until_async
from tests.broker.events import audit, event, give
from tests.servers.services import ServiceProcess
from tidegate import (
    Asset,
    FixedKeyMapper,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    WaitForAll,
)
from tidegate.contracts.accepted import AcceptedBatch
from tidegate.contracts.runs import RunRequest, RunRequestBatch
from tidegate.contracts.topics import ACCEPTED, RUN_REQUESTS
from tidegate.core.audit import AuditKind
from tidegate.definitions import Definitions
from tidegate.runtime.applying import apply_definitions
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.pending import PendingRounds, pending_rounds
from tidegate.runtime.redis import connect_redis

A = Asset("a")
SHARDS = 4


class Run(NamedTuple):
    job: str
    key: str | None
    events: tuple[str, ...]
    """Ids, sorted."""


@asynccontextmanager
async def running(at: Installed) -> AsyncIterator[ServiceProcess]:
    """All that leads to run requests; yields the rollup."""
    with (
        at.service("ingest") as ingest,
        at.service("mapper") as mapper,
        at.service("rollup", TIDEGATE_INSTANCE_ID="one") as rollup,
    ):
        for each in (ingest, mapper, rollup):
            each.wait_ready()
        yield rollup


async def apply(at: Installed, *jobs: Job, delete: Collection[str] = ()) -> None:
    """Publish jobs, and return once events are mapped by them."""
    await apply_definitions(at.kafka, Definitions(jobs, (Asset("probe"),)), delete)
    async with definitions_view(at.kafka) as view:
        wanted = view.next_offset

    async def is_seen() -> bool:
        await give(at, event(uuid4().hex, "probe"))
        accepted = [AcceptedBatch.from_bytes(record.value) for record in await read_all(at.kafka, ACCEPTED)]
        return any(each.definitions >= wanted for batch in accepted for each in batch.events)

    await until_async(is_seen, f"ingest to see definitions up to {wanted}")


async def runs(at: Installed) -> list[Run]:
    """Every run that was asked for, repeats left out (E1)."""
    highs: dict[tuple[int, str], tuple[int, int]] = {}
    found = []
    for record in await read_all(at.kafka, RUN_REQUESTS):
        batch = RunRequestBatch.from_bytes(record.value)
        for each in batch.requests:
            place = (record.partition, batch.source)
            if (each.offset, each.ordinal) > highs.get(place, (-1, -1)):
                highs[place] = (each.offset, each.ordinal)
                ids = tuple(sorted(one["id"] for one in each.events))
                found.append(Run(each.job, each.partition_key, ids))
    return sorted(found)


async def until_runs(at: Installed, *wanted: Run) -> None:
    """Return when as many runs were asked for; these and no others must be there."""

    async def are_there() -> bool:
        return len(await runs(at)) >= len(wanted)

    await until_async(are_there, f"{len(wanted)} runs")
    assert await runs(at) == sorted(wanted)


async def waiting(at: Installed, job: str) -> PendingRounds:
    async with definitions_view(at.kafka) as view, connect_redis(at.redis) as redis:
        return await pending_rounds(redis, at.namespace, SHARDS, view, job, 100)


async def until_waiting(at: Installed, job: str, wanted: dict[str, int]) -> None:
    """Return when the job's open rounds are these keys, with so many members each."""

    async def are_there() -> bool:
        found = (await waiting(at, job)).rounds
        return {each.key: sum(asset.arrived for asset in each.assets) for each in found} == wanted

    await until_async(are_there, f"{job} to wait for {wanted}")


async def audit_kinds(at: Installed) -> set[AuditKind]:
    """Without what says that jobs were created."""
    return {each.kind for each in await audit(at)} - {AuditKind.CONSUMER_REGISTERED}


def regions(after_s: float | None = None, then: str = "fire") -> Job:
    policy = WaitForAll()
    if after_s is not None:
        policy = policy.or_after(timedelta(seconds=after_s), then=then)
    window = SegmentWindow(["us", "eu", "apac"])
    return Job("all", PartitionedAssetTimetable(A, RollupMapper(FixedKeyMapper("all"), window, policy)))


def arrives(event_id: str, region: str) -> bytes:
    return event(event_id, "a", partition_key=region)


async def requests(at: Installed) -> list[RunRequest]:
    records = await read_all(at.kafka, RUN_REQUESTS)
    return [each for record in records for each in RunRequestBatch.from_bytes(record.value).requests]
