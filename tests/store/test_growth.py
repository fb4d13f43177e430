"""A month of events, with the times of records moved by hand: what Redis holds reaches a plateau (B105)."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from tidegate.contracts.contributions import (
    Contribution,
    DeadlineReached,
    DefinitionChange,
    JobRef,
    MemberEvent,
)
from tidegate.contracts.placement import shard_of
from tidegate.runtime.census import IN_SHARD, Lack, Orphan, census
from tidegate_dispatcher.store import RunStore
from tidegate_ingest.store import SeenEvents
from tidegate_rollup.inputs import Control, Entry, Input, by_shard
from tidegate_rollup.store import Applied, RoundStore

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS
SHARDS = 2
EVENTS_AN_HOUR = 24
"""One for each of so many windows of a day; 24 of them close a window."""

SORTED_SETS = ("expiry", "seen", "open", "due", "gone", "replays")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True, socket_timeout=60) as client:
        await client.flushall()
        yield client


class Month:
    """The rollup of one partition, fed hour by hour; everything that it sends is acknowledged at once."""

    def __init__(self, redis: Redis) -> None:
        self.store = RoundStore(redis, "t", HOUR_MS)
        self.offset, self.fired = 0, 0
        self.believed: dict[int, int | None] = dict.fromkeys(range(SHARDS))

    async def fold(self, inputs: list[Input], at: int) -> None:
        self.offset += 1
        shares = by_shard(inputs)
        batches = [(shard, self.believed[shard], shares.get(shard, [])) for shard in range(SHARDS)]
        replies = await self.store.apply(0, 0, self.offset, at, batches)
        sent = []
        for shard, reply in replies.items():
            assert isinstance(reply, Applied)
            self.believed[shard] = self.offset
            self.fired += sum(each.revision is None and not each.is_audit for each in reply.added)
            sent.append((0, shard, reply.added))
        await self.store.confirm([each for each in sent if each[2]])

    def contribution(self, job: JobRef, key: str, member: int, size: int, at: int, ordinal: int) -> Entry:
        event = MemberEvent(f"{key}/{member}", f"{at}.{ordinal}", "s", at, None, None)
        source = f"accepted-events/{ordinal % 3}"
        placed = Contribution(self.offset, ordinal, 0, 0, key, 0, member, size, size, None, None)
        shard = shard_of(job.id, key, SHARDS)
        return Entry(self.offset, ordinal, at, source, job, event, placed, shard)

    async def deadlines(self, at: int) -> list[Input]:
        """What the owner appends for rounds whose time has come."""
        found: list[Input] = []
        for then, name, opened in await self.store.due(range(SHARDS), at):
            job, incarnation, key = name.split("/", 2)
            about = {"job": job, "incarnation": incarnation, "key": key, "opened": opened, "then": then}
            found.append(
                Control(self.offset, at, DeadlineReached.model_validate(about), shard_of(job, key, SHARDS))
            )
        return found

    async def hour(self, number: int) -> None:
        """One event for each of many windows of a day, of which some are late or come again; one job comes and goes.

        What comes after its window's mark has expired opens another round, which its deadline drops.
        """
        at, (day, hour) = START_MS + number * HOUR_MS, divmod(number, 24)
        policies = (None, "refire", "new_round")
        inputs: list[Input] = []
        for place in range(EVENTS_AN_HOUR):
            job = JobRef(
                f"day{place % 3}",
                "i",
                1,
                (0,),
                ("a",),
                ((0,),),
                policies[place % 3],
                ((26 * HOUR_MS, "drop", "first_member"),),
            )
            inputs.append(self.contribution(job, f"{day} {place}", hour, 24, at, len(inputs)))
            if hour < 2 and day:  # those of the day before have fired, within the horizon or not
                inputs.append(self.contribution(job, f"{day - 1} {place}", 3, 24, at, len(inputs)))
        replayed = self.contribution(JobRef("each", "i", 1, (), ("a",), ((0,),)), "k", 0, 1, at, len(inputs))
        name = f"replay/each/i/1@{number}/accepted-events/0"
        inputs.append(replayed._replace(source=name, is_remapped=True, is_replayed=True))
        gone = JobRef(f"job {number}", "i", 2 * number, (0,), ("a",), ((0,),))
        inputs.append(self.contribution(gone, "k", 0, 2, at, len(inputs)))
        inputs += [
            Control(
                self.offset,
                at,
                DefinitionChange(job=gone.id, revision=2 * number + 1),
                shard,
            )
            for shard in range(SHARDS)
        ]
        inputs += await self.deadlines(at)
        await self.fold(inputs, at)


async def held(redis: Redis) -> tuple[Counter[str], int]:
    """The fields, members and keys of a rollup by kind, and the bytes that they take."""
    sizes: Counter[str] = Counter()
    keys = [key async for key in redis.scan_iter("t:*", count=1_000)]
    kinds = [key.split("}:")[1].split(":")[0] for key in keys]
    async with redis.pipeline(transaction=False) as pipeline:
        for key, kind in zip(keys, kinds, strict=True):
            (pipeline.zcard if kind in SORTED_SETS else pipeline.hlen)(key)
            pipeline.memory_usage(key)
        replies = await pipeline.execute()
    for kind, size in zip(kinds, replies[::2], strict=True):
        sizes[kind] += size
    return sizes, sum(replies[1::2])


@pytest.mark.parametrize("redis_url", ["real"], indirect=True)
async def test_b105_in_a_month_redis_reaches_a_plateau_and_every_key_has_a_reason(redis: Redis) -> None:
    month = Month(redis)
    at_noon: list[tuple[Counter[str], int]] = []
    for number in range(30 * 24):
        await month.hour(number)
        if number % 24 == 12:
            at_noon.append(await held(redis))
        if number in (60, 719):
            found = await census(redis, "t", SHARDS, 1)
            assert found.orphans == []
            assert found.kinds.keys() <= set(IN_SHARD) - {"outbox", "moved"}
    assert month.fired >= 30 * EVENTS_AN_HOUR - EVENTS_AN_HOUR
    early, late = at_noon[2], at_noon[29]
    assert late[0] == early[0], "as much is held on the 30th day as on the third"
    assert late[1] <= 1.1 * early[1]
    assert late[0]["gone"] == 9 * SHARDS  # jobs that were deleted within eight horizons, and now
    assert late[0]["replays"] == 9  # one an hour, all of one round
    assert late[0]["revisions"] == 9 * SHARDS + 3 * SHARDS + 1

    later = START_MS + 32 * 24 * HOUR_MS
    await month.fold(await month.deadlines(later), later)
    for _ in range(3):
        await month.fold([], later + 9 * HOUR_MS)
    sizes, _ = await held(redis)
    assert set(sizes) == {"log", "revisions"}, "nothing waits, and all that fired is forgotten"
    assert sizes["revisions"] == 3 * SHARDS + 1
    assert sizes["log"] == SHARDS * (2 + 3)  # next, at and a place for each of three sources


async def test_b105_the_keys_of_every_program_are_known_and_orphans_are_told(redis: Redis) -> None:
    month = Month(redis)
    job = JobRef("day", "i", 1, (0,), ("a",), ((0,),), "refire", ((HOUR_MS, "fire", "first_member"),))
    await month.fold([month.contribution(job, "}{", 0, 2, START_MS, 0)], START_MS)
    await month.fold([month.contribution(job, "{}", 0, 1, START_MS, 0)], START_MS)
    await SeenEvents(redis, "t", 60).remember([("identity", "mark")])
    await RunStore(redis, "t", 0).write(None, 1, {})
    await redis.hset("t:started:t-ingest", "asset-events/0", "0")
    await redis.set("t:accept-gap:t-ingest:asset-events/0", 1, ex=60)
    found = await census(redis, "t", SHARDS, 1)
    assert found.orphans == []
    assert found.kinds["unknown"] == 0

    shard = shard_of("day", "}{", SHARDS)
    other = shard_of("day", "{}", SHARDS)
    waiting, fired = f"t:{{{shard}}}:", f"t:{{{other}}}:"
    await redis.rename(f"{waiting}round:day/i/}}{{", f"{waiting}round:day/i/lost")
    await redis.zrem(f"{fired}expiry", "day/i/{}")
    await redis.hset(f"{fired}kept", "day/i/other", "1 1")
    await redis.hset(f"{fired}moved:1.0.2.1", "job", "[]")
    await redis.zadd(f"{fired}expiry", {"day/i/unmarked": 1})
    await redis.zadd(f"{fired}gone", {"ghost": 1})
    await redis.zadd(f"{fired}replays", {"replay/job/i/1/accepted-events/0": 1})
    await redis.hset(f"{fired}log", "high:replay/job/i/2/accepted-events/0", "1.0")
    await redis.persist("t:seen:{i}dentity")
    await redis.set("t:{0}:surprise", 1)
    await redis.set("t:{7}:log", 1)
    found = await census(redis, "t", SHARDS, 1)
    lacks = sorted((each.key, each.name) for each in found.orphans)
    assert lacks == sorted(
        [
            (f"{waiting}round:day/i/lost", ""),
            (f"{waiting}open", "day/i/}{"),
            (f"{waiting}due", "fire/day/i/}{"),
            (f"{fired}marks", "day/i/{}"),
            (f"{fired}kept", "day/i/other"),
            (f"{fired}moved:1.0.2.1", ""),
            (f"{fired}expiry", "day/i/unmarked"),
            (f"{fired}gone", "ghost"),
            (f"{fired}replays", "replay/job/i/1/accepted-events/0"),
            (f"{fired}log", "high:replay/job/i/2/accepted-events/0"),
            ("t:seen:{i}dentity", ""),
            ("t:{0}:surprise", ""),
            ("t:{7}:log", ""),
        ]
    )
    assert Orphan("t:{7}:log", "", Lack.UNKNOWN) in found.orphans
    assert not (await census(redis, "t", SHARDS, 1, most=3)).is_whole
