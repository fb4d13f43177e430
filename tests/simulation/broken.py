"""Switches, each of which breaks one rule of the protocol in the services, and seeds whose schedules then go wrong.

A schedule that goes wrong only with the switch shows that the rule is needed and that the simulation would notice its
loss.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from aiokafka import ConsumerRecord, TopicPartition

import tidegate_dispatcher.decide
import tidegate_dispatcher.owner
import tidegate_dispatcher.partition
import tidegate_dispatcher.store
import tidegate_ingest.main
import tidegate_mapper.main
import tidegate_rollup.outbox
import tidegate_rollup.owner
import tidegate_rollup.store
from tests.simulation.oracle import POISON
from tests.simulation.redis import Command, Server
from tests.simulation.scheduling import Loop
from tests.simulation.world import Focus
from tidegate.contracts.contributions import read_contributions_record
from tidegate.contracts.redis_keys import round_name
from tidegate.core.audit import AuditKind
from tidegate.runtime import starting
from tidegate.runtime.positions import Highs
from tidegate.runtime.producer import audit_records, send_all
from tidegate.runtime.transactions import PartitionTransactions
from tidegate.runtime.unreadable import unreadable_record
from tidegate_dispatcher.partition import DispatcherPartition
from tidegate_ingest.store import SeenEvents
from tidegate_mapper.main import Mapper
from tidegate_rollup.inputs import Entry, inputs_of
from tidegate_rollup.owner import PartitionOwner
from tidegate_rollup.store import Batch, Refused, RoundStore

Breaking = Callable[[Callable[[], Loop]], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Switch:
    """A rule, how it is broken, and a seed from which on the first schedule that goes wrong is near."""

    says: str
    seed: int
    breaking: Breaking
    focus: Focus | None
    """The faults that it takes, where others would only delay the find."""


SWITCHES: Final[dict[str, Switch]] = {}

ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "E4": (
        "a log in memory takes records of any size",
        "tests/unit/test_ingest_decide.py::test_large_events_are_split_over_records",
    ),
    "I4": (
        "producers of events write no transactions here",
        "tests/broker/test_worker.py::test_a_worker_killed_in_mid_run_leaves_no_trace_and_no_gap",
    ),
    "T1": (
        "the groups in memory know no other assignor",
        "tests/chaos/test_kills.py::test_a_year_survives_kills",
    ),
    "T8": (
        "topics in memory are always there and take any size",
        "tests/broker/test_dispatcher.py::test_what_can_never_be_sent_is_audited_once_and_holds_nobody_up",
    ),
    "T9": (
        "workers here are no processes",
        "tests/broker/test_worker.py::test_runs_end_once_when_workers_join_and_leave",
    ),
}
"""Rules without a switch: why, and the test that covers them. T4 (counts of active runs) and T6 (timeouts, retries) are
about what no service does yet."""


def breaks(
    name: str,
    seed: int,
    targets: Sequence[str] = (),
    faults: Sequence[str] = (),
    jobs: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what breaks the rule `name`: a function that gives a context, or runs as one."""

    def register(breaking: Callable[..., Any]) -> Callable[..., Any]:
        says = (breaking.__doc__ or "").strip()
        SWITCHES[name] = Switch(says, seed, breaking, Focus(targets, faults, jobs) if faults else None)
        return breaking

    return register


def _script(old: str, new: str) -> AbstractContextManager[Any]:
    """The rollup's script with every `old` replaced."""
    text = tidegate_rollup.store._SCRIPT
    assert old in text, f"the rollup's script no longer holds {old!r}: mend this switch"
    return patch.object(tidegate_rollup.store, "_SCRIPT", text.replace(old, new))


# Everywhere


@breaks("E1", seed=19)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """The mapper and the dispatcher take repeats for new records."""
    return patch.object(Highs, "is_new", lambda *_: True)


@breaks("E1.rollup", seed=56)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """The rollup takes repeats for new contributions."""
    return _script("has_repeats[n] = not is_above(offset, ordinal, highs[n])", "has_repeats[n] = false")


@breaks("E2", seed=14)
@contextmanager
def _(_: Callable[[], Loop]) -> Iterator[None]:
    """A place that the log no longer holds is passed over, as with auto_offset_reset=earliest."""

    def decide_start(wanted: int | None, beginning: int, end: int) -> int:
        return min(max(beginning if wanted is None else wanted, beginning), end)

    with ExitStack() as stack:
        for module in (starting, tidegate_rollup.owner):
            stack.enter_context(patch.object(module, "decide_start", decide_start))
        yield


@breaks("E3", seed=1)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """The mapper counts the partitions of contributions otherwise than the rollup."""
    return patch.object(
        tidegate_mapper.main, "contributions_partition", lambda shard, count: (shard // 2) % count
    )


@breaks("E5", seed=1, targets=("mapper",), faults=("poison",))
@contextmanager
def _(_: Callable[[], Loop]) -> Iterator[None]:
    """A record that cannot be read ends the session."""
    with ExitStack() as stack:
        for module in (tidegate_mapper.main, tidegate_rollup.owner, tidegate_dispatcher.owner):
            stack.enter_context(patch.object(module, "ValidationError", KeyboardInterrupt))
        yield


# ingest and mapper


@breaks("I1", seed=10, targets=("ingest", "mapper"), faults=("kill", "fail", "depose"))
@contextmanager
def _(_: Callable[[], Loop]) -> Iterator[None]:
    """Offsets move without waiting for the outputs."""
    tasks = set()

    async def send_at_some_time(producer: Any, records: Sequence[Any]) -> None:
        tasks.add(asyncio.ensure_future(send_all(producer, records)))

    with ExitStack() as stack:
        for module in (tidegate_ingest.main, tidegate_mapper.main):
            stack.enter_context(patch.object(module, "send_all", send_at_some_time))
        yield


@breaks("I2", seed=30)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Marks of events do not say which record brought them."""
    remember = SeenEvents.remember

    async def remember_only_that(self: SeenEvents, marks: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        return await remember(self, [(identity, "somewhere@0") for identity, _ in marks])

    return patch.object(SeenEvents, "remember", remember_only_that)


@breaks("I3", seed=3)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """The mapper maps by the newest definitions that it has read."""
    make_plan = Mapper._plan
    return patch.object(Mapper, "_plan", lambda self, _: make_plan(self, self._view.next_offset))


# rollup


@breaks("R1", seed=3)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """A batch is folded wherever the shard stands."""
    return _script("(next_offset or '') ~= believed", "false")


@breaks("R1.outbox", seed=34, targets=("rollup",), faults=("kill", "depose"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """The answer where a shard stands comes without its outbox."""
    read = tidegate_rollup.store._reply

    def reply_without_outbox(reply: list[Any]) -> Any:
        made = read(reply)
        return made._replace(outbox=[]) if isinstance(made, Refused) else made

    return patch.object(tidegate_rollup.store, "_reply", reply_without_outbox)


@breaks("R2", seed=9)
@contextmanager
def _(_: Callable[[], Loop]) -> Iterator[None]:
    """A shard that was lost is taken for one that had nothing to do."""
    peek, apply = RoundStore.peek, RoundStore.apply_all
    lost: dict[tuple[RoundStore, int], int] = {}

    async def peek_hopefully(self: RoundStore, partition: int, shards: Iterable[int]) -> dict[int, Refused]:
        replies = await peek(self, partition, shards)
        known = [reply.next_offset for reply in replies.values() if reply.next_offset is not None]
        for shard, reply in replies.items():
            if known and reply.next_offset is None:
                lost[self, shard] = min(known)
                replies[shard] = reply._replace(next_offset=min(known))
        return replies

    async def apply_hopefully(self: RoundStore, batches: Iterable[Batch]) -> Any:
        taken = [
            each._replace(
                shards=[
                    (shard, None if lost.pop((self, shard), -1) == believed else believed, entries)
                    for shard, believed, entries in each.shards
                ]
            )
            for each in batches
        ]
        return await apply(self, taken)

    with (
        patch.object(RoundStore, "peek", peek_hopefully),
        patch.object(RoundStore, "apply_all", apply_hopefully),
    ):
        yield


@breaks("R3", seed=360, targets=("rollup",), faults=("kill", "lose"), jobs=("each", "plain", "both"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """The group's offset moves before what fired is sent."""
    send, commit = PartitionOwner._send, PartitionOwner.commit

    async def commit_and_send(self: PartitionOwner) -> None:
        whole, self._outbox = self._outbox, {}
        try:
            await commit(self)
        finally:
            self._outbox = whole
        await send(self)

    return patch.object(PartitionOwner, "_send", commit_and_send)


@breaks("R3.audit", seed=325, targets=("rollup",), faults=("kill", "poison"), jobs=("each", "plain"))
@contextmanager
def _(_: Callable[[], Loop]) -> Iterator[None]:
    """What cannot be read is told only once the shards have moved past it."""
    read, send = PartitionOwner._read, PartitionOwner._send
    untold: dict[PartitionOwner, list[tuple[TopicPartition, ConsumerRecord]]] = defaultdict(list)

    async def read_the_readable(
        self: PartitionOwner, tp: TopicPartition, records: list[ConsumerRecord]
    ) -> Any:
        untold[self] += [(tp, each) for each in records if each.value == POISON]
        readable = [each for each in records if each.value != POISON]
        found = await read(self, tp, readable) if readable else []
        self._times[tp.partition] = records[-1].timestamp
        return found

    async def tell_and_send(self: PartitionOwner) -> None:
        error = ValueError("poison")
        entries = [unreadable_record("rollup", tp, each, error) for tp, each in untold.pop(self, [])]
        await send_all(self._producer, audit_records(entries, self._counts.partitions))
        await send(self)

    with (
        patch.object(PartitionOwner, "_read", read_the_readable),
        patch.object(PartitionOwner, "_send", tell_and_send),
    ):
        yield


@breaks("R4", seed=14, targets=("rollup",), faults=("act", "later"), jobs=("late", "both", "again", "each"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Deadlines and what people do are about whatever round is open when they are read."""
    return _script("string.match(its_opened, '^%d+%.%d+') ~= opened", "false")


@breaks("R4.restart", seed=9, targets=("rollup",), faults=("kill", "spawn"), jobs=("late", "fails"))
@contextmanager
def _(_: Callable[[], Loop]) -> Iterator[None]:
    """Only the process that saw a round open knows of its deadline."""
    due, apply = RoundStore.due, RoundStore.apply_all
    known: dict[RoundStore, set[str]] = {}

    async def apply_and_know(self: RoundStore, batches: Iterable[Batch]) -> Any:
        given = list(batches)
        inputs = [each for batch in given for _, _, entries in batch.shards for each in entries]
        folded = [each for each in inputs if isinstance(each, Entry)]
        known.setdefault(self, set()).update(
            round_name(each.job.id, each.job.incarnation, each.contribution.key) for each in folded
        )
        return await apply(self, given)

    async def due_as_known(self: RoundStore, shards: Iterable[int], now: int) -> Any:
        return [each for each in await due(self, shards, now) if each[1] in known.get(self, ())]

    with patch.object(RoundStore, "apply_all", apply_and_know), patch.object(RoundStore, "due", due_as_known):
        yield


@breaks("R4.log", seed=2, targets=("rollup",), faults=("lose", "later"), jobs=("late", "fails"))
def _(loop: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Deadlines act by the owner's word, on a round as it is then, and are on no log."""
    append = PartitionOwner._append_deadlines

    async def act(self: PartitionOwner) -> None:
        sent: list[Any] = []

        async def keep(_: Any, records: Sequence[Any]) -> None:
            sent.extend(records)

        with patch.object(tidegate_rollup.owner, "send_all", keep):
            await append(self)
        for record in sent:
            message = read_contributions_record(record.value)
            position = self.consumer.position(TopicPartition(record.topic, record.partition)) - 1
            at = int(loop().now * 1000)
            ours = self._shards(TopicPartition(record.topic, record.partition))
            for each in inputs_of(position, at, message, ours, self._counts.shards):
                believed = self._believed[each.shard]
                if believed is not None:
                    batches = [(each.shard, believed, [each])]
                    await self._store.apply(record.partition, 0, believed, at, batches)

    return patch.object(PartitionOwner, "_append_deadlines", act)


@breaks("R6", seed=2, targets=("rollup",), faults=("change", "depose"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Contributions of an older definition count as they are."""
    return _script("elseif is_routed_alike(job.routing, folded) then", "elseif true then")


@breaks("R6.rounds", seed=3, targets=("rollup",), faults=("change",))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Rounds of an older definition go on as they are."""
    return _script("if is_routed_alike(routing, before) then", "if true then")


@breaks("R6.record", seed=2, targets=("rollup",), faults=("change",))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Nobody appends a record of the change: jobs change when the next contribution comes."""

    async def nothing(_: PartitionOwner) -> None: ...

    return patch.object(PartitionOwner, "_append_changes", nothing)


@breaks("R6.view", seed=71, targets=("rollup",), faults=("change", "lose", "roll_back", "save"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """What waited is mapped again by the newest definition that its owner has seen, not by the one that changed it."""
    look_up = PartitionOwner._look_up

    def look_up_newest(self: PartitionOwner, job_id: str, _: int) -> Any:
        return look_up(self, job_id, self._view.revisions()[job_id])

    return patch.object(PartitionOwner, "_look_up", look_up_newest)


@breaks(
    "R6.lost", seed=660, targets=("rollup",), faults=("lose", "change"), jobs=("again", "late", "quarter")
)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """A round that waits to be mapped again and is not there was sent, whatever else the shard has lost."""
    moved = RoundStore.moved

    async def whatever_is_there(self: RoundStore, partition: int, shard: int, items: Sequence[Any]) -> Any:
        found = [await moved(self, partition, shard, [each]) for each in items]
        return [each[0] if each else [] for each in found]

    return patch.object(RoundStore, "moved", whatever_is_there)


@breaks("R6.alike", seed=3, targets=("rollup",), faults=("change",))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Every change of a definition moves its rounds, whatever it changes."""
    return _script("return routing ~= '' and routing == folded.routing", "return false")


@breaks("R6.newer", seed=1407, targets=("mapper",), faults=("change", "freeze"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """An event that was mapped again takes the place of a newer one with its key."""
    return _script("return remapped and old and", "return false and")


@breaks("R5", seed=6, targets=("rollup",), faults=("lose", "freeze", "later"))
@contextmanager
def _(loop: Callable[[], Loop]) -> Iterator[None]:
    """Marks expire by the clock of the moment in which a record is folded."""
    run = Server.run

    def run_with_clock(self: Server, commands: Sequence[Command]) -> list[Any]:
        return run(self, [("SET", "clock", int(loop().now * 1000)), *commands])[1:]

    clock = "tonumber(redis.call('GET', 'clock'))"
    with patch.object(Server, "run", run_with_clock), _script("at - horizon", f"{clock} - horizon"):
        yield


@breaks("R7", seed=198)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Run ids are numbers, another one each time that a request is written."""
    numbers = count()
    return patch.object(tidegate_rollup.outbox, "run_id", lambda *_: f"{next(numbers):032x}")


@breaks("R8", seed=1)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """A round is decided on once for a batch."""
    return _script("if arrived >= needed and (", "if n == #entries and arrived >= needed and (")


# dispatcher


@breaks("T2", seed=1383, targets=("dispatcher",), faults=("depose",), jobs=("each", "both", "plain", "late"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Transactional ids belong to the process instead of the partition, so that nobody is fenced."""
    begin, numbers = PartitionTransactions.__init__, count()

    def begin_alone(self: PartitionTransactions, bootstrap: str, partition_id: str, ids: int = 2) -> None:
        begin(self, bootstrap, f"{partition_id}-{next(numbers)}", ids)

    return patch.object(PartitionTransactions, "__init__", begin_alone)


@breaks("T3", seed=55)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """What Redis holds is believed, wherever it stands."""

    async def read(self: DispatcherPartition, wanted: Any, cap: int = 0) -> Any:
        return await self._store.read(wanted, cap)

    return patch.object(DispatcherPartition, "_read", read)


@breaks("T4", seed=1)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Runs are counted record by record, whatever state they had before."""
    text = tidegate_dispatcher.store._WRITE
    assert "if before ~= '' then" in text
    return patch.object(
        tidegate_dispatcher.store, "_WRITE", text.replace("if before ~= '' then", "if false then")
    )


@breaks("T5", seed=1)
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Reports that come to another partition than their job's are dropped."""

    def decide(*arguments: Any) -> Any:
        decisions = tidegate_dispatcher.decide.decide(*arguments)
        decisions.forwarded = []
        return decisions

    return patch.object(tidegate_dispatcher.partition, "decide", decide)


@breaks("T7", seed=32, targets=("rollup",), faults=("freeze", "later"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """Run ids are forgotten after the horizon, whether or not the rollup may ask for them again."""

    def forgettable(runs: Collection[Any], horizon_ms: int, now: int, *_: Any) -> list[str]:
        return [run.run_id for run in runs if run.sent_at < now - horizon_ms]

    return patch.object(tidegate_dispatcher.owner, "forgettable", forgettable)


@breaks("T7.audit", seed=5, targets=("rollup",), faults=("later",), jobs=("each", "both", "plain"))
def _(_: Callable[[], Loop]) -> AbstractContextManager[Any]:
    """A run that is asked for again from another place is dropped without a word."""

    def decide(*arguments: Any) -> Any:
        decisions = tidegate_dispatcher.decide.decide(*arguments)
        decisions.audit = [each for each in decisions.audit if each.kind is not AuditKind.RUN_ID_MISMATCH]
        return decisions

    return patch.object(tidegate_dispatcher.partition, "decide", decide)
