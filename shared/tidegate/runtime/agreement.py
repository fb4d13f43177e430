"""`tidegate check`: whether what Redis holds agrees with Kafka, and what can be done where it does not.

A look compares what moves all the time, so only what two looks find is a difference. What is derived from a log may be
dropped, and whoever owns it builds it again (R2, T3); everything else is for a person to decide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from secrets import token_hex
from time import time
from typing import Final

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import DefinitionChange
from tidegate.contracts.definitions import Installation
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import contributions_partition, shards_of_partition
from tidegate.contracts.redis_keys import open_key, runs_prefix, shard_prefix
from tidegate.contracts.topics import CONTRIBUTIONS, RUNS
from tidegate.core.audit import AuditKind
from tidegate.runtime.census import IN_SHARD, Orphan, census
from tidegate.runtime.definitions_view import DefinitionsView
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.positions import committed_positions
from tidegate.runtime.producer import acknowledged_producer, audit_records, send_all

_PAGE: Final = 1_000
Bounds = tuple[int, int]
"""Where a log begins and ends."""

# KEYS[1] open   ARGV[1] what every key of the shard begins with   [2...] further keys, without that; the log comes last
# One call, since an owner that finds no offset begins at once to build the shard again.
_DROP: Final = """
local prefix = ARGV[1]
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  redis.call('DEL', prefix .. 'round:' .. name)
end
for n = 2, #ARGV do
  redis.call('DEL', prefix .. ARGV[n])
end
"""
_OF_SHARD: Final = tuple(kind for kind in IN_SHARD if kind not in ("log", "outbox", "round", "moved"))
"""The keys of which a shard has one and that its offset does not stand in."""


class Repair(StrEnum):
    """What can be done about a difference."""

    DROP_SHARD = "drop the shard, which the rollup then builds again from `contributions`"
    RESET_RUNS = "drop the partition's runs, which the dispatcher then builds again from `runs`"
    CLOSE_JOB = "close the job's rounds, with an audit entry for every event in them"
    DELETE = "delete it"
    EXPIRE = "have it expire"


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which Redis and Kafka do not agree."""

    where: str
    what: str
    repair: Repair | None = None
    target: str = ""
    """What to repair: the number of a shard or partition, a job, or a key."""
    member: str = ""
    """What in the key."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class ShardState:
    """Where one shard stands."""

    shard: int
    next_offset: int | None
    outbox: Sequence[int] = ()
    """Offsets of what still has to be sent."""


def shard_differences(
    state: ShardState, partition: int, committed: int | None, log: Bounds
) -> list[Difference]:
    """How a shard disagrees with the log and with what the group acknowledged."""
    beginning, end = log
    where, stands = f"shard {state.shard} of {CONTRIBUTIONS}/{partition}", state.next_offset
    repair = Repair.DROP_SHARD if beginning == 0 else None

    def differs(what: str, how: Repair | None = repair) -> Difference:
        return Difference(where, what, how, str(state.shard))

    found = []
    if stands is None:
        if committed:
            found.append(
                differs(f"Redis holds nothing of it, and the group has acknowledged {committed}", None)
            )
        return found
    if stands > end:
        found.append(differs(f"it stands at {stands}, beyond the log's end {end}"))
    if stands < beginning:
        found.append(differs(f"it stands at {stands}, and the log begins at {beginning}", None))
    if committed is None:
        found.append(differs("there is state, but the group has no committed offset", None))
    elif stands < committed:
        found.append(
            differs(f"it stands at {stands}, below {committed}, which was acknowledged: writes were lost")
        )
    if committed is not None and (left := [offset for offset in state.outbox if offset < committed]):
        what = f"{len(left)} things in its outbox lie below {committed}, which was acknowledged"
        found.append(differs(what, None))
    return found


def runs_differences(partition: int, next_offset: int | None, log: Bounds) -> list[Difference]:
    """How the dispatcher's fold of a partition of `runs` disagrees with that log."""
    _, end = log
    where = f"{RUNS}/{partition}"
    if next_offset is None and end > 0:
        return [
            Difference(where, f"Redis holds none of its {end} records", Repair.RESET_RUNS, str(partition))
        ]
    if next_offset is not None and next_offset > end:
        what = f"Redis has folded {next_offset} records, and the log ends at {end}"
        return [Difference(where, what, Repair.RESET_RUNS, str(partition))]
    return []


def orphan_differences(orphans: Iterable[Orphan], beginnings: Mapping[int, int]) -> list[Difference]:
    """What the census found; `beginnings` says by shard where its log begins."""
    found = []
    for each in orphans:
        kind = each.key.partition("}:")[2].partition(":")[0] if each.shard is not None else ""
        target, member, repair = each.key, each.name, None
        if each.shard is None:
            repair = Repair.EXPIRE if "should expire" in each.what else None
        elif kind in ("moved", "kept", "gone", "replays"):
            repair = Repair.DELETE
        elif kind == "marks":
            repair = Repair.EXPIRE
        elif beginnings.get(each.shard) == 0:
            repair, target, member = Repair.DROP_SHARD, str(each.shard), ""
        named = f" {each.name!r}" if each.name else ""
        found.append(Difference(f"key {each.key!r}", f"{each.what}{named}", repair, target, member))
    return found


async def compare(
    bootstrap: str, redis: Redis, namespace: str, view: DefinitionsView, admin: AIOKafkaAdminClient
) -> list[Difference]:
    """Everything that one look finds."""
    counts = view.installation
    assert counts is not None
    bounds = await _bounds(bootstrap, counts.partitions)
    logs = [TopicPartition(CONTRIBUTIONS, number) for number in range(counts.partitions)]
    committed = await committed_positions(admin, f"{namespace}-rollup", logs)
    found: list[Difference] = []
    for tp in logs:
        for shard in shards_of_partition(tp.partition, counts.partitions, counts.shards):
            state = await _shard_state(redis, namespace, shard, tp.partition)
            acknowledged = committed.get(tp)
            offset = None if acknowledged is None else acknowledged.offset
            found += shard_differences(state, tp.partition, offset, bounds[tp])
            found += await _rounds_of_no_job(redis, namespace, shard, view, bounds[tp][0])
    for number in range(counts.partitions):
        next_offset = await redis.hget(f"{runs_prefix(namespace, number)}log", "next")
        stands = None if next_offset is None else int(next_offset)
        found += runs_differences(number, stands, bounds[TopicPartition(RUNS, number)])
    beginnings = {
        shard: bounds[TopicPartition(CONTRIBUTIONS, contributions_partition(shard, counts.partitions))][0]
        for shard in range(counts.shards)
    }
    counted = await census(redis, namespace, counts.shards, counts.partitions)
    return found + orphan_differences(counted.orphans, beginnings)


def in_both(first: Sequence[Difference], second: Sequence[Difference]) -> list[Difference]:
    """What was there before and is there still; figures may have moved."""

    def name(each: Difference) -> tuple[str, ...]:
        return each.where, each.what.translate(_NO_DIGITS), each.member

    known = set(map(name, first))
    return [each for each in second if name(each) in known]


_NO_DIGITS: Final = str.maketrans("", "", "0123456789")


async def _bounds(bootstrap: str, partitions: int) -> dict[TopicPartition, Bounds]:
    async with log_consumer(bootstrap, "tidegate-check") as consumer:
        wanted = [TopicPartition(topic, n) for topic in (CONTRIBUTIONS, RUNS) for n in range(partitions)]
        beginnings, ends = await consumer.beginning_offsets(wanted), await consumer.end_offsets(wanted)
        return {tp: (beginnings[tp], ends[tp]) for tp in wanted}


async def _shard_state(redis: Redis, namespace: str, shard: int, partition: int) -> ShardState:
    prefix = shard_prefix(namespace, shard)
    # In this order: what is sent meanwhile leaves the outbox before it is acknowledged.
    fields = await redis.hkeys(f"{prefix}outbox:{partition}")
    next_offset = await redis.hget(f"{prefix}log", f"next:{partition}")
    offsets = sorted(int(str(field).partition(".")[0]) for field in fields)
    return ShardState(shard, None if next_offset is None else int(next_offset), offsets)


async def _rounds_of_no_job(
    redis: Redis, namespace: str, shard: int, view: DefinitionsView, beginning: int
) -> list[Difference]:
    strangers: dict[tuple[str, str], int] = {}
    start = 0
    while names := await redis.zrange(open_key(namespace, shard), start, start + _PAGE - 1):
        start += _PAGE
        for name in names:
            job, incarnation, _ = str(name).split("/", 2)
            defined = view.job(job)
            if defined is None or defined.incarnation != incarnation:
                strangers[job, incarnation] = strangers.get((job, incarnation), 0) + 1
    found = []
    for (job, incarnation), count in strangers.items():
        repair, target = Repair.CLOSE_JOB, job
        if view.job(job) is not None:
            repair, target = Repair.DROP_SHARD, str(shard)
        is_possible = repair is Repair.CLOSE_JOB or beginning == 0
        what = f"{count} open rounds of job {job!r} ({incarnation}), which is not defined"
        found.append(Difference(f"shard {shard}", what, repair if is_possible else None, target))
    return found


async def repair(
    bootstrap: str,
    redis: Redis,
    namespace: str,
    view: DefinitionsView,
    wanted: Iterable[Difference],
    by: str,
    horizon_s: int,
    say: Callable[[str], None],
) -> None:
    """Do what `wanted` allows, each thing once, said before and audited after."""
    counts = view.installation
    assert counts is not None
    at, done = int(time() * 1000), set[tuple[str, str, str]]()
    async with acknowledged_producer(bootstrap, "tidegate-check") as producer:
        for each in wanted:
            if each.repair is None or (what := (each.repair.name, each.target, each.member)) in done:
                continue
            done.add(what)
            say(f"{each.where}: {each.repair}")
            if each.repair is Repair.DROP_SHARD:
                await drop_shard(redis, namespace, int(each.target), counts)
            elif each.repair is Repair.RESET_RUNS:
                # The owner finds that it stands nowhere, and makes all of it again.
                await redis.delete(f"{runs_prefix(namespace, int(each.target))}log")
            elif each.repair is Repair.CLOSE_JOB:
                change = DefinitionChange(job=each.target, revision=view.next_offset - 1)
                await send_all(
                    producer,
                    [Outgoing(CONTRIBUTIONS, n, None, change.to_bytes()) for n in range(counts.partitions)],
                )
            elif each.repair is Repair.DELETE:
                await _delete(redis, each.target, each.member)
            else:
                await _expire(redis, each.target, each.member, horizon_s)
            entry = AuditEntry(
                id=audit_id(AuditKind.STATE_REPAIRED, token_hex(8)),
                kind=AuditKind.STATE_REPAIRED,
                service="check",
                at=at,
                message=f"{each}; repaired: {each.repair} (by {by})",
                job=each.target if each.repair is Repair.CLOSE_JOB else None,
                details={"by": by, "repair": each.repair.name, "target": each.target},
            )
            await send_all(producer, audit_records([entry], counts.partitions))


async def drop_shard(redis: Redis, namespace: str, shard: int, counts: Installation) -> None:
    """Forget a shard at once; what its log still holds is folded anew by the owner of its partition."""
    prefix = shard_prefix(namespace, shard)
    outbox = f"outbox:{contributions_partition(shard, counts.partitions)}"
    pattern = prefix + "*"  # braces mean nothing in a glob of Redis
    others = [
        name
        async for key in redis.scan_iter(match=pattern, count=_PAGE)
        if (name := str(key).removeprefix(prefix)).startswith(("round:", "moved:"))
    ]
    await redis.eval(_DROP, 1, prefix + "open", prefix, *others, *_OF_SHARD, outbox, "log")


async def _delete(redis: Redis, key: str, member: str) -> None:
    if not member:
        await redis.delete(key)
    elif key.endswith((":gone", ":replays")):
        await redis.zrem(key, member)
    else:
        await redis.hdel(key, member)


async def _expire(redis: Redis, key: str, member: str, horizon_s: int) -> None:
    if not member:
        await redis.expire(key, horizon_s)
    elif (mark := await redis.hget(key, member)) is not None:
        _, fired_at, *_ = str(mark).split(" ")
        await redis.zadd(key.removesuffix("marks") + "expiry", {member: int(fired_at)}, nx=True)
