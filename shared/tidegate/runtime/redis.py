"""The connection to Redis, and what Redis must be for state to be safe there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from tidegate.core.errors import TidegateError


class UnsafeRedisError(TidegateError, RuntimeError):
    """Redis is set up in a way that loses state."""


@asynccontextmanager
async def connect_redis(url: str) -> AsyncIterator[Redis]:
    """A client that answers; raises UnsafeRedisError where keys could be evicted."""
    client = Redis.from_url(url, decode_responses=True, socket_timeout=30, socket_connect_timeout=5)
    try:
        await check_eviction(client)
        yield client
    finally:
        await client.aclose()


async def check_eviction(client: Redis) -> None:
    """Raises UnsafeRedisError unless `maxmemory-policy` is noeviction: other policies drop pending rounds (B125)."""
    policy = (await client.config_get("maxmemory-policy")).get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise UnsafeRedisError(
            f"Redis has maxmemory-policy {policy!r}, which drops pending work under memory pressure:"
            " run CONFIG SET maxmemory-policy noeviction"
        )
