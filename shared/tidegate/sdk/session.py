"""A worker's time as a member of its group: partitions come and go, each is worked on by a lane.

The rebalance listener only takes notes and pauses, since aiokafka fetches positions before it runs and merely logs
what it raises. The loop does the rest. A partition that stays with this worker through a rebalance keeps its lane,
so that long runs survive it: whoever had the partition in between has fenced the lane's transactional ids, and the
lane's next transaction fails instead of doing harm.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

from tidegate.contracts.topics import RUN_EVENTS
from tidegate.runtime.patience import patient
from tidegate.runtime.positions import Gap, committed_offsets, decide_start
from tidegate.runtime.topic_admin import admin_client
from tidegate.runtime.transactions import PartitionTransactions
from tidegate.sdk.execute import Function
from tidegate.sdk.lane import ConsumerFailed, Lane, StartAgain, Work
from tidegate.sdk.reports import Reports

log = logging.getLogger(__name__)

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_TOPICS_AGAIN_S: Final = 2.0
_START_DEADLINE_S: Final = 30.0
_LEAVE_DEADLINE_S: Final = 5.0
_NEVER_LEAVE_MS: Final = 24 * 3_600_000  # a busy worker polls little; its heartbeats say that it lives


@dataclass(frozen=True, slots=True)
class Options:
    """What a worker was told; see Worker."""

    bootstrap: str
    group: str
    namespace: str
    events_topic: str
    instance_id: str | None
    accept_gaps: bool
    session_timeout_ms: int
    shutdown_deadline_s: float


class LogGap(Exception):
    """Commands are gone from the log before they were read (rule E2)."""


class _Trouble:
    """When a partition that could not be started is tried again."""

    def __init__(self) -> None:
        self.wait_s = _FIRST_WAIT_S
        self.again_at = 0.0

    def later(self) -> None:
        self.again_at = asyncio.get_running_loop().time() + self.wait_s
        self.wait_s = min(self.wait_s * 2, _LONGEST_WAIT_S)


class Session(ConsumerRebalanceListener):  # type: ignore[misc]
    """One consumer with its lanes. Ends when `stopping` is set, or with the error of what is broken for all lanes."""

    def __init__(
        self,
        options: Options,
        functions: dict[str, Function],
        topics: Collection[str],
        stopping: asyncio.Event,
    ) -> None:
        self._options, self._functions = options, functions
        self._wanted, self._stopping = frozenset(topics), stopping
        self._subscribed: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._trouble: dict[TopicPartition, _Trouble] = {}
        self._to_place: set[TopicPartition] = set()
        self._wake = asyncio.Event()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance_id,
            client_id=options.group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=max(300, options.session_timeout_ms // 10),
            max_poll_interval_ms=_NEVER_LEAVE_MS,
            max_partition_fetch_bytes=9 * 1024 * 1024,
            retry_backoff_ms=20,
        )
        self._consumer = patient(consumer)

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._leave)
            await self._consumer.start()
            self._admin = await stack.enter_async_context(admin_client(self._options.bootstrap))
            reports = await stack.enter_async_context(Reports(self._options.bootstrap, self._options.group))
            self._work = Work(self._functions, self._options.group, self._options.events_topic, reports)
            stack.push_async_callback(self._close_lanes)
            while not self._stopping.is_set():
                self._wake.clear()
                if self._subscribed != self._wanted:
                    await self._subscribe()
                await self._settle()
                await self._pause_until_something_changes()
            if self._lanes:
                log.info(
                    "worker stops: finishing the runs at hand, at most %g s",
                    self._options.shutdown_deadline_s,
                )
                drains = [asyncio.create_task(lane.drain()) for lane in self._lanes.values()]
                await asyncio.wait(drains, timeout=self._options.shutdown_deadline_s)

    # Notes of the coordinator

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._consumer.pause(*assigned)
        self._to_place = set(assigned)
        self._wake.set()

    # The loop

    async def _subscribe(self) -> None:
        """Subscribe to the topics that exist, found by listing: asking for one by name creates it on some brokers."""
        existing = await self._consumer.topics()
        missing = frozenset({*self._wanted, RUN_EVENTS, self._options.events_topic} - existing)
        if missing and missing != self._missing:
            log.warning(
                "waiting for topics that do not exist yet: %s (`tidegate apply` creates that of a job with the job)",
                ", ".join(sorted(missing)),
            )
        self._missing = missing
        present = self._wanted - missing
        if present and present != self._subscribed and not missing & {RUN_EVENTS, self._options.events_topic}:
            self._consumer.subscribe(sorted(present), listener=self)
            self._subscribed = present

    async def _settle(self) -> None:
        """Make lanes and assignment agree."""
        now = asyncio.get_running_loop().time()
        to_place, self._to_place = (
            self._to_place,
            set(),
        )  # a rebalance from here on leaves notes for the next time
        assigned = set(self._consumer.assignment())
        for tp, lane in list(self._lanes.items()):
            if lane.ended.done():
                await self._bury(tp, lane)
            elif tp not in assigned:
                log.info("partition %s/%d was given away", *tp)
                await self._close(tp)
        started = [
            tp
            for tp in sorted(assigned - self._lanes.keys())
            if tp not in self._trouble or self._trouble[tp].again_at <= now
        ]
        await asyncio.gather(*(self._start(tp) for tp in started))
        for tp in to_place:
            if tp in self._lanes and tp not in started:
                await self._keep(tp)

    async def _start(self, tp: TopicPartition) -> None:
        """T2: initialise all transactional ids, which fences predecessors; then ask for the offset; then read."""
        name = f"{self._options.namespace}-{self._options.group}-{tp.topic}-{tp.partition}"
        transactions = PartitionTransactions(self._options.bootstrap, name)
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                await transactions.start()
                place = await self._place(tp)
            self._consumer.seek(tp, place)
            self._consumer.resume(tp)
        except BaseException as error:
            await transactions.stop()
            if not isinstance(error, Exception):
                raise
            if tp in self._consumer.assignment():
                self._trouble.setdefault(tp, _Trouble()).later()
                log.error(
                    "partition %s/%d cannot be started, will be tried again: %s", *tp, error or repr(error)
                )
            return
        lane = self._lanes[tp] = Lane(tp, self._consumer, transactions, self._work, place)
        lane.ended.add_done_callback(lambda _: self._wake.set())
        log.info("partition %s/%d is read from offset %d", *tp, place)

    async def _place(self, tp: TopicPartition) -> int:
        committed = await self._committed(tp)
        beginning = (await self._consumer.beginning_offsets([tp]))[tp]
        end = (await self._consumer.end_offsets([tp]))[tp]
        place = decide_start(committed, beginning, end)
        if not isinstance(place, Gap):
            return place
        if not self._options.accept_gaps:
            raise LogGap(
                f"{place.reason}; to go on from offset {beginning} start the worker with accept_gaps"
            )
        log.error("gap in %s/%d accepted: %s; going on from offset %d", *tp, place.reason, beginning)
        return int(beginning)

    async def _committed(self, tp: TopicPartition) -> int | None:
        """Not by the consumer, which takes a coordinator that does not say for one that has nothing."""
        return (await committed_offsets(self._admin, self._options.group, [tp])).get(tp)

    async def _keep(self, tp: TopicPartition) -> None:
        """Go on after a rebalance, unless another worker has committed in between."""
        lane = self._lanes[tp]
        committed = await self._committed(tp)
        if (
            committed is not None and committed > lane.position
        ):  # up to there it may be our own last transaction
            log.info("partition %s/%d was worked on elsewhere in between and is started again", *tp)
            await self._close(tp)
            self._wake.set()
        elif tp in self._consumer.assignment():
            self._consumer.seek(tp, lane.position)
            self._consumer.resume(tp)

    async def _bury(self, tp: TopicPartition, lane: Lane) -> None:
        """Give up a lane that failed; it is started again from its committed offset."""
        error = None if lane.ended.cancelled() else lane.ended.exception()
        await self._close(tp)
        if isinstance(error, ConsumerFailed):
            raise error
        if lane.has_committed or isinstance(error, StartAgain):
            self._trouble.pop(tp, None)
        if isinstance(error, StartAgain):
            log.info("partition %s/%d is started again: %s", *tp, error)
        else:
            self._trouble.setdefault(tp, _Trouble()).later()
            log.warning("partition %s/%d failed and is started again: %r", *tp, error)

    async def _close(self, tp: TopicPartition) -> None:
        lane = self._lanes.pop(tp)
        if tp in self._consumer.assignment():
            self._consumer.pause(tp)
        await lane.close()

    async def _leave(self) -> None:
        with contextlib.suppress(TimeoutError):  # the broker is gone or silent; it will notice that we are
            async with asyncio.timeout(_LEAVE_DEADLINE_S):
                await self._consumer.stop()

    async def _close_lanes(self) -> None:
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.close() for lane in lanes.values()))

    async def _pause_until_something_changes(self) -> None:
        waits: list[Coroutine[Any, Any, Any]] = [self._stopping.wait(), self._wake.wait()]
        if not self._lanes:
            waits.append(self._consumer.getmany(timeout_ms=1_000))  # brings up errors of the group
        waiting = self._consumer.assignment() - self._lanes.keys()
        again = [trouble.again_at for tp, trouble in self._trouble.items() if tp in waiting]
        timeout = max(0.01, min(again) - asyncio.get_running_loop().time()) if again else None
        if self._subscribed != self._wanted:
            timeout = min(timeout or _TOPICS_AGAIN_S, _TOPICS_AGAIN_S)
        tasks = [asyncio.create_task(wait) for wait in waits]
        try:
            done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        with contextlib.suppress(NoOffsetForPartitionError, OffsetOutOfRangeError):
            for task in done:
                task.result()
