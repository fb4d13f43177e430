"""Rounds in Redis: one script call per (shard, batch), by compare-and-set on the shard's offset."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import chain
from typing import Any, NamedTuple

from redis.asyncio import Redis

from tidegate.contracts.redis_keys import due_key, open_key, round_key, shard_prefix
from tidegate.runtime.script import IN_SLICES, Call, Command, Script, Together
from tidegate_rollup.inputs import Input, script_arguments
from tidegate_rollup.outbox import OutboxItem, outbox_items

_SCRIPT = IN_SLICES + "\n".join(
    files("tidegate_rollup").joinpath(part).read_text() for part in ("apply.lua", "controls.lua", "fold.lua")
)

DUE_AT_ONCE = 1_000
"""Rounds per shard whose deadlines are looked at in one go; the next look finds the others."""

NEVER_WRITTEN = "none"
"""A key that every call declares and that never exists. While a cluster moves a shard's slot between nodes, it lets no
call begin of which a key is missing (TRYAGAIN); else one could end half done, at a round that has already moved."""


class Applied(NamedTuple):
    """The batch was folded."""

    repeats: int
    added: list[OutboxItem]


class Refused(NamedTuple):
    """The shard is not where the caller believed; nothing was folded."""

    next_offset: int | None
    """None where the shard has never been written, or was lost."""
    at: int
    outbox: list[OutboxItem]


class Batch(NamedTuple):
    """What there is to fold of one partition."""

    partition: int
    committed: int
    upto: int
    at: int
    shards: Sequence[tuple[int, int | None, Sequence[Input]]]
    """(shard, believed next offset, entries); one without entries is moved along."""


class _Fold(NamedTuple):
    partition: int
    shard: int
    believed: int | str
    upto: int | str
    at: int
    committed: int
    entries: Sequence[Input]


class RoundStore:
    """The shards of one namespace; their keys are named in tidegate.contracts.redis_keys."""

    def __init__(self, redis: Redis, namespace: str, horizon_ms: int) -> None:
        self._redis, self._namespace, self._horizon_ms = redis, namespace, horizon_ms
        self._script, self._together = Script(redis, _SCRIPT), Together(redis)

    async def peek(self, partition: int, shards: Iterable[int]) -> dict[int, Refused]:
        """Where every shard stands and what is in its outbox."""
        replies = await self._run([_Fold(partition, shard, "?", "", 0, 0, ()) for shard in shards])
        return {shard: reply for shard, reply in replies.items() if isinstance(reply, Refused)}

    async def apply(
        self,
        partition: int,
        committed: int,
        upto: int,
        at: int,
        batches: Iterable[tuple[int, int | None, Sequence[Input]]],
    ) -> dict[int, Applied | Refused]:
        """Fold one batch of a partition into its shards, given as (shard, believed next offset, entries)."""
        return await self.apply_all([Batch(partition, committed, upto, at, list(batches))])

    async def apply_all(self, batches: Iterable[Batch]) -> dict[int, Applied | Refused]:
        """Fold batches of different partitions, in one round trip.

        Every shard either takes its entries and moves to `upto`, or answers where it really stands.
        """
        return await self._run(
            [
                _Fold(partition, shard, "" if believed is None else believed, upto, at, committed, entries)
                for partition, committed, upto, at, shards in batches
                for shard, believed, entries in shards
            ]
        )

    async def revisions(self, shards: Iterable[int]) -> dict[int, dict[str, int]]:
        """The newest revision of every job that each shard has folded."""
        wanted = list(shards)
        async with self._redis.pipeline(transaction=False) as pipeline:
            for shard in wanted:
                pipeline.hgetall(shard_prefix(self._namespace, shard) + "revisions")
            found = await pipeline.execute()
        return {
            shard: {job: int(folded.partition(" ")[0]) for job, folded in of_shard.items()}
            for shard, of_shard in zip(wanted, found, strict=True)
        }

    async def due(self, shards: Iterable[int], now: int) -> list[tuple[str, str, str]]:
        """(then, round, "offset.ordinal" of its opening) of rounds whose deadlines have come by `now`, in ms."""
        wanted = list(shards)
        async with self._redis.pipeline(transaction=False) as pipeline:
            for shard in wanted:
                due = due_key(self._namespace, shard)
                pipeline.zrangebyscore(due, "-inf", now, start=0, num=DUE_AT_ONCE)
            found = await pipeline.execute()
        reached = [
            (shard, *name.split("/", 1)) for shard, names in zip(wanted, found, strict=True) for name in names
        ]
        async with self._redis.pipeline(transaction=False) as pipeline:
            for shard, _, name in reached:
                pipeline.hget(round_key(self._namespace, shard, name), "opened")
            opened = await pipeline.execute()
        return [
            (then, name, place.rpartition(".")[0])
            for (_, then, name), place in zip(reached, opened, strict=True)
            if place is not None
        ]

    async def moved(self, partition: int, shard: int, items: Sequence[OutboxItem]) -> list[list[str]] | None:
        """Fields and values in turn of rounds that wait in an outbox to be mapped again; none where one was sent.

        None where the outbox has lost one of them: the shard was set back, and what it held is nowhere but on the log.
        """
        async with self._redis.pipeline(transaction=False) as pipeline:
            for each in items:
                pipeline.hgetall(self._moved(shard, each))
            # Afterwards, since what was sent goes from here before it goes from the outbox.
            for each in items:
                pipeline.hexists(self._outbox(shard, partition), each.field)
            found = await pipeline.execute()
        rounds, is_held = found[: len(items)], found[len(items) :]
        return [list(chain.from_iterable(each.items())) for each in rounds] if all(is_held) else None

    async def confirm(self, sent: Iterable[tuple[int, int, Sequence[OutboxItem]]]) -> None:
        """Take what was acknowledged out of the outboxes, given as (partition, shard, what)."""
        commands: list[Command] = []
        for partition, shard, each in sent:
            # Before the item that names it, so that none is left over; an item without its round is no work.
            if moved := [self._moved(shard, item) for item in each if item.moved_round is not None]:
                commands.append(("DEL", *moved))
            commands.append(("HDEL", self._outbox(shard, partition), *(item.field for item in each)))
        await self._together.run(commands)

    def _outbox(self, shard: int, partition: int) -> str:
        return f"{shard_prefix(self._namespace, shard)}outbox:{partition}"

    def _moved(self, shard: int, each: OutboxItem) -> str:
        return f"{shard_prefix(self._namespace, shard)}moved:{each.field}"

    async def _run(self, folds: Sequence[_Fold]) -> dict[int, Applied | Refused]:
        # Calls that went through before Redis was restarted answer that they are not where we believe.
        replies = await self._script.run(map(self._call, folds))
        return {fold.shard: _reply(reply) for fold, reply in zip(folds, replies, strict=True)}

    def _call(self, fold: _Fold) -> Call:
        prefix = shard_prefix(self._namespace, fold.shard)
        rounds, batch, events = script_arguments(fold.entries)
        keys = [
            prefix + "log",
            self._outbox(fold.shard, fold.partition),
            prefix + "marks",
            prefix + "expiry",
            prefix + "seen",
            open_key(self._namespace, fold.shard),
            prefix + "kept",
            prefix + "revisions",
            due_key(self._namespace, fold.shard),
            prefix + "gone",
            prefix + "replays",
            *(round_key(self._namespace, fold.shard, name) for name in rounds),
            prefix + NEVER_WRITTEN,
        ]
        place = (fold.partition, fold.believed, fold.upto, fold.at, fold.committed, self._horizon_ms)
        return Call(keys, (*place, batch, events))


def _reply(reply: list[Any]) -> Applied | Refused:
    if reply[0] == 1:
        return Applied(reply[1], outbox_items(reply[2:]))
    return Refused(int(reply[1]) if reply[1] != "" else None, int(reply[2]), outbox_items(reply[3:]))
