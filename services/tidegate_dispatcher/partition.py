"""One partition of the dispatcher: its transactions, its runs, what Redis is believed to hold (rule T2, T3)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.runs import Run, RunRequest, RunsRecord, RunState, job_of_key, record_key
from tidegate.contracts.topics import RUNS
from tidegate.core.errors import TidegateError
from tidegate.runtime import metrics
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.positions import Gap, Position
from tidegate.runtime.producer import audit_records, count_sent
from tidegate.runtime.settings import Settings
from tidegate.runtime.transactions import PartitionTransactions
from tidegate_dispatcher.decide import (
    Heads,
    Input,
    Known,
    Surroundings,
    Wanted,
    cap_reached,
    decide,
    fired_entries,
    may_be_sent,
    wanted,
)
from tidegate_dispatcher.runs_log import RunsLog
from tidegate_dispatcher.store import NOTHING, RunStore

log = structlog.get_logger()


class RunsLostError(TidegateError, RuntimeError):
    """`runs` no longer holds what was known of it: a gap, which the next start tells of (rule E2)."""


class RunsTakenOverError(TidegateError, RuntimeError):
    """Redis moved on while it was being filled: another process owns the partition."""


class LostRuns(NamedTuple):
    """Records of `runs` that are no longer there."""

    gap: Gap
    """In `runs`, not in what the partition reads."""
    known_up_to: int
    """The offset up to which they were known."""


class DispatcherPartition:
    """Owns partition `number` of run-requests, run-events and runs while its transactional ids are not fenced."""

    def __init__(
        self,
        number: int,
        partitions: int,
        settings: Settings,
        redis: Redis,
        group: str,
        limits_of: Callable[[Collection[RunRequest]], Awaitable[Mapping[str, int]]],
    ) -> None:
        """`limits_of` says how large a record may be on each topic that exists and requests lead to."""
        self.number, self._partitions, self._group, self._limits_of = number, partitions, group, limits_of
        self._transactions = PartitionTransactions(settings.kafka, f"{group}-{number}")
        self._store = RunStore(redis, settings.namespace, number)
        self._log = RunsLog(settings.kafka, number)
        self._believed = 0
        self._is_capped = False
        """Whether an audit entry says that more is ready than goes out at once, which is still so."""

    async def fence(self) -> None:
        """Take the partition over: no predecessor can commit from here on."""
        await self._transactions.start()

    async def has_runs(self) -> bool:
        """Whether the changelog was ever written."""
        _, end = await self._log.bounds()
        return end > 0

    async def close(self) -> None:
        await self._transactions.stop()

    async def catch_up(self) -> LostRuns | None:
        """Bring Redis to the end of `runs`, from wherever it stands.

        Where more was on `runs` than it holds, as when it was created again, that is returned and nothing changed: run
        ids that were seen and runs that wait would be gone in silence (rule E2). Raises RunsTakenOverError.
        """
        known = await self._store.read(NOTHING)
        stands = known.next_offset
        beginning, end = await self._log.bounds()
        lost, seen = None, max(stands or 0, self._believed)
        if seen > end:
            lost = (
                f"ends at offset {end}, but its runs are known up to {seen}: the topic was created again or lost"
                " records"
            )
        elif (stands or 0) < beginning:
            seen = stands or 0
            lost = f"begins at offset {beginning}, but its runs are known up to {seen}: records before were deleted"
        elif stands is not None and await self._log.is_another(stands, known.at):
            seen, lost = stands, f"was created again: the record before offset {stands} is another one"
        if lost:
            reason = (
                f"runs/{self.number} {lost}. Put its records back, or go on without the runs that wait, the ids that"
                " were seen and the counts of active runs, with the jobs paused that Redis knows to be:"
                f" `tidegate accept-gap dispatcher runs {self.number}`"
            )
            return LostRuns(Gap(reason, beginning), seen)
        if stands is None:
            await self._store.reset()
        start = beginning if stands is None else stands
        folded = 0
        async for position, at, changes in self._log.read(start, end):
            if not await self._store.write(stands, position, changes, at):
                raise RunsTakenOverError(
                    f"another process changes the runs of partition {self.number} in Redis while they are read from"
                    f" offset {start} on: starting again, which shows who owns the partition"
                )
            stands, folded = position, folded + len(changes)
        if stands is None:
            await self._store.write(None, start, {})
            stands = start
        self._believed = stands
        log.info("runs_caught_up", partition=self.number, offset=stands, folded=folded)
        return None

    async def begin_anew(self, beginning: int) -> None:
        """Forget what Redis holds, so that it is filled from the beginning of `runs`.

        Jobs stay paused that Redis knows to be, unless `runs` says otherwise: they are written there first.
        """
        _, end = await self._log.bounds()
        told = {
            name
            async for _, _, changes in self._log.read(beginning, end)
            for name in filter(job_of_key, changes)
        }
        paused = {record_key(state): state for state in await self._store.paused()}
        if kept := {name: state for name, state in paused.items() if name not in told}:
            await self._commit(kept, (), {})
        await self._store.reset()
        await self._store.write(None, beginning, {})

    async def jobs_with_queues(self) -> set[str]:
        """The jobs of which runs wait, once Redis has caught up."""
        return await self._store.jobs_with_queues()

    async def process(
        self,
        inputs: Sequence[Input],
        audit: Sequence[AuditEntry],
        offsets: Mapping[TopicPartition, Position],
        surroundings: Surroundings,
        *,
        look: Collection[str] = (),
        beyond: Mapping[str, int] | None = None,
    ) -> set[str]:
        """Decide, and write commands, states, audit entries and offsets in one transaction; then Redis.

        `look` names jobs whose queues may move without any input, `beyond` counts the requests of each job that were
        read but are not among `inputs`. Returns the jobs of which more could go out by now, but for the cap.
        """
        read = wanted(inputs, look, surroundings.active_runs_of)
        known = await self._read(read, surroundings.cap)
        while others := {run.job for run in known.runs.values()} - read.heads.keys():
            # A report named another job than its run has.
            heads = {job: Heads(surroundings.active_runs_of(job), len(read.run_ids), False) for job in others}
            read = read._replace(heads={**read.heads, **heads})
            known = await self._read(read, surroundings.cap)
        limits = await self._limits_of(may_be_sent(inputs, known))
        decisions = decide(inputs, known, surroundings, limits)
        left = {**decisions.left}
        for job, count in (beyond or {}).items():
            left[job] = left.get(job, 0) + count
        is_capped = decisions.is_capped or bool(beyond)
        if is_capped and not self._is_capped:
            decisions.audit.append(cap_reached(self.number, decisions.looked_at, left, surroundings.now))
        changes: dict[str, RunsRecord | None] = {
            **{record_key(state): state for state in decisions.jobs.values()},
            **decisions.runs,
        }
        outgoing = [Outgoing(each.topic, None, each.key.encode(), each.value) for each in decisions.commands]
        entries = [*audit, *decisions.audit, *fired_entries(decisions.fired, surroundings.now)]
        noted = audit_records(entries, self._partitions)
        outgoing += decisions.forwarded + noted
        if changes or outgoing or offsets:
            await self._commit(changes, outgoing, offsets)
        count_sent(noted)
        self._is_capped = bool(left) and (is_capped or self._is_capped)
        metrics.COMMANDS_SENT.inc(len(decisions.commands))
        metrics.REPORTS_FORWARDED.inc(len(decisions.forwarded))
        metrics.RUNS_QUEUED.inc(sum(run.state is RunState.QUEUED for run in decisions.runs.values()))
        return set(decisions.left)

    async def forget(self, names: Sequence[str], gone: Callable[[Sequence[Run]], Collection[str]]) -> None:
        """Tombstones for those of some runs that are `gone`, as they stand once Redis has been compared (rule T3)."""
        known = await self._read(Wanted(names, {}))
        if changes := dict.fromkeys(gone(list(known.runs.values()))):
            await self._commit(changes, (), {})

    async def _commit(
        self,
        changes: Mapping[str, RunsRecord | None],
        others: Sequence[Outgoing],
        offsets: Mapping[TopicPartition, Position],
    ) -> None:
        states = [
            Outgoing(RUNS, self.number, key.encode(), state.to_bytes() if state else None)
            for key, state in changes.items()
        ]
        crash_point("dispatcher.decided")
        try:
            acknowledged = await self._transactions.commit(
                [*states, *others], {tp: position.to_kafka() for tp, position in offsets.items()}, self._group
            )
        except ProducerFenced:
            metrics.FENCED.inc()
            log.error(
                "partition_fenced", partition=self.number, outcome="another process owns it: starting again"
            )
            raise
        crash_point("dispatcher.committed")
        if states:
            if (first := acknowledged[0].offset) < self._believed:
                raise RunsLostError(
                    f"runs/{self.number} took a record at offset {first}, below {self._believed}: it was created again."
                    " The partition starts again, and says what was lost and how to go on"
                )
            # The last state's own offset, since the transaction's marker takes one too and the end may lag (T3).
            last = acknowledged[len(states) - 1]
            # A time that is not from the broker may be of another record (aiokafka 0.14): then none is compared.
            at = last.timestamp if last.timestamp_type else 0
            before, self._believed = self._believed, last.offset + 1
            await self._store.write(before, self._believed, changes, at)
            crash_point("dispatcher.stored")

    def sent_before(self, before: int) -> AsyncIterator[list[Run]]:
        """Every run sent before an instant, oldest first, in pages; by what Redis holds, wherever it stands."""
        return self._store.sent_before(before)

    async def _read(self, what: Wanted, cap: int = 0) -> Known:
        while True:
            known = await self._store.read(what, cap)
            if known.next_offset == self._believed:
                return known
            metrics.STATE_MISMATCHES.inc()
            log.warning(
                "runs_elsewhere", partition=self.number, believed=self._believed, found=known.next_offset
            )
            if lost := await self.catch_up():
                raise RunsLostError(lost.gap.reason)
