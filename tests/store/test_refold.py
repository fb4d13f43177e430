"""The scratch namespaces of `tidegate check --deep`: what a killed one leaves goes with the next, and nothing else;
what one has lost is no difference."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from redis.asyncio import Redis

from tidegate.contracts.definitions import Installation
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.core.rounds import HORIZON_MS
from tidegate.runtime.census import census
from tidegate_rollup.refold import CannotFoldError, Scratch, _compared, _Fold, scratch
from tidegate_rollup.store import RoundStore

pytestmark = pytest.mark.parametrize("redis_url", ["real"], indirect=True)
HOUR_S = 3_600


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        await client.flushall()
        yield client


async def test_b105_what_a_killed_check_left_goes_an_hour_later_and_nothing_of_others(redis: Redis) -> None:
    now = 1_700_000_000.0
    # The third is named like a scratch namespace, and is none that a check has made.
    others = ["t:{0}:log", "t-check:{0}:log", "t-check-0123456789abcdef:{0}:log"]
    for key in others:
        await redis.hset(key, "next:0", "1")

    async def stand() -> set[str]:
        return {str(key) async for key in redis.scan_iter("*")} - set(others) - {"t:checks"}

    killed, slow = scratch(redis, "t", lambda: now), scratch(redis, "t", lambda: now)
    dead, alive = await killed.__aenter__(), await slow.__aenter__()
    for each in (dead, alive):
        await redis.hset(f"{each.namespace}:{{0}}:log", "next:0", "1")
        await redis.hset(f"{each.namespace}:{{0}}:round:a/b/c", "opened", "0.0.1")
    assert (await census(redis, "t", 1, 1)).orphans == []

    now += HOUR_S - 1
    await alive.is_in_use()
    async with scratch(redis, "t", lambda: now):
        assert len(await stand()) == 4, "an hour has not passed"
    now += 2
    async with scratch(redis, "t", lambda: now) as third:
        await redis.hset(f"{third.namespace}:{{0}}:log", "next:0", "1")
        assert {key.partition(":")[0] for key in await stand()} == {alive.namespace, third.namespace}
    assert {key.partition(":")[0] for key in await stand()} == {alive.namespace}
    await slow.__aexit__(None, None, None)
    assert await stand() == set()
    assert await redis.exists("t:checks") == 0
    assert await redis.exists(*others) == len(others)
    await killed.__aexit__(None, None, None)  # finds nothing any more


class _Empty(_Fold):
    """Folds a log that brings no round anything; `lost` keys of the scratch namespace go as soon as it has."""

    def __init__(self, redis: Redis, own: Scratch, lost: str) -> None:
        counts, nothing = Installation(partitions=1, shards=1), Any  # no consumer, since nothing is read
        store = RoundStore(redis, own.namespace, HORIZON_MS)
        super().__init__(store, own, nothing, TopicPartition(CONTRIBUTIONS, 0), counts)  # type: ignore[arg-type]
        self._redis, self._lost = redis, lost

    async def fold_to(self, upto: int) -> None:
        self.next_offset = upto
        await self._apply(upto, 0, {})
        await self._redis.delete(f"{self._own.namespace}:{{0}}:{self._lost}")


@pytest.mark.parametrize(("lost", "raises"), [("nothing", False), ("log", True)])
async def test_a_fold_that_redis_lost_is_compared_with_nothing(redis: Redis, lost: str, raises: bool) -> None:
    """Else every shard of the partition would differ, and be dropped."""
    await RoundStore(redis, "t", HORIZON_MS).apply(0, 7, 7, 0, [(0, None, [])])
    await redis.hset("t:{0}:revisions", "job", "3 routing")  # what the log does not give
    async with scratch(redis, "t") as own:
        compared = _compared(redis, "t", own.namespace, _Empty(redis, own, lost), HORIZON_MS)
        if raises:
            with pytest.raises(CannotFoldError, match="is gone from Redis"):
                await compared
        else:
            assert await compared == [(0, "revisions: 'job' is '3 routing', the log gives nothing")]
