"""`tidegate check --deep`: the rounds of one partition folded anew beside those that Redis holds.

The same script folds the same log into a namespace of its own, which is dropped afterwards, or by the next look where
this one was killed. A shard is compared at the offset at which it stands; one that moves while it is read is tried
again.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from secrets import token_hex
from time import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from pydantic import ValidationError
from redis.asyncio import Redis

from tidegate.contracts.contributions import read_contributions_record
from tidegate.contracts.definitions import Installation
from tidegate.contracts.placement import shards_of_partition
from tidegate.contracts.redis_keys import due_key, open_key, round_key, shard_prefix
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.runtime.log_consumer import log_consumer
from tidegate_rollup.inputs import Input, by_shard, chunks, inputs_of
from tidegate_rollup.store import Applied, RoundStore

_TRIES: Final = 20
_PAGE: Final = 500
_ABANDONED_S: Final = 3_600
"""A scratch namespace of which nothing was heard for so long is nobody's any more."""

_LOST: Final = (
    "what was folded so far is gone from Redis: it lost writes, or this stood still for an hour and another check"
    " took it for dead. Run it again"
)

Held = dict[str, Mapping[str, Any]]
"""What a shard holds, by the name of each part."""


class CannotFoldError(RuntimeError):
    """The partition cannot be folded anew; the message says why."""


async def differences(
    bootstrap: str, redis: Redis, namespace: str, partition: int, counts: Installation, horizon_ms: int
) -> list[tuple[int, str]]:
    """(shard, what differs) of every shard of a partition; raises CannotFoldError."""
    tp = TopicPartition(CONTRIBUTIONS, partition)
    async with log_consumer(bootstrap, "tidegate-check") as consumer, scratch(redis, namespace) as own:
        if beginning := (await consumer.beginning_offsets([tp]))[tp]:
            raise CannotFoldError(f"the log begins only at offset {beginning}")
        consumer.assign([tp])
        consumer.seek(tp, 0)
        fold = _Fold(RoundStore(redis, own.namespace, horizon_ms), own, consumer, tp, counts)
        return await _compared(redis, namespace, own.namespace, fold, horizon_ms)


class Scratch:
    """A namespace for one fold.

    The sorted set `<namespace>:checks` notes when it was last in use, seconds since 1970; only what is noted there is
    ever dropped.
    """

    def __init__(self, redis: Redis, noted: str, namespace: str, now: Callable[[], float]) -> None:
        self.namespace = namespace
        self._redis, self._noted, self._now = redis, noted, now

    async def is_in_use(self) -> None:
        await self._redis.zadd(self._noted, {self.namespace: self._now()})

    async def drop(self) -> None:
        keys = [key async for key in self._redis.scan_iter(match=f"{self.namespace}:*", count=_PAGE)]
        for key in keys:
            await self._redis.delete(key)
        await self._redis.zrem(self._noted, self.namespace)  # last, so that none is forgotten half done


@asynccontextmanager
async def scratch(redis: Redis, namespace: str, now: Callable[[], float] = time) -> AsyncIterator[Scratch]:
    """A fresh scratch namespace, dropped in the end; first those go that others left behind."""
    noted = f"{namespace}:checks"
    for name in await redis.zrangebyscore(noted, "-inf", now() - _ABANDONED_S):
        await Scratch(redis, noted, str(name), now).drop()
    own = Scratch(redis, noted, f"{namespace}-check-{token_hex(8)}", now)
    await own.is_in_use()
    try:
        yield own
    finally:
        await own.drop()


class _Fold:
    """The shards of one partition in the scratch namespace."""

    def __init__(
        self,
        store: RoundStore,
        own: Scratch,
        consumer: AIOKafkaConsumer,
        tp: TopicPartition,
        counts: Installation,
    ) -> None:
        self._store, self._own, self._consumer, self.tp, self._counts = store, own, consumer, tp, counts
        self.shards = shards_of_partition(tp.partition, counts.partitions, counts.shards)
        self.next_offset, self.at = 0, 0
        self._believed: dict[int, int | None] = dict.fromkeys(self.shards)

    async def fold_to(self, upto: int) -> None:
        """Fold everything below `upto`."""
        while self.next_offset < upto:
            left = upto - self.next_offset
            records = (
                await self._consumer.getmany(self.tp, timeout_ms=200, max_records=min(left, _PAGE))
            ).get(self.tp, [])
            inputs: list[Input] = []
            for record in records:
                try:
                    read = read_contributions_record(record.value or b"")
                    inputs += inputs_of(
                        record.offset, record.timestamp, read, self.shards, self._counts.shards
                    )
                except (ValidationError, IndexError):
                    continue  # audited when it was folded first
            for chunk in chunks(inputs):
                await self._apply(chunk[-1].offset + 1, chunk[-1].at, by_shard(chunk))
            if records:
                self.next_offset, self.at = records[-1].offset + 1, records[-1].timestamp
                await self._apply(self.next_offset, self.at, {})

    async def _apply(self, upto: int, at: int, inputs: Mapping[int, list[Input]]) -> None:
        """All in silence: what lies below the committed offset is sent by nobody."""
        await self._own.is_in_use()
        batches = [(shard, self._believed[shard], inputs.get(shard, [])) for shard in self.shards]
        for shard, reply in (await self._store.apply(self.tp.partition, upto, upto, at, batches)).items():
            if not isinstance(reply, Applied):
                raise CannotFoldError(_LOST)
            self._believed[shard] = upto


async def _compared(
    redis: Redis, namespace: str, scratch: str, fold: _Fold, horizon_ms: int
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    left, tries = dict.fromkeys(fold.shards, 0), 0
    for shard in fold.shards:
        left[shard] = await _stands(redis, namespace, shard, fold) or 0
    while left:
        shard = min(left, key=lambda each: left[each])
        stands = left.pop(shard)
        if not stands:
            continue  # the plain check tells of a shard that holds nothing
        if stands < fold.next_offset:  # it fell back, or could not be read before the fold went on
            found.append((shard, f"it stands at {stands}, behind the others of its partition"))
            continue
        await fold.fold_to(stands)
        held = await _held(redis, namespace, shard)
        now = await _stands(redis, namespace, shard, fold)
        if now != stands:
            tries += 1
            if tries > _TRIES:
                raise CannotFoldError(
                    "its shards move faster than they can be read: try again when less arrives"
                )
            left[shard] = now or 0
            continue
        wanted = _lasting(await _held(redis, scratch, shard), fold.at, horizon_ms)
        # Afterwards, so that what was read is what the log gives, and no shard is dropped for what the fold lost.
        if await _stands(redis, scratch, shard, fold) != stands:
            raise CannotFoldError(_LOST)
        found += [(shard, text) for text in _told(_lasting(held, fold.at, horizon_ms), wanted)]
    return found


async def _stands(redis: Redis, namespace: str, shard: int, fold: _Fold) -> int | None:
    found = await redis.hget(f"{shard_prefix(namespace, shard)}log", f"next:{fold.tp.partition}")
    return None if found is None else int(found)


async def _held(redis: Redis, namespace: str, shard: int) -> Held:
    prefix = shard_prefix(namespace, shard)
    names = list(map(str, await redis.zrange(open_key(namespace, shard), 0, -1)))
    found: Held = {"open": dict.fromkeys(names, "")}
    for first in range(0, len(names), _PAGE):
        page = names[first : first + _PAGE]
        async with redis.pipeline(transaction=False) as pipeline:
            for name in page:
                pipeline.hgetall(round_key(namespace, shard, name))
            for name, fields in zip(page, await pipeline.execute(), strict=True):
                found[f"round {name!r}"] = fields
    for kind in ("marks", "kept", "revisions"):
        found[kind] = await _hash(redis, prefix + kind)
    keys = {"seen": prefix + "seen", "replays": prefix + "replays", "due": due_key(namespace, shard)}
    for kind, key in keys.items():
        scores: Any = await redis.zrange(key, 0, -1, withscores=True)
        found[kind] = {str(name): int(at) for name, at in scores}
    log = await _hash(redis, prefix + "log")
    found["highs"] = {name: value for name, value in log.items() if name.startswith("high:")}
    return found


async def _hash(redis: Redis, key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in (await redis.hgetall(key)).items()}


def _lasting(held: Held, at: int, horizon_ms: int) -> Held:
    """Without what has expired by `at`, which goes a share at a time."""
    since, replayed_since = at - horizon_ms, at - 8 * horizon_ms
    expired = {name for name, seen_at in held["replays"].items() if seen_at < replayed_since}

    def lasts(text: str) -> bool:
        return int(text.split("\n")[0].split(" ")[1]) >= since

    return held | {
        "marks": {name: text for name, text in held["marks"].items() if lasts(text)},
        "kept": {name: text for name, text in held["kept"].items() if lasts(text)},
        "seen": {name: fired_at for name, fired_at in held["seen"].items() if fired_at >= since},
        "replays": {name: seen_at for name, seen_at in held["replays"].items() if name not in expired},
        "highs": {
            name: high for name, high in held["highs"].items() if name.removeprefix("high:") not in expired
        },
        # Without those of jobs that were deleted, which have no routing.
        "revisions": {name: text for name, text in held["revisions"].items() if not text.endswith(" ")},
    }


def _told(held: Held, wanted: Held) -> Iterator[str]:
    """Every difference, in words."""
    for part in sorted(held.keys() | wanted.keys()):
        here, there = held.get(part, {}), wanted.get(part, {})
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                said = "missing" if name not in here else f"{here[name]!r}"
                meant = "nothing" if name not in there else f"{there[name]!r}"
                yield f"{part}: {name!r} is {said}, the log gives {meant}"
