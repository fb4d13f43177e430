"""A job's definition changes while its rounds are filling: ingest, mapper and rollup as processes (rule R6, D6)."""

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from tests.broker.conftest import Install, Installed, read_all, send, until_async
from tests.broker.events import audit, event, give
from tests.broker.rounds import (
    SHARDS,
    Run,
    apply,
    audit_kinds,
    requests,
    running,
    until_runs,
    until_waiting,
)
from tidegate import (
    Asset,
    DayWindow,
    FixedKeyMapper,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfHourMapper,
)
from tidegate.contracts.contributions import ContributionBatch, DefinitionChange, read_contributions_record
from tidegate.contracts.placement import contributions_partition, shard_of
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.core.audit import AuditKind
from tidegate.definitions import Definitions
from tidegate.runtime.applying import apply_definitions
from tidegate.runtime.redis import connect_redis

A, B = Asset("a"), Asset("b")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def at(install: Install) -> Installed:
    return install(partitions=2, shards=SHARDS)


async def closed(at: Installed, job: str, ids: Collection[str]) -> None:
    """Return when the audit says that these events count nowhere any more; no others may."""

    async def found() -> set[str | None]:
        return {each.event_id for each in await audit(at, AuditKind.ROUND_CLOSED) if each.job == job}

    async def are_there() -> bool:
        return set(ids) <= await found()

    await until_async(are_there, f"{ids} to be closed")
    assert await found() == set(ids)


def job(mapper: RollupMapper | None = None, assets: Asset | None = None) -> Job:
    return Job("join", PartitionedAssetTimetable(assets or A & B, mapper or StartOfHourMapper()))


def segments(*names: str) -> RollupMapper:
    return RollupMapper(FixedKeyMapper("all"), SegmentWindow(list(names)))


async def test_b062_a_round_that_waits_for_a_dependency_that_is_removed_fires_soon_after(
    at: Installed,
) -> None:
    hours = [f"2026-08-19T{hour:02}" for hour in range(10)]
    async with running(at):
        await apply(at, job())
        await give(at, *(event(f"a{hour}", "a", partition_key=hour) for hour in hours))
        await until_waiting(at, "join", dict.fromkeys(hours, 1))
        await apply(at, job(assets=A))
        await until_runs(at, *(Run("join", hour, (f"a{hour}",)) for hour in hours))
        await until_waiting(at, "join", {})
    assert await audit_kinds(at) == {AuditKind.DEFINITION_CHANGED}
    assert sorted(str(each.partition_key) for each in await audit(at, AuditKind.DEFINITION_CHANGED)) == hours


async def test_what_waits_by_the_hour_waits_by_the_day_once_the_job_does(at: Installed) -> None:
    daily = RollupMapper(StartOfDayMapper(), DayWindow(), MinimumCount(3))
    hours = ["2026-08-19T01", "2026-08-19T02", "2026-08-20T01"]
    async with running(at) as rollup:
        await apply(at, job())
        await give(at, *(event(hour, "a", partition_key=f"{hour}:00") for hour in hours))
        await until_waiting(at, "join", dict.fromkeys(hours, 1))
        rollup.stop()  # the change is not missed by an owner that was not there
        await apply(at, Job("join", PartitionedAssetTimetable(A, daily)))
        await asyncio.to_thread(rollup.start().wait_ready)
        await until_waiting(at, "join", {"2026-08-19": 2, "2026-08-20": 1})
        await give(at, event("third", "a", partition_key="2026-08-19T23:00"))
        await until_runs(at, Run("join", "2026-08-19", (*hours[:2], "third")))
        await until_waiting(at, "join", {"2026-08-20": 1})
    assert await audit_kinds(at) == {AuditKind.DEFINITION_CHANGED}


async def test_a_change_of_nothing_that_places_events_moves_no_round_and_runs_name_it(at: Installed) -> None:
    key = "2026-08-19T01"
    async with running(at):
        await apply(at, job())
        await give(at, event("e1", "a", partition_key=key))
        await until_waiting(at, "join", {key: 1})
        described = replace(job(), description="other words", outlets=(Asset("out"),))
        changed = (await apply_definitions(at.kafka, Definitions((described,)))).changes
        changed_at = next(change.revision for change in changed if change.id == "join")

        async def changes() -> int:
            read = [
                read_contributions_record(record.value) for record in await read_all(at.kafka, CONTRIBUTIONS)
            ]
            return sum(isinstance(each, DefinitionChange) and each.revision == changed_at for each in read)

        async def are_there() -> bool:
            return await changes() == at.partitions

        await until_async(are_there, "the change on every partition")
        await give(at, event("e2", "b", partition_key=key))
        await until_runs(at, Run("join", key, ("e1", "e2")))
        (request,) = await requests(at)
        assert request.revision == changed_at
        read = [read_contributions_record(record.value) for record in await read_all(at.kafka, CONTRIBUTIONS)]
        assert not any(isinstance(each, ContributionBatch) and each.is_remapped for each in read)
    assert await audit_kinds(at) == set()


async def test_a_segment_that_is_removed_is_waited_for_no_more_and_its_event_is_closed(at: Installed) -> None:
    async with running(at):
        await apply(at, job(segments("us", "eu", "apac"), A))
        await give(at, event("e1", "a", partition_key="us"), event("e2", "a", partition_key="eu"))
        await until_waiting(at, "join", {"all": 2})
        await apply(at, job(segments("eu", "asia"), A))
        await closed(at, "join", {"e1"})
        await until_waiting(at, "join", {"all": 1})
        await apply(at, job(segments("eu"), A))
        await until_runs(at, Run("join", "all", ("e2",)))


async def test_b055_a_job_that_is_created_again_starts_empty_and_what_waited_is_closed(at: Installed) -> None:
    async with running(at):
        await apply(at, job(segments("us", "eu"), A))
        await give(at, event("e1", "a", partition_key="us"))
        await until_waiting(at, "join", {"all": 1})
        await apply(at, job(segments("us", "eu"), A), delete=["join"])
        await closed(at, "join", {"e1"})
        await give(at, event("e2", "a", partition_key="eu"))
        await until_waiting(at, "join", {"all": 1})
        await give(at, event("e3", "a", partition_key="us"))
        await until_runs(at, Run("join", "all", ("e2", "e3")))


async def test_a_job_that_is_deleted_has_no_open_rounds(at: Installed) -> None:
    async with running(at):
        await apply(at, job())
        await give(at, event("e1", "a", partition_key="2026-08-19T01"))
        await until_waiting(at, "join", {"2026-08-19T01": 1})
        await apply(at, delete=["join"])
        await closed(at, "join", {"e1"})

        async def is_empty() -> bool:
            async with connect_redis(at.redis) as redis:
                names = [
                    name async for name in redis.scan_iter(match=f"{at.namespace}:*") if ":round:" in name
                ]
            return not names

        await until_async(is_empty, "the rounds to be gone")


async def test_a_contribution_of_an_older_revision_counts_by_the_newer_one_when_it_comes(
    at: Installed,
) -> None:
    """A mapper that was behind, or that still had a record in flight, when the job changed."""
    key = "2026-08-19T01"
    partition = contributions_partition(shard_of("join", key, SHARDS), at.partitions)
    async with running(at):
        await apply(at, job())
        await give(at, event("e1", "a", partition_key=key))
        await until_waiting(at, "join", {key: 1})
        (first,) = [
            read
            for record in await read_all(at.kafka, CONTRIBUTIONS)
            if isinstance(read := read_contributions_record(record.value), ContributionBatch)
        ]
        await apply(at, job(RollupMapper(StartOfDayMapper(), DayWindow()), A))
        await until_waiting(at, "join", {"2026-08-19": 1})
        late = first.model_copy(
            update={
                "source": "accepted-events/9",
                "events": (first.events[0]._replace(id="e2", key="2026-08-19T02"),),
                "entries": (first.entries[0]._replace(key=key),),
            }
        )
        for _ in range(2):  # a repeat is no input, though it would be mapped again too
            await send(at.kafka, [(CONTRIBUTIONS, partition, None, late.to_bytes())])
        await until_waiting(at, "join", {"2026-08-19": 2})
        await give(at, event("e3", "a", partition_key="2026-08-19T03"))
        await until_waiting(at, "join", {"2026-08-19": 3})
    assert await audit_kinds(at) == {AuditKind.DEFINITION_CHANGED}


async def test_a_change_that_redis_lost_is_made_again_from_the_log(at: Installed) -> None:
    hours = [f"2026-08-19T{hour:02}" for hour in range(6)]
    async with running(at):
        await apply(at, job())
        await give(at, *(event(hour, "a", partition_key=hour) for hour in hours))
        await until_waiting(at, "join", dict.fromkeys(hours, 1))
        await apply(at, job(RollupMapper(StartOfDayMapper(), DayWindow(), MinimumCount(8)), A))
        await until_waiting(at, "join", {"2026-08-19": 6})
        async with connect_redis(at.redis) as redis:
            await redis.flushall()
        more = ["2026-08-19T20", "2026-08-19T21"]
        await give(at, *(event(hour, "a", partition_key=hour) for hour in more))
        await until_runs(at, Run("join", "2026-08-19", (*hours, *more)))
    assert await audit_kinds(at) == {AuditKind.DEFINITION_CHANGED}


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
async def test_a_partition_that_feeds_no_shard_is_told_of_no_change(install: Install) -> None:
    at = install(partitions=2, shards=1)
    fed = contributions_partition(0, at.partitions)

    async def told() -> list[int]:
        return [record.partition for record in await read_all(at.kafka, CONTRIBUTIONS)]

    async def is_told() -> bool:
        return bool(await told())

    await apply_definitions(at.kafka, Definitions((job(),), ()))
    with at.service("rollup") as rollup:
        rollup.wait_ready()
        await until_async(is_told, "the change to be appended")
    assert await told() == [fed], "one step appends the changes of all partitions"
