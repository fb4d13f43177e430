"""The scratch namespaces of `tidegate check --deep`: what a killed one leaves goes with the next, and nothing else."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from tidegate.runtime.census import census
from tidegate_rollup.refold import scratch

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
