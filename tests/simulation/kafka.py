"""Kafka as the services use it, in memory: logs with transactions and markers, groups with generations."""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Self
from zlib import crc32

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaConnectionError,
    OffsetOutOfRangeError,
    ProducerFenced,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from tests.simulation.scheduling import Calls, Process, current

ERRORS: Final = (KafkaConnectionError, RequestTimedOutError)
TRANSACTION_TIMEOUT_S: Final = 10.0


@dataclass(slots=True, eq=False)
class Transaction:
    """Open until it is ended; its records can be read when the marker of their partition has been written."""

    producer: str
    epoch: int
    begun_at: float
    outcome: str = ""
    """`commit` or `abort` once it is ended."""
    logs: "list[Log]" = field(default_factory=list)
    """Those that still need a marker."""
    offsets: "list[tuple[Group, Mapping[TopicPartition, OffsetAndMetadata], int]]" = field(
        default_factory=list
    )
    """With the order in which they were written."""


@dataclass(slots=True)
class Slot:
    """What stands at one offset: a record, or a marker."""

    record: ConsumerRecord | None
    transaction: Transaction | None
    order: int
    """Of all appends to all logs."""


class Log:
    """One partition."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp, self.slots, self.beginning = tp, list[Slot](), 0
        self.open: dict[Transaction, int] = {}
        """Transactions without a marker here yet, with their first offset."""
        self.end = 0

    @property
    def stable_end(self) -> int:
        return min(self.open.values()) if self.open else self.end

    def add(self, slot: Slot) -> None:
        self.slots.append(slot)
        self.end += 1

    def records(self, *, is_whole: bool = False) -> list[ConsumerRecord]:
        """Every committed record, in order; with `is_whole` also those that retention has removed."""
        return [
            slot.record
            for slot in self.slots[0 if is_whole else self.beginning :]
            if slot.record is not None and (slot.transaction is None or slot.transaction.outcome == "commit")
        ]


class Group:
    """Members, their partitions by the range assignor, committed offsets."""

    def __init__(self, kafka: "Kafka", name: str) -> None:
        self._kafka, self.name, self.generation = kafka, name, 0
        self.members: dict[str, Consumer] = {}
        self.assigned: dict[str, frozenset[TopicPartition]] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._written: dict[TopicPartition, int] = {}

    def join(self, consumer: "Consumer") -> None:
        consumer.member = (
            f"{self._kafka.rng.random():.9f}"  # decides the order in which partitions are given out
        )
        self.members[consumer.member] = consumer
        self._rebalance()

    def leave(self, consumer: "Consumer") -> None:
        if self.members.pop(consumer.member, None) is not None:
            self._rebalance()

    def _rebalance(self) -> None:
        self.generation += 1
        members = sorted(self.members)
        topics = sorted({topic for member in self.members.values() for topic in member.topics})
        share = -(-self._kafka.partitions // max(1, len(members)))
        self.assigned = {
            member: frozenset(
                TopicPartition(topic, number)
                for topic in topics
                for number in range(n * share, min((n + 1) * share, self._kafka.partitions))
            )
            for n, member in enumerate(members)
        }

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], written: int | None = None) -> None:
        """Of two offsets for one partition the one that was written later stays, whenever its marker comes."""
        self._kafka.progress += 1
        order = self._kafka.progress if written is None else written
        for tp, offset in offsets.items():
            if order > self._written.get(tp, -1):
                self.committed[tp], self._written[tp] = offset, order


class Kafka:
    """The broker."""

    def __init__(self, calls: Calls, rng: random.Random, partitions: int) -> None:
        self.calls, self.rng, self.partitions = calls, rng, partitions
        self.logs: dict[TopicPartition, Log] = {}
        self.groups: dict[str, Group] = {}
        self.epochs: dict[str, int] = {}
        self.unfinished: list[Transaction] = []
        """Transactions that are open or lack markers."""
        self.progress = 0
        """Rises with every record and every committed offset."""
        self.is_fencing = True
        self.is_deaf: Callable[[Process], bool] = lambda process: False
        self.watchers: list[Callable[[ConsumerRecord], None]] = []
        """Told of every record."""

    def log(self, topic: str, partition: int) -> Log:
        return self.log_of(TopicPartition(topic, partition))

    def log_of(self, tp: TopicPartition) -> Log:
        if (log := self.logs.get(tp)) is None:
            log = self.logs[tp] = Log(tp)
        return log

    def group(self, name: str) -> Group:
        if (group := self.groups.get(name)) is None:
            group = self.groups[name] = Group(self, name)
        return group

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Every committed record of a topic, partition by partition, also those that retention removed."""
        logs = [log for tp, log in sorted(self.logs.items()) if tp.topic == topic]
        return [record for log in logs for record in log.records(is_whole=True)]

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        transaction: Transaction | None = None,
    ) -> ConsumerRecord:
        if partition is None:
            partition = crc32(key or b"") % self.partitions
        log, at = self.log(topic, partition), int(self.calls.loop.now * 1000)
        size = -1 if value is None else len(value)
        record = ConsumerRecord(topic, partition, log.end, at, 1, key, value, None, len(key or b""), size, ())
        self.progress += 1
        log.add(Slot(record, transaction, self.progress))
        if transaction is not None and transaction not in log.open:
            log.open[transaction] = record.offset
            transaction.logs.append(log)
        for watch in self.watchers:
            watch(record)
        return record

    def begin(self, producer: str, epoch: int) -> Transaction:
        transaction = Transaction(producer, epoch, self.calls.loop.now)
        self.unfinished.append(transaction)
        return transaction

    def end(self, transaction: Transaction, outcome: str) -> None:
        """Decide a transaction; its markers are still to be written."""
        transaction.outcome = outcome
        if outcome == "abort":
            transaction.offsets.clear()
        if not transaction.logs and not transaction.offsets:
            self.unfinished.remove(transaction)

    def write_marker(self, transaction: Transaction) -> None:
        """One marker of an ended transaction; the offsets in it count as one more partition."""
        if transaction.offsets and (not transaction.logs or self.rng.random() < 0.5):
            group, offsets, written = transaction.offsets.pop()
            group.commit(offsets, written)
        else:
            log = transaction.logs.pop(self.rng.randrange(len(transaction.logs)))
            self.progress += 1
            log.add(Slot(None, transaction, self.progress))
            del log.open[transaction]
        if not transaction.logs and not transaction.offsets:
            self.unfinished.remove(transaction)

    def initialise(self, producer: str) -> int:
        """A new epoch of a transactional id: what its last producer had open is aborted, what it ended is finished."""
        for transaction in [each for each in self.unfinished if each.producer == producer]:
            self._finish(transaction)
        self.epochs[producer] = self.epochs.get(producer, 0) + 1
        return self.epochs[producer]

    def expire_transactions(self) -> None:
        for transaction in list(self.unfinished):
            if not transaction.outcome and self.calls.loop.now > transaction.begun_at + TRANSACTION_TIMEOUT_S:
                self.epochs[transaction.producer] += 1
                self._finish(transaction)

    def _finish(self, transaction: Transaction) -> None:
        if not transaction.outcome:
            self.end(transaction, "abort")
        while transaction in self.unfinished:
            self.write_marker(transaction)

    def expect_epoch(self, producer: str, epoch: int) -> None:
        if self.is_fencing and self.epochs[producer] != epoch:
            raise ProducerFenced()


class Consumer:
    """AIOKafkaConsumer: a member of a group, or assigned by hand."""

    def __init__(self, kafka: Kafka, group_id: str | None = None, **options: Any) -> None:
        self._kafka, self._calls = kafka, kafka.calls
        self.group = kafka.group(group_id) if group_id is not None else None
        self.process: Process = current.get()
        self._is_committed = options.get("isolation_level") == "read_committed"
        self.topics: Sequence[str] = ()
        self.member, self._generation, self._listener = "", 0, None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._paused: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._coordinator = SimpleNamespace(coordinator_id=0)
        """Always there: readiness is no part of a schedule."""

    async def start(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        if self.group is not None and self.process.is_alive:
            self.process.members.remove(self)
            self.group.leave(self)

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        assert self.group is not None
        self.topics, self._listener = topics, listener
        if self.process.is_alive:
            self.process.members.append(self)
            self.group.join(self)

    @property
    def is_behind(self) -> bool:
        """Whether the group has another generation than this member knows."""
        return self.group is not None and (
            self._generation != self.group.generation or self.member not in self.group.members
        )

    def hear(self) -> None:
        """Learn the group's generation, joining again first where it was thrown out."""
        assert self.group is not None
        assert self._listener is not None
        if self.member not in self.group.members:
            self.group.join(self)
        self._listener.on_partitions_revoked(set(self._assigned))
        self._assigned, self._generation = self.group.assigned[self.member], self.group.generation
        self._paused, self._positions = set(), {}
        self._listener.on_partitions_assigned(set(self._assigned))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned = frozenset(partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._assigned

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused.difference_update(partitions)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    def highwater(self, tp: TopicPartition) -> int | None:
        return self._kafka.log_of(tp).end

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._calls.make(  # type: ignore[no-any-return]
            "kafka", lambda: {tp: self._kafka.log_of(tp).beginning for tp in partitions}
        )

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._calls.make(  # type: ignore[no-any-return]
            "kafka", lambda: {tp: self._end(self._kafka.log_of(tp)) for tp in partitions}
        )

    def _end(self, log: Log) -> int:
        return log.stable_end if self._is_committed else log.end

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        wanted = sorted(partitions or self._assigned)
        kind = "poll" if self.group is not None else "kafka"
        return await self._calls.make(  # type: ignore[no-any-return]
            kind, lambda: self._fetch(wanted, max_records), lambda: self._has_answer(wanted)
        )

    def _readable(self, wanted: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [
            tp for tp in wanted if tp in self._positions and tp not in self._paused and tp in self._assigned
        ]

    def _has_answer(self, wanted: Sequence[TopicPartition]) -> bool:
        if self.is_behind:
            return True
        for tp in self._readable(wanted):
            log = self._kafka.log_of(tp)
            if self._positions[tp] < self._end(log):
                return True
        return False

    def _fetch(
        self, wanted: Sequence[TopicPartition], max_records: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        if self.is_behind and not self._kafka.is_deaf(self.process):
            self.hear()
            return {}
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for tp in self._readable(wanted):
            log, limit = self._kafka.log_of(tp), self._kafka.rng.choice((1, 2, 5, 50))
            position, end, records = self._positions[tp], self._end(log), list[ConsumerRecord]()
            if position < log.beginning or position > log.end:
                raise OffsetOutOfRangeError({tp: position})
            while position < end and len(records) < limit:
                slot = log.slots[position]
                position += 1
                if slot.record is None:
                    continue
                is_aborted = slot.transaction is not None and slot.transaction.outcome == "abort"
                if not (self._is_committed and is_aborted):
                    records.append(slot.record)
            self._positions[tp] = position
            if records:
                found[tp] = records
        return found

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        group = self.group
        assert group is not None

        def perform() -> None:
            if self.member not in group.members:
                raise UnknownMemberIdError()
            if self._generation != group.generation:
                raise IllegalGenerationError()
            group.commit(offsets)

        await self._calls.make("kafka", perform)


class Producer:
    """AIOKafkaProducer: what was sent goes out partition by partition, all in order or nothing of it."""

    def __init__(self, kafka: Kafka, transactional_id: str | None = None, **_: Any) -> None:
        self._kafka, self._calls, self._id, self._epoch = kafka, kafka.calls, transactional_id, 0
        self._process = current.get()
        self._buffers: dict[
            tuple[str, int | None], list[tuple[bytes | None, bytes | None, asyncio.Future[Any]]]
        ] = {}
        self._transaction: Transaction | None = None

    async def start(self) -> None:
        if self._id is not None:
            await self.initialise()

    async def initialise(self) -> None:
        assert self._id is not None
        producer = self._id
        self._epoch = await self._calls.make("kafka", lambda: self._kafka.initialise(producer))

    async def stop(self) -> None: ...

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        if partition is None:
            partition = crc32(key or b"") % self._kafka.partitions
        acknowledged: asyncio.Future[RecordMetadata] = self._calls.loop.create_future()
        place = (topic, partition)
        if place not in self._buffers:
            buffer = self._buffers[place] = []
            call = self._calls.add("kafka", lambda: self._produce(topic, partition))
            call.what = f"produce to {topic}/{partition}"
            call.future.add_done_callback(lambda done: self._acknowledge(place, buffer, done))
        self._buffers[place].append((key, value, acknowledged))
        return acknowledged

    def _produce(self, topic: str, partition: int) -> list[RecordMetadata]:
        if self._id is not None:
            self._kafka.expect_epoch(self._id, self._epoch)
            if self._transaction is not None and self._transaction.outcome:
                raise ProducerFenced()
        found = []
        for key, value, _ in self._buffers.pop((topic, partition)):
            record = self._kafka.append(topic, partition, key, value, self._transaction)
            tp = TopicPartition(topic, partition)
            found.append(RecordMetadata(topic, partition, tp, record.offset, record.timestamp, 1, 0))
        return found

    def _acknowledge(
        self,
        place: tuple[str, int],
        buffer: "list[tuple[bytes | None, bytes | None, asyncio.Future[Any]]]",
        done: "asyncio.Future[Any]",
    ) -> None:
        if self._buffers.get(place) is buffer:
            del self._buffers[place]
        futures = [future for _, _, future in buffer if not future.done()]
        if done.cancelled():
            for future in futures:
                future.cancel()
        elif (error := done.exception()) is not None:
            for future in futures:
                future.set_exception(error)
        else:
            for future, metadata in zip(futures, done.result(), strict=True):
                future.set_result(metadata)

    async def begin_transaction(self) -> None:
        assert self._id is not None
        self._transaction = self._kafka.begin(self._id, self._epoch) if self._process.is_alive else None

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        def perform() -> None:
            transaction = self._open()
            self._kafka.progress += 1
            transaction.offsets.append((self._kafka.group(group), offsets, self._kafka.progress))

        await self._calls.make("kafka", perform)

    async def commit_transaction(self) -> None:
        await self._calls.make("kafka", lambda: self._kafka.end(self._open(), "commit"))

    async def abort_transaction(self) -> None:
        await self._calls.make("kafka", lambda: self._kafka.end(self._open(), "abort"))

    def _open(self) -> Transaction:
        assert self._id is not None
        self._kafka.expect_epoch(self._id, self._epoch)
        if self._transaction is None or self._transaction.outcome:
            raise ProducerFenced()
        return self._transaction


class Admin:
    """AIOKafkaAdminClient."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    async def list_consumer_group_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        def perform() -> dict[TopicPartition, OffsetAndMetadata]:
            committed = self._kafka.group(group).committed
            return {tp: committed.get(tp, OffsetAndMetadata(-1, "")) for tp in partitions}

        return await self._kafka.calls.make("kafka", perform)  # type: ignore[no-any-return]
