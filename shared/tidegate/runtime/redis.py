"""The connection to Redis, one server or a whole cluster of them, and what each says of its memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError, TimeoutError

ANSWER_S: Final = 30
"""How long Redis may take for an answer."""

_OPTIONS: Final[Mapping[str, Any]] = {
    "decode_responses": True,
    "socket_timeout": ANSWER_S,
    "socket_connect_timeout": 5,
}


@asynccontextmanager
async def connect_redis(url: str) -> AsyncIterator[Redis]:
    """A client of the server at `url`, or of the cluster that it says it is a node of.

    `url` may name several nodes of a cluster, `redis://user:password@one:6379,two:6379/0`: the first that answers tells
    of the others. The client of a cluster offers what Tidegate uses of Redis; keys of one call share a slot (B123).
    """
    client = await _first_that_answers(addresses(url))
    try:
        yield client
    finally:
        await client.aclose()


def addresses(url: str) -> list[str]:
    """One URL for every host that `url` names."""
    scheme, found, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    return [f"{scheme}{found}{login}{at}{host}{slash}{path}" for host in hosts.split(",")]


async def _first_that_answers(urls: list[str]) -> Redis:
    for number, url in enumerate(urls, start=1):
        client = Redis.from_url(url, **_OPTIONS)
        try:
            is_node = (await client.info("cluster")).get("cluster_enabled")
        except (RedisConnectionError, TimeoutError):
            await client.aclose()
            if number == len(urls):
                raise
        except BaseException:
            await client.aclose()
            raise
        else:
            if not is_node:
                return client
            await client.aclose()
            cluster = RedisCluster.from_url(url, **_OPTIONS)
            return cast(Redis, await cluster.initialize())
    raise AssertionError("a URL names one host at least")


@dataclass(frozen=True, slots=True)
class Memory:
    """What one server says of its memory."""

    node: str
    """host:port of a cluster's node; empty where there is one server."""
    policy: str | None
    """maxmemory-policy; None where the server tells it neither by INFO nor by CONFIG."""
    used: int = 0
    """Bytes that count towards the limit."""
    limit: int = 0
    """maxmemory in bytes, 0 for none."""


async def memory_of(client: Redis) -> list[Memory]:
    """The memory of every server that takes writes."""
    if not isinstance(client, RedisCluster):
        return [await _memory(client, "", {})]
    return [
        await _memory(cast(Redis, client), node.name, {"target_nodes": node})
        for node in client.get_primaries()
    ]


async def _memory(client: Redis, node: str, target: Mapping[str, Any]) -> Memory:
    found = await client.info("memory", **target)
    policy = found.get("maxmemory_policy")
    if policy is None:
        try:
            policy = (await client.config_get("maxmemory-policy", **target)).get("maxmemory-policy")
        except ResponseError:  # services that are managed by others often refuse CONFIG
            policy = None
    used = int(found.get("used_memory", 0)) - int(found.get("mem_not_counted_for_evict", 0))
    return Memory(node, policy, used, int(found.get("maxmemory", 0)))
