"""What Redis holds, by kind of key."""

from collections import Counter
from itertools import islice
from typing import Any, Final, NamedTuple

import redis

PENDING: Final = ("round", "open")
"""The kinds that rounds which wait consist of."""
_AT_ONCE: Final = 1_000


class Held(NamedTuple):
    """Of one kind of key, or of all."""

    keys: int
    size: int
    """Bytes, with the key's own, as MEMORY USAGE counts every part of it."""


def kind_of(key: str, namespace: str) -> str:
    """A shard's keys by what follows its name, the dispatcher's together, others by their first word."""
    rest = key.removeprefix(f"{namespace}:")
    if rest.startswith("{d"):
        return "runs"
    if rest.startswith("{"):
        rest = rest.partition("}:")[2]
        return rest.partition(":")[0]
    first = rest.partition(":")[0]
    return "events seen" if first == "seen" else first


def used_memory(url: str) -> int:
    """Bytes that Redis says it uses."""
    with redis.Redis.from_url(url) as client:
        found: Any = client.info("memory")
    return int(found["used_memory"])


def held_by_kind(url: str, namespace: str) -> dict[str, Held]:
    """The largest kind first."""
    keys, sizes = Counter[str](), Counter[str]()
    with redis.Redis.from_url(url, decode_responses=True) as client:
        found = client.scan_iter(match=f"{namespace}:*", count=_AT_ONCE)
        while some := list(islice(found, _AT_ONCE)):
            with client.pipeline(transaction=False) as pipeline:
                for key in some:
                    pipeline.memory_usage(key, samples=0)
                answers = pipeline.execute()
            for key, size in zip(some, answers, strict=True):
                kind = kind_of(key, namespace)
                keys[kind] += 1
                sizes[kind] += size or 0
    return {kind: Held(keys[kind], size) for kind, size in sizes.most_common()}
