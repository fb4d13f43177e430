"""Copies of keys in Redis, put back later: what a failover does that rolls back acknowledged writes."""

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

Copy = Mapping[str, Mapping[Any, Any]]
"""Hashes and sorted sets by key."""


async def copy_keys(redis: Redis, pattern: str) -> Copy:
    """The hashes and sorted sets whose names match, but those that go meanwhile; `redis` decodes responses."""
    found: dict[str, dict[Any, Any]] = {}
    async for key in redis.scan_iter(match=pattern, count=1_000):
        kind = await redis.type(key)
        if kind == "hash":
            found[key] = await redis.hgetall(key)
        elif kind != "none":
            assert kind == "zset", (key, kind)
            scored: list[Any] = await redis.zrange(key, 0, -1, withscores=True)
            found[key] = dict(scored)
    return {key: content for key, content in found.items() if content}


async def put_back(redis: Redis, pattern: str, copy: Copy) -> None:
    """Make everything under `pattern` what it was when the copy was taken, in one transaction."""
    now = [key async for key in redis.scan_iter(match=pattern, count=1_000)]
    async with redis.pipeline(transaction=True) as pipeline:
        if now:
            pipeline.delete(*now)
        for key, content in copy.items():
            if isinstance(next(iter(content.values())), str):
                pipeline.hset(key, mapping=dict(content))
            else:
                pipeline.zadd(key, dict(content))
        await pipeline.execute()
