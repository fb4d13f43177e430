"""`tidegate pending`: the rounds of a job that are still filling, read where the rollup keeps them.

What the keys hold stands on top of the rollup's script.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from redis.asyncio import Redis

from tidegate.contracts.contributions import JobRef
from tidegate.contracts.placement import shard_of
from tidegate.contracts.redis_keys import open_key, round_key, round_name
from tidegate.core.errors import InvalidPartitionKeyError
from tidegate.core.instants import from_ms
from tidegate.core.mappers import RollupMapper
from tidegate.definitions.routes import JobRoutes, Route, label
from tidegate.runtime.definitions_view import DefinitionsView

_MEMBER: Final = re.compile(r"m:(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class PendingAsset:
    """One asset's part of a round."""

    asset: str
    arrived: int
    expected: int
    needed: int
    """How many members the wait policy asks for."""
    missing: tuple[str, ...]
    """Members that are not in, by name, in window order."""


@dataclass(frozen=True, slots=True)
class PendingRound:
    key: str | None
    """None for the one round of a job without partitions."""
    opened_at: datetime
    """When the broker received its first member's contribution."""
    assets: tuple[PendingAsset, ...]


@dataclass(frozen=True, slots=True)
class PendingRounds:
    rounds: tuple[PendingRound, ...]
    """The first ones by key."""
    total: int


async def count_open(redis: Redis, namespace: str, shards: int, jobs: Mapping[str, str]) -> dict[str, int]:
    """How many rounds of each job are filling; jobs are given with their incarnations."""
    names = list(jobs)
    async with redis.pipeline(transaction=False) as pipeline:
        for job in names:
            for shard in range(shards):
                pipeline.zlexcount(open_key(namespace, shard), *_range_of(job, jobs[job]))
        counts = await pipeline.execute()
    return {job: sum(counts[n * shards : (n + 1) * shards]) for n, job in enumerate(names)}


async def pending_rounds(
    redis: Redis, namespace: str, shards: int, view: DefinitionsView, job: str, limit: int
) -> PendingRounds:
    """The first `limit` open rounds of `job`, ordered by key."""
    defined = view.job(job)
    incarnation = defined.incarnation if defined else ""
    async with redis.pipeline(transaction=False) as pipeline:
        for shard in range(shards):
            pipeline.zrangebylex(open_key(namespace, shard), *_range_of(job, incarnation), start=0, num=limit)
        found = await pipeline.execute()
    prefix = round_name(job, incarnation, "")
    keys = sorted(name.removeprefix(prefix) for names in found for name in names)[:limit]
    total = (await count_open(redis, namespace, shards, {job: incarnation}))[job]
    rounds = [round_key(namespace, shard_of(job, key, shards), prefix + key) for key in keys]
    async with redis.pipeline(transaction=False) as pipeline:
        for name in rounds:
            pipeline.hkeys(name)  # names only: values hold whole events
            pipeline.hmget(name, "job", "opened")
        replies = await pipeline.execute()
    described = []
    for key, name, fields, (ref, opened) in zip(keys, rounds, replies[::2], replies[1::2], strict=True):
        if ref is None:  # it fired just now
            continue
        described.append(await _describe(redis, name, view, key, fields, JobRef(*json.loads(ref)), opened))
    return PendingRounds(tuple(described), total)


def _range_of(job: str, incarnation: str) -> tuple[bytes, bytes]:
    prefix = b"[" + round_name(job, incarnation, "").encode()
    return prefix, prefix + b"\xff"  # no text in UTF-8 holds this byte


async def _describe(
    redis: Redis, name: str, view: DefinitionsView, key: str, fields: Sequence[str], ref: JobRef, opened: str
) -> PendingRound:
    present: dict[int, set[int]] = {}
    for field in fields:
        if found := _MEMBER.fullmatch(field):
            present.setdefault(int(found[1]), set()).add(int(found[2]))
    needs = await redis.hmget(name, [f"need:{asset}" for asset in range(len(ref.assets))])
    defined = view.job_at_revision(ref.id, ref.revision) or view.job(ref.id)
    routes = JobRoutes(defined.job).routes if defined else ()
    names = _member_names(routes, key)
    assets = []
    for index, asset in enumerate(ref.assets):
        members, arrived = names.get(index), present.get(index, set())
        size, needed = map(int, str(need).split()) if (need := needs[index]) else (0, 0)
        if not size:
            size = len(members) if members else 1
            needed = _needed(routes[index], size) if index < len(routes) else size
        if members is None or len(members) != size:
            members = (asset,) if size == 1 else tuple(f"member {n}" for n in range(size))
        missing = tuple(member for n, member in enumerate(members) if n not in arrived)
        assets.append(PendingAsset(asset, len(arrived), size, needed, missing))
    return PendingRound(key or None, from_ms(int(opened.rpartition(".")[2])), tuple(assets))


def _member_names(routes: Sequence[Route], key: str) -> Mapping[int, tuple[str, ...]]:
    """By asset index the names of the window's members: keys of a rollup, else what the schedule calls the asset."""
    names: dict[int, tuple[str, ...]] = {}
    for route in routes:
        if isinstance(route.mapper, RollupMapper):
            try:
                names[route.index] = route.mapper.to_upstream(key)
            except InvalidPartitionKeyError:
                continue  # the round is of an older definition
        else:
            names[route.index] = (label(route.leaf),)
    return names


def _needed(route: Route, size: int) -> int:
    return route.mapper.wait_policy.needed(size) if isinstance(route.mapper, RollupMapper) else size
