"""`tidegate check`: whether what Redis holds agrees with Kafka, and what can be done where it does not.

A look compares what moves all the time, so only what two looks find is a difference. What is derived from a log may be
dropped, and whoever owns it builds it again (R2, T3); everything else is for a person to decide.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
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
from tidegate.runtime.census import IN_SHARD, LACKS, Lack, Orphan, census
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


class Code(StrEnum):
    """Every way in which Redis and Kafka may not agree, beside those in which a key lacks something (census.Lack)."""

    SHARD_MISSING = "shard-missing"
    SHARD_BEYOND_LOG = "shard-beyond-log"
    SHARD_BEFORE_LOG = "shard-before-log"
    SHARD_NOT_COMMITTED = "shard-not-committed"
    SHARD_FELL_BACK = "shard-fell-back"
    SHARD_NOT_FOLDED = "shard-not-folded"
    OUTBOX_ACKNOWLEDGED = "outbox-acknowledged"
    RUNS_MISSING = "runs-missing"
    RUNS_BEYOND_LOG = "runs-beyond-log"
    JOB_NOT_DEFINED = "job-not-defined"
    JOB_CREATED_AGAIN = "job-created-again"
    JOB_UNREADABLE = "job-unreadable"


_SAID: Final[Mapping[Code, str]] = {
    Code.SHARD_MISSING: "Redis holds nothing of it, and the group has acknowledged {other}",
    Code.SHARD_BEYOND_LOG: "it stands at {stands}, beyond the log's end {other}",
    Code.SHARD_BEFORE_LOG: "it stands at {stands}, and the log begins at {other}",
    Code.SHARD_NOT_COMMITTED: "there is state, but the group has no committed offset",
    Code.SHARD_FELL_BACK: "it stands at {stands}, below {other}, which was acknowledged: writes were lost",
    Code.SHARD_NOT_FOLDED: "{told}",
    Code.OUTBOX_ACKNOWLEDGED: "{count} things in its outbox lie below {other}, which was acknowledged",
    Code.RUNS_MISSING: "Redis holds none of its {other} records",
    Code.RUNS_BEYOND_LOG: "Redis has folded {stands} records, and the log ends at {other}",
    Code.JOB_NOT_DEFINED: "{count} open rounds of job {job!r} ({incarnation}), which is not defined",
    Code.JOB_CREATED_AGAIN: "{count} open rounds of job {job!r} ({incarnation}), which was created again since",
    Code.JOB_UNREADABLE: "{count} open rounds of job {job!r} ({incarnation}), whose definition cannot be read here",
}
_REPAIRS: Final[Mapping[Code | Lack, Repair]] = {
    Code.SHARD_FELL_BACK: Repair.DROP_SHARD,
    Code.SHARD_NOT_FOLDED: Repair.DROP_SHARD,
    Code.RUNS_MISSING: Repair.RESET_RUNS,
    Code.JOB_NOT_DEFINED: Repair.CLOSE_JOB,
    Code.JOB_CREATED_AGAIN: Repair.DROP_SHARD,
    Lack.ROUND: Repair.DROP_SHARD,
    Lack.OPEN: Repair.DROP_SHARD,
    Lack.DUE: Repair.DROP_SHARD,
    Lack.EXPIRY: Repair.DROP_SHARD,
    Lack.LOG: Repair.DROP_SHARD,
    Lack.MARKS: Repair.EXPIRE,
    Lack.LASTING: Repair.EXPIRE,
    Lack.MOVED: Repair.DELETE,
    Lack.KEPT: Repair.DELETE,
    Lack.GONE: Repair.DELETE,
    Lack.REPLAYS: Repair.DELETE,
}
_GAP: Final = "the {} tells of a gap and waits: `tidegate accept-gap` has it go on"
_ROLLUP_GAP: Final = _GAP.format("rollup")
_TO_DO: Final[Mapping[Code | Lack, str]] = {
    Code.SHARD_MISSING: "nothing where the rollup is building it again, as it does by itself; else "
    + _ROLLUP_GAP,
    Code.SHARD_BEYOND_LOG: _ROLLUP_GAP,
    Code.SHARD_BEFORE_LOG: _ROLLUP_GAP,
    Code.RUNS_BEYOND_LOG: _GAP.format("dispatcher"),
    Code.SHARD_NOT_COMMITTED: _ROLLUP_GAP,
    Code.OUTBOX_ACKNOWLEDGED: (
        "see that the rollup runs and is ready: it sends what is left, and the dispatcher drops what it has had"
    ),
    Code.JOB_UNREADABLE: "install the job's plugins on this machine, or run this check where they are",
    Lack.UNKNOWN: "find out what made the key, and delete it if nothing of yours needs it",
}
_LOG_IS_CUT: Final = (
    "the log no longer holds all that the shard was made of, so it is not dropped: put back a copy of Redis, or live"
    " with what is lost"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which Redis and Kafka do not agree; what it is about, and figures that may move."""

    code: Code | Lack
    shard: int | None = None
    partition: int | None = None
    """Of `contributions` where there is a shard, else of `runs`."""
    job: str = ""
    incarnation: str = ""
    key: str = ""
    """In Redis."""
    member: str = ""
    """What in the key."""
    stands: int | None = None
    """The offset at which Redis stands."""
    other: int | None = None
    """The offset that does not go with it; of a job that of `definitions` up to which this is so."""
    count: int = 0
    told: str = ""
    """What the deep look found."""
    log_is_whole: bool = True
    """Whether the log still holds all that a shard is made of."""

    @property
    def is_about(self) -> tuple[object, ...]:
        """What it is without its figures: the same in a later look."""
        about = (self.shard, self.partition, self.job, self.incarnation, self.key, self.member)
        return (self.code, *about)

    @property
    def repair(self) -> Repair | None:
        """What `--repair` does about it; None where a person has to."""
        wanted = _REPAIRS.get(self.code)
        return None if wanted is Repair.DROP_SHARD and not self.log_is_whole else wanted

    @property
    def target(self) -> str:
        """What is repaired: the number of a shard or partition, a job, or a key."""
        if self.repair is Repair.DROP_SHARD:
            return str(self.shard)
        if self.repair is Repair.RESET_RUNS:
            return str(self.partition)
        return self.job if self.repair is Repair.CLOSE_JOB else self.key

    @property
    def to_do(self) -> str:
        """What a person does about it."""
        if self.repair is not None:
            return f"`tidegate check --repair` does it: {self.repair}"
        return _TO_DO.get(self.code, _LOG_IS_CUT)

    @property
    def where(self) -> str:
        if self.key:
            return f"key {self.key!r}"
        if self.shard is None:
            return f"{RUNS}/{self.partition}"
        return f"shard {self.shard} of {CONTRIBUTIONS}/{self.partition}"

    def __str__(self) -> str:
        if isinstance(self.code, Lack):
            return f"{self.where}: {LACKS[self.code]}" + (f" {self.member!r}" if self.member else "")
        figures = {"stands": self.stands, "other": self.other, "count": self.count}
        said = _SAID[self.code].format(**figures, told=self.told, job=self.job, incarnation=self.incarnation)
        return f"{self.where}: {said}"


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
    stands = state.next_offset
    differs = partial(
        Difference, shard=state.shard, partition=partition, stands=stands, log_is_whole=beginning == 0
    )
    if stands is None:
        return [differs(code=Code.SHARD_MISSING, other=committed)] if committed else []
    found = []
    if stands > end:
        found.append(differs(code=Code.SHARD_BEYOND_LOG, other=end))
    if stands < beginning:
        found.append(differs(code=Code.SHARD_BEFORE_LOG, other=beginning))
    if committed is None:
        found.append(differs(code=Code.SHARD_NOT_COMMITTED))
    elif stands < committed:
        found.append(differs(code=Code.SHARD_FELL_BACK, other=committed))
    if committed is not None and (left := [offset for offset in state.outbox if offset < committed]):
        found.append(differs(code=Code.OUTBOX_ACKNOWLEDGED, other=committed, count=len(left)))
    return found


def runs_differences(partition: int, next_offset: int | None, end: int) -> list[Difference]:
    """How the dispatcher's fold of a partition of `runs` disagrees with that log, which ends at `end`."""
    if next_offset is None and end > 0:
        return [Difference(code=Code.RUNS_MISSING, partition=partition, other=end)]
    if next_offset is not None and next_offset > end:
        return [Difference(code=Code.RUNS_BEYOND_LOG, partition=partition, stands=next_offset, other=end)]
    return []


def orphan_differences(orphans: Iterable[Orphan], beginnings: Mapping[int, int]) -> list[Difference]:
    """What the census found; `beginnings` says by shard where its log begins."""
    return [
        Difference(
            code=each.lack,
            shard=each.shard,
            key=each.key,
            member=each.name,
            log_is_whole=each.shard is not None and beginnings.get(each.shard) == 0,
        )
        for each in orphans
    ]


async def compare(
    bootstrap: str, redis: Redis, namespace: str, view: DefinitionsView, admin: AIOKafkaAdminClient
) -> list[Difference]:
    """Everything that one look finds."""
    counts = view.installation
    assert counts is not None
    logs, runs = (
        [TopicPartition(topic, number) for number in range(counts.partitions)]
        for topic in (CONTRIBUTIONS, RUNS)
    )
    states: dict[int, ShardState] = {}
    stands: dict[TopicPartition, int | None] = {}
    # Uncommitted, since Redis may stand at the high watermark of `runs` while the read_committed end lags behind (T3).
    async with log_consumer(bootstrap, "tidegate-check", isolation="read_uncommitted") as consumer:
        # All of this moves forward: what Redis must not be behind is read before it, what it must not be beyond after.
        beginnings = await consumer.beginning_offsets(logs)
        committed = await committed_positions(admin, f"{namespace}-rollup", logs)
        for tp in logs:
            for shard in shards_of_partition(tp.partition, counts.partitions, counts.shards):
                states[shard] = await _shard_state(redis, namespace, shard, tp.partition)
        for tp in runs:
            next_offset = await redis.hget(f"{runs_prefix(namespace, tp.partition)}log", "next")
            stands[tp] = None if next_offset is None else int(next_offset)
        ends = await consumer.end_offsets([*logs, *runs])
    found: list[Difference] = []
    for shard, state in states.items():
        tp = logs[contributions_partition(shard, counts.partitions)]
        offset = committed[tp].offset if tp in committed else None
        found += shard_differences(state, tp.partition, offset, (beginnings[tp], ends[tp]))
        found += await _rounds_of_no_job(redis, namespace, shard, tp.partition, view, beginnings[tp])
    for tp in runs:
        found += runs_differences(tp.partition, stands[tp], ends[tp])
    counted = await census(redis, namespace, counts.shards, counts.partitions)
    by_shard = {
        shard: beginnings[logs[contributions_partition(shard, counts.partitions)]] for shard in states
    }
    return found + orphan_differences(counted.orphans, by_shard)


def in_both(first: Iterable[Difference], second: Iterable[Difference]) -> list[Difference]:
    """What was there before and is there still; figures may have moved."""
    known = {each.is_about for each in first}
    return [each for each in second if each.is_about in known]


async def _shard_state(redis: Redis, namespace: str, shard: int, partition: int) -> ShardState:
    prefix = shard_prefix(namespace, shard)
    # In this order: what is sent meanwhile leaves the outbox before it is acknowledged.
    fields = await redis.hkeys(f"{prefix}outbox:{partition}")
    next_offset = await redis.hget(f"{prefix}log", f"next:{partition}")
    offsets = sorted(int(str(field).partition(".")[0]) for field in fields)
    return ShardState(shard, None if next_offset is None else int(next_offset), offsets)


async def _rounds_of_no_job(
    redis: Redis, namespace: str, shard: int, partition: int, view: DefinitionsView, beginning: int
) -> list[Difference]:
    strangers: Counter[tuple[str, str]] = Counter()
    start = 0
    while names := await redis.zrange(open_key(namespace, shard), start, start + _PAGE - 1):
        start += _PAGE
        for name in names:
            job, incarnation, _ = str(name).split("/", 2)
            defined = view.job(job)
            if defined is None or defined.incarnation != incarnation:
                strangers[job, incarnation] += 1
    return [
        Difference(
            code=_why_strange(view, job),
            shard=shard,
            partition=partition,
            job=job,
            incarnation=incarnation,
            other=view.next_offset - 1,
            count=count,
            log_is_whole=beginning == 0,
        )
        for (job, incarnation), count in strangers.items()
    ]


def _why_strange(view: DefinitionsView, job: str) -> Code:
    if view.is_unreadable(job):
        return Code.JOB_UNREADABLE
    return Code.JOB_NOT_DEFINED if view.job(job) is None else Code.JOB_CREATED_AGAIN


async def repair(
    bootstrap: str,
    redis: Redis,
    namespace: str,
    view: DefinitionsView,
    wanted: Iterable[Difference],
    by: str,
    horizon_s: int,
    say: Callable[[str], None],
) -> int:
    """Do what `wanted` allows, each thing once, said before and audited after; returns how many were repaired."""
    counts = view.installation
    assert counts is not None
    at, done, repaired = int(time() * 1000), set[tuple[str, str, str]](), 0
    async with acknowledged_producer(bootstrap, "tidegate-check") as producer:
        for each in wanted:
            if each.repair is None:
                continue
            repaired += 1
            what = (each.repair.name, each.target, "" if each.repair is Repair.DROP_SHARD else each.member)
            if what in done:
                continue
            done.add(what)
            say(f"{each.where}: {each.repair}")
            if each.repair is Repair.DROP_SHARD:
                await drop_shard(redis, namespace, int(each.target), counts)
            elif each.repair is Repair.RESET_RUNS:
                # The owner finds that it stands nowhere, and makes all of it again.
                await redis.delete(f"{runs_prefix(namespace, int(each.target))}log")
            elif each.repair is Repair.CLOSE_JOB:
                assert each.other is not None
                # Of when it was looked at: a job that was created since has a later revision, and stays.
                change = DefinitionChange(job=each.target, revision=each.other)
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
                details={
                    "by": by,
                    "difference": each.code.value,
                    "repair": each.repair.name,
                    "target": each.target,
                },
            )
            await send_all(producer, audit_records([entry], counts.partitions))
    return repaired


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
