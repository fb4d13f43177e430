"""One partition of run commands: runs in order, results in one transaction with the offset (rule T9).

Lanes work side by side. A lane does not pause its partition while a run is busy: it just asks for no more, which
leaves what was fetched in advance in place, where a pause would throw it away. Heartbeats do not depend on it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.runs import RunCommand
from tidegate.contracts.topics import RUN_EVENTS
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.positions import Position
from tidegate.runtime.transactions import PartitionTransactions
from tidegate.sdk.events import outgoing_event
from tidegate.sdk.execute import Function, Outcome, execute, labelled
from tidegate.sdk.reports import Reports, run_event

log = logging.getLogger(__name__)

COMMIT_RUNS: Final = 100
COMMIT_AFTER_S: Final = 0.1
_POLL_MS: Final = 1_000
_COMMIT_DEADLINE_S: Final = 15.0  # the broker ends a transaction after 10 s
_COMMIT_EVENTS: Final = 5_000
_LAST_WORDS_S: Final = 2.0
_STALE_AFTER_S: Final = 3_600.0


class ConsumerFailed(Exception):
    """The consumer itself is broken, not just this lane."""


class StartAgain(Exception):
    """The lane has to be started again before it goes on, as a precaution."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker does and where it reports; shared by its lanes."""

    functions: Mapping[str, Function]
    group: str
    events_topic: str
    reports: Reports


class _Finished(NamedTuple):
    """A command that is dealt with; without an outcome where it was skipped."""

    offset: int
    at: int
    command: RunCommand | None = None
    outcome: Outcome | None = None


class Lane:
    """Runs the commands of one partition from `position` on; owns `transactions`."""

    def __init__(
        self,
        tp: TopicPartition,
        consumer: AIOKafkaConsumer,
        transactions: PartitionTransactions,
        work: Work,
        position: int,
    ) -> None:
        self._tp, self._consumer, self._transactions, self._shared = tp, consumer, transactions, work
        self.position = position
        """The next offset to take."""
        self.has_committed = False
        """Whether a transaction of this lane succeeded."""
        self._finished: list[_Finished] = []
        self._some, self._due, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._draining = asyncio.Event()
        self._fresh_at = monotonic()
        self._working_ended = False
        self._working = asyncio.create_task(self._work())
        self._committing = asyncio.create_task(self._commit())
        self.ended = asyncio.create_task(self._watch())
        """Done when the lane is drained or has failed, with the error of the latter."""

    async def drain(self) -> None:
        """Finish the run at hand, take no more, commit."""
        self._draining.set()
        await asyncio.wait({self.ended})

    async def close(self) -> None:
        """Give the partition up at once: a run at hand is left, finished ones are still committed where that works.

        If the partition has a new owner, the transaction is fenced, and the new owner runs them again.
        """
        self._draining.set()
        self._working.cancel()
        await asyncio.wait({self._working}, timeout=_LAST_WORDS_S)
        await asyncio.wait({self._committing}, timeout=_LAST_WORDS_S)
        for task in (self._committing, self.ended):
            task.cancel()
        await asyncio.wait({self._committing, self.ended}, timeout=_LAST_WORDS_S)
        for task in (self._working, self._committing, self.ended):
            if task.done() and not task.cancelled():
                task.exception()  # whoever wanted to know has asked `ended`; asyncio need not complain
        await self._transactions.stop()

    async def _watch(self) -> None:
        """Ends both halves with the first error of either."""
        halves = (self._working, self._committing)
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_EXCEPTION)
            for task in halves:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        finally:
            for task in halves:
                task.cancel()

    # Running

    async def _work(self) -> None:
        try:
            while not self._draining.is_set():
                records = await self._poll()
                if records and len(self._finished) < COMMIT_RUNS:
                    self._due.clear()
                for record in records:
                    if self._draining.is_set():
                        return
                    self._finished.append(await self._run(record))
                    self._some.set()
                    if len(self._finished) >= COMMIT_RUNS:
                        self._due.set()
                    while len(self._finished) >= 2 * COMMIT_RUNS:
                        self._room.clear()
                        await self._room.wait()
                self._due.set()  # nothing at hand: results need not wait for more
        finally:
            self._working_ended = True
            self._due.set()
            self._some.set()

    async def _poll(self) -> list[ConsumerRecord]:
        """The next records, in order and each once, whatever the consumer's own position does in a rebalance."""
        polling = asyncio.ensure_future(
            self._consumer.getmany(self._tp, timeout_ms=_POLL_MS, max_records=COMMIT_RUNS)
        )
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({polling, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not polling.done():
                return []
            batch: dict[TopicPartition, list[ConsumerRecord]] = polling.result()
        except NoOffsetForPartitionError:
            return []  # a remark from before the session said where to read
        except OffsetOutOfRangeError as error:
            raise StartAgain(f"offset {self.position} cannot be read any more") from error
        except KafkaError as error:
            raise ConsumerFailed(f"{type(error).__name__}: {error}") from error
        finally:
            for task in (polling, draining):
                task.cancel()
        records = [record for record in batch.get(self._tp, ()) if record.offset >= self.position]
        if records:
            if not self._finished and monotonic() - self._fresh_at > _STALE_AFTER_S:
                # Brokers forget transactional ids that rest for days; the commit would fail after the function ran.
                raise StartAgain("the transactional ids have rested for long")
            self.position = records[-1].offset + 1
        return records

    async def _run(self, record: ConsumerRecord) -> _Finished:
        skipped = _Finished(record.offset, record.timestamp)
        where = f"{record.topic}/{record.partition}@{record.offset}"
        try:
            command = RunCommand.from_bytes(record.value or b"")
        except ValueError as error:
            log.error("run command %s cannot be read and is skipped: %s", where, error)
            return skipped
        function = self._shared.functions.get(command.job)
        if function is None:
            log.warning(
                "run command %s is for job %r, which this worker does not serve: skipped", where, command.job
            )
            return skipped
        partitions = await self._shared.reports.partitions(RUN_EVENTS)
        if not 0 <= command.run_events_partition < partitions:
            log.error(
                "run command %s names partition %d of %s, which has %d: skipped",
                where, command.run_events_partition, RUN_EVENTS, partitions,
            )  # fmt: skip
            return skipped
        await self._shared.reports.running(command)
        crash_point("worker.started")
        outcome = await execute(command, function)
        crash_point("worker.ran")
        log.info("run %s of %s %s", command.run_id, labelled(command), outcome.state)
        return _Finished(record.offset, record.timestamp, command, outcome)

    # Committing

    async def _commit(self) -> None:
        """Commits until the other half has ended and nothing is left."""
        while True:
            await self._some.wait()
            if not self._finished:
                if self._working_ended:
                    return
                self._some.clear()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMMIT_AFTER_S):
                    await self._due.wait()
            batch = self._batch()
            position = Position(batch[-1].offset + 1, batch[-1].at)
            records = [record for each in batch for record in await self._records(each)]
            async with asyncio.timeout(_COMMIT_DEADLINE_S):
                await self._transactions.commit(records, {self._tp: position.to_kafka()}, self._shared.group)
            crash_point("worker.committed")
            del self._finished[: len(batch)]
            self.has_committed, self._fresh_at = True, monotonic()
            self._room.set()

    def _batch(self) -> list[_Finished]:
        """The oldest results, at least one, few enough for one transaction."""
        batch: list[_Finished] = []
        events = 0
        for each in self._finished[:COMMIT_RUNS]:
            events += len(each.outcome.outlet_events) if each.outcome else 0
            if batch and events > _COMMIT_EVENTS:
                break
            batch.append(each)
        return batch

    async def _records(self, finished: _Finished) -> list[Outgoing]:
        command, outcome = finished.command, finished.outcome
        if command is None or outcome is None:
            return []
        topic = self._shared.events_topic
        partitions = await self._shared.reports.partitions(topic)
        return [
            run_event(command, outcome.state, outcome.error, outcome.added_key),
            *(outgoing_event(topic, partitions, event.asset, event.value) for event in outcome.outlet_events),
        ]
