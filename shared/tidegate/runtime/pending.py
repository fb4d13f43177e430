"""The rounds of a job that are still filling, read where the rollup keeps them.

What the keys hold stands on top of the rollup's script.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from redis.asyncio import Redis

from tidegate.contracts.contributions import JobRef
from tidegate.contracts.placement import shard_of
from tidegate.contracts.redis_keys import due_key, marks_key, open_key, round_key, round_name
from tidegate.core.instants import from_ms
from tidegate.definitions.progress import WindowCount, window_count
from tidegate.definitions.routes import JobRoutes
from tidegate.runtime.definitions_view import DefinitionsView

_MEMBER: Final = re.compile(r"m:(\d+):(\d+)")
_EVENT: Final = re.compile(r"[mx]:(\d+):(\d+)(?::|$)")
_THEN: Final = ("fire", "fail", "drop")


@dataclass(frozen=True, slots=True)
class PendingRound:
    """A round that is filling."""

    key: str | None
    """None for the one round of a job without partitions."""
    opened_at: datetime
    """When the broker received its first member's contribution."""
    assets: tuple[WindowCount, ...]


@dataclass(frozen=True, slots=True)
class PendingRounds:
    """What a job is waiting for."""

    rounds: tuple[PendingRound, ...]
    """The first ones by key."""
    total: int
    """How many there are."""


class WaitingEvent(NamedTuple):
    """An event in an open round."""

    asset: int
    """Index of the asset in the job's condition."""
    member: int
    key: str | None
    id: str
    source: str
    at: int
    """When the broker received it, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class RoundState:
    """All that Redis says of one (job, downstream key)."""

    open: PendingRound | None = None
    """The round that is filling."""
    revision: int | None = None
    """The definition that the open round was begun by, as its offset."""
    events: tuple[WaitingEvent, ...] = ()
    deadline: tuple[str, datetime] | None = None
    """What happens to the open round, and when."""
    fired: tuple[int, datetime] | None = None
    """Generation and time of the last firing, while it is remembered (R5); generation 0 where a deadline dropped it."""


async def round_state(
    redis: Redis, namespace: str, shards: int, view: DefinitionsView, job: str, key: str
) -> RoundState:
    """What is there of the round of a downstream key; empty for the one round of a job without partitions."""
    defined = view.job(job)
    shard = shard_of(job, key, shards)
    name = round_name(job, defined.incarnation if defined else "", key)
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.hgetall(round_key(namespace, shard, name))
        for then in _THEN:
            pipeline.zscore(due_key(namespace, shard), f"{then}/{name}")
        pipeline.hget(marks_key(namespace, shard), name)
        fields, *due, mark = await pipeline.execute()
    fired = None
    if mark is not None:
        generation, at, *_ = mark.split(" ", 2)
        fired = (int(generation), from_ms(int(at)))
    if not fields:
        return RoundState(fired=fired)
    ref = JobRef(*json.loads(fields["job"]))
    opened = fields["opened"]
    described = await _describe(
        redis, round_key(namespace, shard, name), view, key, list(fields), ref, opened
    )
    deadlines = [(at, then) for at, then in zip(due, _THEN, strict=True) if at is not None]
    first = min(deadlines, default=None)
    return RoundState(
        described,
        ref.revision,
        tuple(sorted(_waiting_events(fields), key=lambda one: (one.asset, one.member, one.key or ""))),
        None if first is None else (first[1], from_ms(int(first[0]))),
        fired,
    )


def _waiting_events(fields: Mapping[str, str]) -> Iterator[WaitingEvent]:
    for field, value in fields.items():
        if found := _EVENT.match(field):
            _, key, event_id, source, at, *_ = json.loads(f"[{value}]")
            yield WaitingEvent(int(found[1]), int(found[2]), key, event_id, source, at)


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
    assets = []
    for index, (asset, need) in enumerate(zip(ref.assets, needs, strict=True)):
        route = routes[index] if index < len(routes) else None
        window = None
        if need:
            size, needed = map(int, str(need).split())
            window = (size, needed)
        assets.append(window_count(asset, route, key, present.get(index, ()), window))
    return PendingRound(key or None, from_ms(int(opened.rpartition(".")[2])), tuple(assets))
