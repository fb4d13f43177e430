"""Reading batches as a member of a consumer group, from places that the service decides itself.

aiokafka fetches positions before the rebalance listener runs and only logs what the listener raises, so the listener
just takes notes and pauses; the loop does the rest on its next poll.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Self

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from tidegate.runtime import metrics
from tidegate.runtime.patience import patient
from tidegate.runtime.positions import Gap, Position
from tidegate.runtime.settings import Settings
from tidegate.runtime.state import ServiceState
from tidegate.runtime.unreadable import stand_in

log = structlog.get_logger()

Batch = dict[TopicPartition, list[ConsumerRecord]]
Start = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int | Gap]]]
"""Given the partitions that are now ours: where to read each, or why it cannot be read."""

_LOST_MEMBERSHIP = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
_GAP_RECHECK_S = 5.0
_LAG_EVERY_S = 0.25
_COMMIT_EVERY_S = 0.1
"""A commit costs the member and the broker as much as a batch of a few records, and half of the time that it takes."""
_BATCH_BYTES = 1024 * 1024
"""A batch is worked on within a fraction of the session timeout. What was fetched beyond it is the next one: records of
inner topics hold up to some hundred entries each, and a member that is taken for dead with its batch begins it anew."""


class BatchConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """A group member that reads nothing before `start` has said where."""

    def __init__(
        self, topics: Sequence[str], group: str, settings: Settings, state: ServiceState, start: Start
    ) -> None:
        self._topics, self._settings, self._state, self._start = topics, settings, state, start
        consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.kafka,
            group_id=group,
            client_id=group,
            group_instance_id=f"{group}-{settings.instance_id}" if settings.instance_id else None,  # KIP-345
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=max(300, settings.session_timeout_ms // 10),
            max_poll_interval_ms=300_000,
            fetch_max_wait_ms=settings.poll_wait_ms,
            fetch_max_bytes=32 * 1024 * 1024,
            max_partition_fetch_bytes=9 * 1024 * 1024,
            retry_backoff_ms=20,
            metadata_max_age_ms=10_000,  # public topics may grow (E3), and nobody reads a new partition before
        )
        self._consumer = patient(consumer)
        self._must_start = False
        self._gaps: dict[TopicPartition, str] = {}
        self._gaps_checked = 0.0
        self._rest: Batch = {}
        """What was fetched and not returned yet."""
        self._positions: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, Position] = {}
        """What is done with, and not committed yet."""
        self._committed_at = self._lag_noted_at = 0.0
        self._epoch = self._polled_epoch = 0
        """The first rises whenever partitions come or go; what was polled under another may belong to somebody else."""

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        self._consumer.subscribe(list(self._topics), listener=self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.stop()

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._epoch += 1
        self._let_go()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._epoch += 1
        self._consumer.pause(*assigned)
        self._must_start = True
        self._let_go()
        metrics.REBALANCES.inc()
        self._state.block("assignment", "partitions were assigned and are being started")

    @property
    def started(self) -> set[TopicPartition]:
        """The partitions that are being read: ours, started, without a gap."""
        return set(self._positions) & set(self._consumer.assignment())

    def restart(self) -> None:
        """Ask `start` again where to read every partition, on the next poll."""
        self._must_start = True
        self._let_go()

    def _let_go(self) -> None:
        """Forget how far partitions were read, what was fetched of them beyond that, and what was to be committed."""
        self._positions.clear()
        self._rest.clear()
        self._done.clear()

    @property
    def gaps(self) -> Mapping[TopicPartition, str]:
        """Partitions that are not read, with the reason."""
        return self._gaps

    async def poll(self) -> Batch:
        """The next records of started partitions, about 1 MiB at most; {} when there were none for `poll_wait_ms`."""
        self._state.step()
        self._polled_epoch = self._epoch
        if self._must_start or (self._gaps and monotonic() - self._gaps_checked > _GAP_RECHECK_S):
            await self._start_assigned()
        try:
            batch = self._rest or await self._consumer.getmany(
                timeout_ms=self._wait_ms(), max_records=self._settings.batch_records
            )
        except UnicodeDecodeError as error:
            log.warning("record_undecodable", error=str(error))
            batch = await self._poll_around_undecodable()
        except (NoOffsetForPartitionError, OffsetOutOfRangeError) as error:
            # The listener has not run yet for a partition without a stored offset, or retention overtook us.
            log.debug("position_lost", error=str(error))
            self._must_start = True
            return {}
        batch, self._rest = parted(batch, _BATCH_BYTES)
        started = {tp: records for tp, records in batch.items() if tp in self._positions}
        for tp, records in started.items():
            self._positions[tp] = records[-1].offset + 1
            metrics.RECORDS_READ.labels(tp.topic).inc(len(records))
        await self._note_lag(started)
        self._note_coordinator()
        return started

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read `tp` from `offset` next."""
        self._positions[tp] = offset
        self._consumer.seek(tp, offset)

    def position(self, tp: TopicPartition) -> int:
        """The offset after the last record that `poll` returned of a started partition."""
        return self._positions[tp]

    async def commit(self, positions: Mapping[TopicPartition, Position]) -> bool:
        """Commit; False where partitions have come or gone since the poll: whoever has them now reads them again."""
        if self._epoch != self._polled_epoch:
            return False
        try:
            await self._consumer.commit({tp: position.to_kafka() for tp, position in positions.items()})
        except _LOST_MEMBERSHIP as error:
            log.info("commit_refused", error=type(error).__name__)
            return False
        return True

    def done(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Have `commit_done` commit these; what is read again since they were not must be known as repeats."""
        if self._epoch == self._polled_epoch:
            self._done.update(positions)

    async def commit_done(self, *, now: bool = False) -> bool:
        """Commit what is `done`, unless that was the case a moment ago; whether it is committed now."""
        if not self._done or (not now and monotonic() - self._committed_at < _COMMIT_EVERY_S):
            return False
        self._committed_at = monotonic()
        positions, self._done = self._done, {}
        return await self.commit(positions)

    def _wait_ms(self) -> int:
        """How long to wait for records, with something to commit soon."""
        wait_ms = self._settings.poll_wait_ms
        return min(wait_ms, int(_COMMIT_EVERY_S * 1000)) if self._done else wait_ms

    async def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The beginning and the end of each log."""
        beginnings = await self._consumer.beginning_offsets(list(partitions))
        ends = await self._consumer.end_offsets(list(partitions))
        return {tp: (beginnings[tp], ends[tp]) for tp in partitions}

    async def _start_assigned(self) -> None:
        epoch, starting = self._epoch, set(self._consumer.assignment())
        self._rest.clear()
        self._gaps_checked = monotonic()
        self._must_start = False
        try:
            places = await self._start(starting)
        except BaseException:
            self._must_start = True
            raise
        if epoch != self._epoch:
            return
        self._gaps.clear()
        for tp, place in places.items():
            if isinstance(place, Gap):
                self._gaps[tp] = place.reason
                log.error("log_gap", topic=tp.topic, partition=tp.partition, reason=place.reason)
                self._consumer.pause(tp)
                self._consumer.seek(
                    tp, place.beginning
                )  # one partition without a position would stop every poll
            else:
                self.seek(tp, place)
                self._consumer.resume(tp)
        self._state.unblock("assignment")
        self._state.unblock("session")
        self._state.lag.clear()
        if self._gaps:
            self._state.block(
                "gap", "; ".join(f"{tp.topic}/{tp.partition}: {why}" for tp, why in self._gaps.items())
            )
        else:
            self._state.unblock("gap")
        started = sorted(f"{tp.topic}/{tp.partition}@{place}" for tp, place in places.items())
        log.info("partitions_started", partitions=started)

    async def _poll_around_undecodable(self) -> Batch:
        """The records before one that aiokafka cannot decode (a header name that is not UTF-8), then its stand-in.

        The error names no partition, and the records of others that were taken out for the same answer are lost with
        it: so every partition is read again from its position, on its own, with ever fewer records.
        """
        batch: Batch = {}
        for tp, position in self._positions.items():
            self._consumer.seek(tp, position)
        for tp, position in list(self._positions.items()):
            limit = self._settings.batch_records
            while tp not in batch and (self._consumer.highwater(tp) or position + 1) > position:
                try:
                    found = await self._consumer.getmany(
                        tp, timeout_ms=self._settings.poll_wait_ms, max_records=limit
                    )
                    batch[tp] = found.get(tp, [])
                except UnicodeDecodeError:
                    if limit == 1:
                        # Past the markers before it, which no public call tells.
                        offset = self._consumer._fetcher._records[tp]._partition_records.next_fetch_offset
                        self._consumer.seek(tp, offset + 1)
                        batch[tp] = [stand_in(tp, offset)]
                    limit = max(1, limit // 2)
        return {tp: records for tp, records in batch.items() if records}

    def _note_coordinator(self) -> None:
        """Not ready while Kafka is away, which a member without work notices by its heartbeats alone."""
        if self._consumer._coordinator.coordinator_id is None:
            self._state.block("kafka", "no broker answers as the coordinator of the group")
        else:
            self._state.unblock("kafka")

    async def _note_lag(self, polled: Collection[TopicPartition]) -> None:
        """Of what was polled, and now and then of all: of all partitions it takes longer than a batch of one record."""
        is_due = not polled or monotonic() - self._lag_noted_at > _LAG_EVERY_S
        if is_due:
            self._lag_noted_at = monotonic()
        positions = self._positions if is_due else {tp: self._positions[tp] for tp in polled}
        for tp, position in list(positions.items()):
            high, passed = self._consumer.highwater(tp), 0
            if high is not None and position < high and tp not in self._rest:
                # What follows may be markers of transactions, which are passed over without being records.
                with contextlib.suppress(IllegalStateError):
                    passed = await self._consumer.position(tp)
            if high is not None:
                self._state.set_lag(tp.topic, tp.partition, max(0, high - max(position, passed)))


def parted(batch: Batch, most_bytes: int) -> tuple[Batch, Batch]:
    """The beginning of every partition's records, together `most_bytes` or one record of each; and the rest."""
    share = most_bytes // max(1, len(batch))
    beginnings: Batch = {}
    rest: Batch = {}
    for tp, records in batch.items():
        size = count = 0
        for each in records:
            size += len(each.key or b"") + len(each.value or b"")
            if count and size > share:
                break
            count += 1
        beginnings[tp] = records[:count]
        if count < len(records):
            rest[tp] = records[count:]
    return beginnings, rest
