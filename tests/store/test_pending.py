"""What is still filling, as people are told, from what the rollup keeps in Redis."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from redis.asyncio import Redis

from tidegate import (
    Asset,
    AssetAlias,
    DayWindow,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
    Window,
)
from tidegate.contracts.contributions import Contribution, JobRef, MemberEvent
from tidegate.contracts.definitions import DefinitionRecord
from tidegate.contracts.placement import shard_of
from tidegate.contracts.topics import DEFINITIONS
from tidegate.core.plain import plain
from tidegate.definitions.progress import WindowCount
from tidegate.definitions.routes import UNPARTITIONED, JobRoutes
from tidegate.runtime.definitions_view import DefinitionsView
from tidegate.runtime.pending import PendingRound, count_open, pending_rounds
from tidegate_rollup.inputs import Entry
from tidegate_rollup.store import RoundStore

AT = 1_700_000_000_000
SHARDS = 3
REVISION = 7


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True, socket_timeout=60) as client:
        await client.flushall()
        yield client


def view_of(job: Job) -> DefinitionsView:
    view = DefinitionsView()
    value = DefinitionRecord(kind="job", id=job.id, incarnation="i1", body=plain(job)).to_bytes()
    key = f"job:{job.id}".encode()
    view.apply(ConsumerRecord(DEFINITIONS, 0, REVISION, AT, 1, key, value, None, 0, 0, ()))
    return view


async def contribute(redis: Redis, job: Job, key: str, *places: tuple[int, int, int, int]) -> None:
    """Fold one event for each (asset, member, size, needed) of a round."""
    routes = JobRoutes(job)
    ref = JobRef(job.id, "i1", REVISION, routes.rollups, routes.labels, routes.clauses)
    entries = [
        Entry(
            n,
            0,
            AT + n,
            "accepted-events/0",
            ref,
            MemberEvent(None, f"e{n}", "s", AT, None, None),
            Contribution(n, 0, 0, n, key, *place, None, None),
        )
        for n, place in enumerate(places)
    ]
    shard = shard_of(job.id, key, SHARDS)
    await RoundStore(redis, "t", 1_000).apply(0, 0, len(places), AT, [(shard, None, entries)])


async def found(redis: Redis, job: Job) -> tuple[PendingRound, ...]:
    read = await pending_rounds(redis, "t", SHARDS, view_of(job), job.id, 10)
    assert read.total == len(read.rounds) == (await count_open(redis, "t", SHARDS, {job.id: "i1"}))[job.id]
    return read.rounds


async def test_a_job_without_partitions_has_one_round_without_a_key(redis: Redis) -> None:
    """Its assets are called what the schedule calls them."""
    job = Job("plain", schedule=Asset("a") & AssetAlias("feed") & Asset.ref(uri="s3://bucket/b"))
    await contribute(redis, job, UNPARTITIONED, (1, 0, 1, 1))
    (waiting,) = await found(redis, job)
    assert (waiting.key, waiting.opened_at.timestamp()) == (None, AT / 1000)
    assert waiting.assets == (
        WindowCount("a", 0, 1, 1, ("a",)),
        WindowCount("feed", 1, 1, 1, ()),
        WindowCount("s3://bucket/b", 0, 1, 1, ("s3://bucket/b",)),
    )
    await contribute(redis, Job("plain2", schedule=job.schedule), UNPARTITIONED, (1, 0, 1, 1))
    assert await found(redis, job) == (waiting,), "another job whose id begins alike is not this one"


async def test_a_job_without_partitions_waits_no_more_once_all_came(redis: Redis) -> None:
    job = Job("plain", schedule=Asset("a") & Asset("b"))
    await contribute(redis, job, UNPARTITIONED, (1, 0, 1, 1), (0, 0, 1, 1))
    assert await found(redis, job) == ()


async def test_a_window_says_which_members_it_lacks_beside_assets_by_other_names(redis: Redis) -> None:
    rollup = RollupMapper(StartOfDayMapper(), DayWindow(), wait_policy=MinimumCount(-1))
    schedule = PartitionedAssetTimetable(
        assets=Asset("hourly") & Asset.ref(name="daily"), partition_mapper_config={Asset("hourly"): rollup}
    )
    job = Job("day", schedule=schedule)
    hours = [(0, member, 24, 23) for member in range(24) if member not in (3, 23)]
    await contribute(redis, job, "2010-03-10", *hours)
    (waiting,) = await found(redis, job)
    assert waiting.key == "2010-03-10"
    assert waiting.assets == (
        WindowCount("hourly", 22, 24, 23, ("2010-03-10T03:00:00", "2010-03-10T23:00:00")),
        WindowCount("daily", 0, 1, 1, ("daily",)),
    )


@dataclass(frozen=True)
class _DayBefore2030(Window):
    """A window of the user's own whose code fails on some anchors."""

    expected_decoded_type = datetime

    def to_upstream(self, decoded_downstream: Any) -> Iterable[datetime]:
        if decoded_downstream.year >= 2030:
            raise KeyError(decoded_downstream.year)
        return (decoded_downstream,)


async def test_members_go_by_number_where_a_window_of_the_users_own_raises(redis: Redis) -> None:
    rollup = RollupMapper(StartOfDayMapper(), _DayBefore2030())
    job = Job("own", schedule=PartitionedAssetTimetable(Asset("a") & Asset("b"), rollup))
    await contribute(redis, job, "2030-01-01", (0, 1, 3, 2))
    (waiting,) = await found(redis, job)
    assert waiting.assets == (
        WindowCount("a", 1, 3, 2, ("member 0", "member 2")),
        WindowCount("b", 0, 1, 1, ("b",)),
    )
