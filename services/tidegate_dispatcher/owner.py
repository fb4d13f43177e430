"""One process's share of the dispatcher: the partitions that it owns, batch by batch."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, time

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from pydantic import ValidationError
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import (
    FailRun,
    JobControl,
    ManualRun,
    Redrive,
    Run,
    RunEvent,
    RunRequest,
    read_run_requests_record,
)
from tidegate.contracts.topics import CONTRIBUTIONS, RUN_EVENTS, RUN_REQUESTS, RUNS
from tidegate.definitions import Job
from tidegate.runtime import metrics
from tidegate.runtime.consumer import Batch, BatchConsumer
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.definitions_view import DefinitionsView
from tidegate.runtime.gaps import is_passed
from tidegate.runtime.positions import Gap, Highs, Position, committed_positions, partition_numbers, source_of
from tidegate.runtime.settings import Settings
from tidegate.runtime.starting import start_from_committed
from tidegate.runtime.state import ServiceState
from tidegate.runtime.topic_admin import message_limits
from tidegate.runtime.unreadable import unreadable_record
from tidegate_dispatcher.decide import (
    SERVICE,
    Controlled,
    Failed,
    Input,
    Redriven,
    Requested,
    Surroundings,
    commands_topic,
    forgettable,
)
from tidegate_dispatcher.partition import DispatcherPartition

FORGET_EVERY_S = 30.0
TOPICS_KNOWN_FOR_S = 30.0
QUEUES_FOR_S = 1.0
"""How long queues may go on moving before the inputs are read again."""


@dataclass(slots=True)
class _Share:
    """What one transaction takes in."""

    inputs: list[Input] = field(default_factory=list)
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
        self._look: dict[int, set[str]] = {}
        """By partition, the jobs whose queues may move without any input."""
        self._told_gaps: dict[int, str] = {}
        """By partition, what the audit log says of `runs`."""
        self._seen_definitions = view.next_offset
        self._limits: dict[str, int] = {}
        self._limits_at = -TOPICS_KNOWN_FOR_S
        self._forgot_at = monotonic()

    async def step(self) -> None:
        """One batch from poll to committed."""
        self._view.raise_if_broken()
        polled = await self.consumer.poll()
        began = monotonic()
        self._note_definitions()
        moving = {number for number, jobs in self._look.items() if jobs}
        if numbers := sorted(moving | {tp.partition for tp in polled}):
            if polled:
                crash_point("dispatcher.read")
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
        self._look.clear()
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
            number: DispatcherPartition(
                number, self._partitions, self._settings, self._redis, self._group, self._limits_of
            )
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
        gaps = await asyncio.gather(*map(self._catch_up, self._owned))
        for number, gap in zip(tuple(self._owned), gaps, strict=True):
            if gap is not None:
                await self._owned.pop(number).close()
                leave_unread(places, number, gap, self._positions)
        # A definition may have changed while nobody looked, and a cap may have left some.
        self._look = {number: await owned.jobs_with_queues() for number, owned in self._owned.items()}
        return places

    async def _catch_up(self, number: int) -> Gap | None:
        """Bring Redis to the end of `runs`; where a person accepted that records of it are lost, from its beginning."""
        owned, tp = self._owned[number], TopicPartition(RUNS, number)
        lost = await owned.catch_up()
        if lost is not None:
            is_told = self._told_gaps.get(number) == lost.gap.reason
            self._told_gaps[number] = lost.gap.reason
            if await is_passed(
                *(self._redis, self._settings, self._group, tp, *lost),
                is_told=is_told,
            ):
                await owned.begin_anew(lost.gap.beginning)
                lost = await owned.catch_up()
        return lost.gap if lost else None

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

    def _note_definitions(self) -> None:
        """A job that has changed may let more of its runs go out, with no other event."""
        if self._view.next_offset != self._seen_definitions:
            for job, revision in self._view.revisions().items():
                number = partition_of(job, self._partitions)
                if revision >= self._seen_definitions and number in self._look:
                    self._look[number].add(job)
            self._seen_definitions = self._view.next_offset

    async def _process(self, number: int, polled: Batch) -> None:
        """Decide on what was polled of one partition, a bounded share in each transaction, then on its queues."""
        requests, events = (TopicPartition(topic, number) for topic in (RUN_REQUESTS, RUN_EVENTS))
        cap, highs, share = self._settings.dispatch_cap, self._highs[number], _Share()
        ahead = Highs(highs.snapshot())
        read = [(record, *self._inputs(requests, record, ahead)) for record in polled.get(requests, ())]
        beyond = Counter(
            each.request.job for _, inputs, _ in read for each in inputs if isinstance(each, Requested)
        )
        for record, inputs, audit in read:
            share.audit += audit
            for each in inputs:
                if len(share.inputs) >= cap:
                    # Within a record: the offset stays before it, and the coordinates say how far it was taken.
                    before = share.offsets.get(requests, self._positions[requests])
                    share.offsets[requests] = replace(before, highs=highs.snapshot())
                    await self._commit(number, share, +beyond)
                    share = _Share()
                share.inputs.append(each)
                if isinstance(each, Requested):
                    beyond[each.request.job] -= 1
                    if each.by is None:
                        highs.is_new(each.source, each.request.offset, each.request.ordinal)
            share.offsets[requests] = self._position_after(requests, record)
        for record in polled.get(events, ()):
            if len(share.inputs) >= cap:
                await self._commit(number, share)
                share = _Share()
            try:
                share.inputs.append(RunEvent.from_bytes(record.value or b""))
            except ValidationError as error:
                share.audit.append(unreadable_record(SERVICE, events, record, error))
            metrics.ENTRIES_READ.labels(RUN_EVENTS).inc()
            share.offsets[events] = self._position_after(events, record)
        if share.offsets:
            await self._commit(number, share)
        until = monotonic() + QUEUES_FOR_S
        while self._look[number] and monotonic() < until:
            await self._commit(number, _Share())

    async def _commit(self, number: int, share: _Share, beyond: Mapping[str, int] | None = None) -> None:
        revisions = (each.request.revision for each in share.inputs if isinstance(each, Requested))
        await self._view.wait_for(max(revisions, default=-1) + 1)
        self._look[number] = await self._owned[number].process(
            *(share.inputs, share.audit, share.offsets, self._surroundings(number)),
            look=self._look[number],
            beyond=beyond,
        )
        self._positions.update(share.offsets)

    def _inputs(
        self, tp: TopicPartition, record: ConsumerRecord, highs: Highs
    ) -> tuple[list[Input], list[AuditEntry]]:
        """What a record of run-requests asks for, without repeats."""
        try:
            read = read_run_requests_record(record.value or b"")
        except ValidationError as error:
            return [], [unreadable_record(SERVICE, tp, record, error)]
        at = record.timestamp
        if isinstance(read, JobControl):
            return [Controlled(read, at)], []
        if isinstance(read, Redrive):
            return [Redriven(read, at)], []
        if isinstance(read, FailRun):
            return [Failed(read)], []
        if isinstance(read, ManualRun):
            source = source_of(tp, self._positions[tp].incarnation)
            request = read.request.model_copy(update={"offset": record.offset, "ordinal": 0})
            return [Requested(source, request, at, read.by)], []
        metrics.ENTRIES_READ.labels(RUN_REQUESTS).inc(len(read.requests))
        new = [each for each in read.requests if highs.is_new(read.source, each.offset, each.ordinal)]
        metrics.REPEATS_DROPPED.labels(RUN_REQUESTS).inc(len(read.requests) - len(new))
        return [Requested(read.source, each, at) for each in new], []

    def _position_after(self, tp: TopicPartition, record: ConsumerRecord) -> Position:
        highs = self._highs[tp.partition].snapshot() if tp.topic == RUN_REQUESTS else {}
        return Position(record.offset + 1, record.timestamp, highs, self._positions[tp].incarnation)

    def _surroundings(self, number: int) -> Surroundings:
        return Surroundings(
            partition=number,
            partitions=self._partitions,
            now=int(time() * 1000),
            job_of=self._job_of,
            active_runs_of=self._active_runs_of,
            cap=self._settings.dispatch_cap,
        )

    def _active_runs_of(self, job: str) -> int | None:
        newest = self._view.newest(job)
        return newest.job.active_runs_limit if newest else None

    def _job_of(self, request: RunRequest) -> Job | None:
        defined = self._view.job(request.job)
        if defined is None or defined.incarnation != request.incarnation:
            defined = self._view.job_at_revision(request.job, request.revision)
        return defined.job if defined else None

    async def _limits_of(self, requests: Collection[RunRequest]) -> Mapping[str, int]:
        """Which topics exist and how large their records may be, known before a producer asks for one by name."""
        wanted = {commands_topic(each.job, self._job_of(each)) for each in requests}
        if wanted - self._limits.keys() or (wanted and monotonic() - self._limits_at > TOPICS_KNOWN_FOR_S):
            self._limits = await message_limits(self._admin, wanted | self._limits.keys())
            self._limits_at = monotonic()
        return self._limits

    async def _forget(self) -> None:
        """Tombstones for runs past the horizon that the rollup can never ask for again (rule T7)."""
        now = int(time() * 1000)
        horizon_ms = self._settings.dedupe_horizon_s * 1000
        logs = [TopicPartition(CONTRIBUTIONS, number) for number in range(self._partitions)]
        positions = await committed_positions(self._admin, f"{self._settings.namespace}-rollup", logs)
        # Manual runs come from run-requests itself, which is not read again below the offset that was committed.
        positions |= {tp: position for tp, position in self._positions.items() if tp.topic == RUN_REQUESTS}
        acknowledged = {
            source_of(tp, position.incarnation): position.offset for tp, position in positions.items()
        }

        def gone(runs: Sequence[Run]) -> list[str]:
            return forgettable(runs, horizon_ms, now, acknowledged, self._active_runs_of)

        for owned in self._owned.values():
            async for runs in owned.sent_before(now - horizon_ms):
                if names := gone(runs):
                    await owned.forget(names, gone)


def leave_unread(
    places: dict[TopicPartition, int | Gap],
    number: int,
    gap: Gap,
    positions: Mapping[TopicPartition, Position],
) -> None:
    """Say that partitions `number` are not read for a gap in `runs`, except where they have one of their own to tell.

    Two reasons in turn would each be audited again with every look.
    """
    for tp, place in places.items():
        if tp.partition == number and not isinstance(place, Gap):
            places[tp] = Gap(gap.reason, positions[tp].offset)
