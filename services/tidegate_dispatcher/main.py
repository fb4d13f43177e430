"""The dispatcher process: settings, connections, the loop; nothing else."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic, time

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from pydantic import ValidationError
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.runs import RunEvent, RunRequest, RunRequestBatch
from tidegate.contracts.topics import CONTRIBUTIONS, RUN_EVENTS, RUN_REQUESTS
from tidegate.definitions import Job
from tidegate.runtime import metrics
from tidegate.runtime.consumer import Batch, BatchConsumer
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.definitions_view import DefinitionsView, definitions_view
from tidegate.runtime.positions import Gap, Highs, Position, committed_positions, partition_numbers, source_of
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.service import serve
from tidegate.runtime.settings import Settings
from tidegate.runtime.starting import start_from_committed
from tidegate.runtime.state import ServiceState
from tidegate.runtime.topic_admin import admin_client, check_installation, message_limits
from tidegate.runtime.unreadable import unreadable_record
from tidegate_dispatcher.decide import SERVICE, Requested, Surroundings, commands_topic, forgettable
from tidegate_dispatcher.partition import DispatcherPartition

FORGET_EVERY_S = 30.0
TOPICS_KNOWN_FOR_S = 30.0
INPUTS_PER_TRANSACTION = 500
"""A transaction must end within 10 s, on a busy machine too; a record of the rollup holds up to some hundred more."""


@dataclass(slots=True)
class _Share:
    """What one transaction takes in."""

    inputs: list[Requested | RunEvent] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    offsets: dict[TopicPartition, Position] = field(default_factory=dict)


class Dispatcher:
    """The partitions that the group gave to this process."""

    def __init__(
        self,
        settings: Settings,
        state: ServiceState,
        view: DefinitionsView,
        admin: AIOKafkaAdminClient,
        redis: Redis,
    ) -> None:
        assert view.installation is not None
        self._settings, self._view, self._admin, self._redis = settings, view, admin, redis
        self._partitions = view.installation.partitions
        self._group = f"{settings.namespace}-dispatcher"
        self.consumer = BatchConsumer([RUN_REQUESTS, RUN_EVENTS], self._group, settings, state, self._start)
        self._owned: dict[int, DispatcherPartition] = {}
        self._positions: dict[TopicPartition, Position] = {}
        self._highs: dict[int, Highs] = {}
        self._limits: dict[str, int] = {}
        self._limits_at = -TOPICS_KNOWN_FOR_S
        self._forgot_at = monotonic()

    async def step(self) -> None:
        """One batch from poll to committed."""
        self._view.raise_if_broken()
        polled = await self.consumer.poll()
        began = monotonic()
        if polled:
            crash_point("dispatcher.read")
            numbers = sorted({tp.partition for tp in polled})
            # Every partition comes to its own end before the first error is passed on.
            results = await asyncio.gather(
                *(self._process(number, polled) for number in numbers), return_exceptions=True
            )
            for error in filter(None, results):
                raise error
            metrics.BATCH_SECONDS.observe(monotonic() - began)
        if began - self._forgot_at > FORGET_EVERY_S:
            self._forgot_at = began
            await self._forget()

    async def close(self) -> None:
        for owned in self._owned.values():
            await owned.close()
        self._owned.clear()

    async def _start(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Gap]:
        """Fence, then ask for offsets, then catch up with `runs` (rule T2)."""
        await self.close()
        numbers = partition_numbers(partitions, RUN_REQUESTS)
        if numbers != partition_numbers(partitions, RUN_EVENTS):
            reason = f"run-requests and run-events were not assigned together: {sorted(partitions)}"
            return dict.fromkeys(partitions, Gap(reason))
        self._owned = {
            number: DispatcherPartition(number, self._partitions, self._settings, self._redis, self._group)
            for number in sorted(numbers)
        }
        await asyncio.gather(*(owned.fence() for owned in self._owned.values()))
        crash_point("dispatcher.fenced")
        lost = await self._without_offsets(partitions)
        places, self._positions = await start_from_committed(
            self.consumer, self._admin, self._redis, self._settings, self._group, partitions, lost
        )
        self._highs = {
            tp.partition: Highs(position.highs)
            for tp, position in self._positions.items()
            if tp.topic == RUN_REQUESTS
        }
        await asyncio.gather(*(owned.catch_up() for owned in self._owned.values()))
        return places

    async def _without_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Why not to read partitions whose offsets are gone though runs exist: it could repeat runs long forgotten."""
        committed = await committed_positions(self._admin, self._group, partitions)
        new = [tp for tp in partitions if tp not in committed]
        with_runs = {
            number for number in {tp.partition for tp in new} if await self._owned[number].has_runs()
        }
        reason = (
            f"`runs` holds runs, but group {self._group!r} has no committed offset: it expired or was deleted"
        )
        return {tp: reason for tp in new if tp.partition in with_runs}

    async def _process(self, number: int, polled: Batch) -> None:
        """Decide on what was polled of one partition, a bounded share in each transaction."""
        share = _Share()
        for topic in (RUN_REQUESTS, RUN_EVENTS):
            tp = TopicPartition(topic, number)
            read = self._requests if topic == RUN_REQUESTS else self._events
            for record in polled.get(tp, ()):
                try:
                    share.inputs += read(number, record)
                except ValidationError as error:
                    share.audit.append(unreadable_record(SERVICE, tp, record, error))
                share.offsets[tp] = self._position_after(tp, record)
                if len(share.inputs) >= INPUTS_PER_TRANSACTION:
                    await self._commit(number, share)
                    share = _Share()
        if share.offsets:
            await self._commit(number, share)

    async def _commit(self, number: int, share: "_Share") -> None:
        requests = [each for each in share.inputs if isinstance(each, Requested)]
        await self._view.wait_for(max((each.request.revision for each in requests), default=-1) + 1)
        await self._learn_topics(requests)
        await self._owned[number].process(
            share.inputs, share.audit, share.offsets, self._surroundings(number)
        )
        self._positions.update(share.offsets)

    def _requests(self, number: int, record: ConsumerRecord) -> list[Requested]:
        batch = RunRequestBatch.from_bytes(record.value or b"")
        metrics.ENTRIES_READ.labels(RUN_REQUESTS).inc(len(batch.requests))
        highs = self._highs[number]
        new = [each for each in batch.requests if highs.is_new(batch.source, each.offset, each.ordinal)]
        metrics.REPEATS_DROPPED.labels(RUN_REQUESTS).inc(len(batch.requests) - len(new))
        return [Requested(batch.source, each) for each in new]

    def _events(self, number: int, record: ConsumerRecord) -> list[RunEvent]:
        metrics.ENTRIES_READ.labels(RUN_EVENTS).inc()
        return [RunEvent.from_bytes(record.value or b"")]

    def _position_after(self, tp: TopicPartition, record: ConsumerRecord) -> Position:
        highs = self._highs[tp.partition].snapshot() if tp.topic == RUN_REQUESTS else {}
        return Position(record.offset + 1, record.timestamp, highs, self._positions[tp].incarnation)

    def _surroundings(self, number: int) -> Surroundings:
        return Surroundings(number, int(time() * 1000), self._job_of, self._limits.get)

    def _job_of(self, request: RunRequest) -> Job | None:
        defined = self._view.job(request.job)
        if defined is None or defined.incarnation != request.incarnation:
            defined = self._view.job_at_revision(request.job, request.revision)
        return defined.job if defined else None

    async def _learn_topics(self, requests: Collection[Requested]) -> None:
        """Know which topics exist and how large their records may be, before a producer asks for one by name."""
        wanted = {commands_topic(each.request.job, self._job_of(each.request)) for each in requests}
        if wanted - self._limits.keys() or (wanted and monotonic() - self._limits_at > TOPICS_KNOWN_FOR_S):
            self._limits = await message_limits(self._admin, wanted | self._limits.keys())
            self._limits_at = monotonic()

    async def _forget(self) -> None:
        """Tombstones for runs past the horizon that the rollup can never ask for again (rule T7)."""
        now = int(time() * 1000)
        horizon_ms = self._settings.dedupe_horizon_s * 1000
        logs = [TopicPartition(CONTRIBUTIONS, number) for number in range(self._partitions)]
        positions = await committed_positions(self._admin, f"{self._settings.namespace}-rollup", logs)
        acknowledged = {
            source_of(tp, position.incarnation): position.offset for tp, position in positions.items()
        }
        for number, owned in self._owned.items():
            async for runs in owned.sent_before(now - horizon_ms):
                if gone := forgettable(runs, horizon_ms, now, acknowledged):
                    await owned.process((), (), {}, self._surroundings(number), forget=gone)


async def session(settings: Settings, state: ServiceState) -> None:
    """Read, decide, commit, until stopped."""
    async with (
        definitions_view(settings.kafka) as view,
        admin_client(settings.kafka) as admin,
        connect_redis(settings.redis) as redis,
    ):
        assert view.installation is not None
        await check_installation(admin, view.installation)
        dispatcher = Dispatcher(settings, state, view, admin, redis)
        try:
            async with dispatcher.consumer:
                while not state.stopping.is_set():
                    await dispatcher.step()
        finally:
            await dispatcher.close()


def main() -> None:
    serve(SERVICE, Settings(), session)
