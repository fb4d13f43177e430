"""One partition of the dispatcher: its transactions, its runs, what Redis is believed to hold (rule T2, T3)."""

from collections.abc import AsyncIterator, Mapping, Sequence

import structlog
from aiokafka import TopicPartition
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.runs import Run, RunEvent
from tidegate.contracts.topics import RUNS
from tidegate.runtime import metrics
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.positions import Position
from tidegate.runtime.producer import audit_records
from tidegate.runtime.settings import Settings
from tidegate.runtime.transactions import PartitionTransactions
from tidegate_dispatcher.decide import Requested, Surroundings, decide, fired_entries
from tidegate_dispatcher.runs_log import RunsLog
from tidegate_dispatcher.store import Known, RunStore

log = structlog.get_logger()


class DispatcherPartition:
    """Owns partition `number` of run-requests, run-events and runs while its transactional ids are not fenced."""

    def __init__(self, number: int, partitions: int, settings: Settings, redis: Redis, group: str) -> None:
        self.number, self._partitions, self._group = number, partitions, group
        self._transactions = PartitionTransactions(settings.kafka, f"{group}-{number}")
        self._store = RunStore(redis, settings.namespace, number)
        self._log = RunsLog(settings.kafka, number)
        self._believed = 0

    async def fence(self) -> None:
        """Take the partition over: no predecessor can commit from here on."""
        await self._transactions.start()

    async def has_runs(self) -> bool:
        """Whether the changelog was ever written."""
        _, end = await self._log.bounds()
        return end > 0

    async def close(self) -> None:
        await self._transactions.stop()

    async def catch_up(self) -> None:
        """Bring Redis to the end of `runs`, from wherever it stands."""
        stands = (await self._store.read()).next_offset
        beginning, end = await self._log.bounds()
        end = max(end, self._believed)
        if stands is None or stands > end:
            # Redis is empty, or a fold of another log: begin again.
            await self._store.reset()
            stands, start = None, beginning
        else:
            start = stands
        folded = 0
        async for position, changes in self._log.read(start, end):
            if not await self._store.write(stands, position, changes):
                raise RuntimeError(f"another owner changes the runs of partition {self.number}")
            stands, folded = position, folded + len(changes)
        if stands is None:
            await self._store.write(None, start, {})
            stands = start
        self._believed = stands
        log.info("runs_caught_up", partition=self.number, offset=stands, folded=folded)

    async def process(
        self,
        inputs: Sequence[Requested | RunEvent],
        audit: Sequence[AuditEntry],
        offsets: Mapping[TopicPartition, Position],
        surroundings: Surroundings,
        forget: Sequence[str] = (),
    ) -> None:
        """Decide on `inputs` and write commands, states, audit entries and offsets in one transaction; then Redis."""
        run_ids = [each.request.run_id if isinstance(each, Requested) else each.run_id for each in inputs]
        known = await self._read(list(dict.fromkeys(run_ids)))
        decisions = decide(inputs, known.runs, surroundings)
        changes: dict[str, Run | None] = {**decisions.runs, **dict.fromkeys(forget)}
        states = [
            Outgoing(RUNS, self.number, run_id.encode(), run.to_bytes() if run else None)
            for run_id, run in changes.items()
        ]
        others = [Outgoing(each.topic, None, each.key.encode(), each.value) for each in decisions.commands]
        entries = [*audit, *decisions.audit, *fired_entries(decisions.fired, surroundings.now)]
        others += audit_records(entries, self._partitions)
        crash_point("dispatcher.decided")
        acknowledged = await self._transactions.commit(
            [*states, *others], {tp: position.to_kafka() for tp, position in offsets.items()}, self._group
        )
        crash_point("dispatcher.committed")
        metrics.COMMANDS_SENT.inc(len(decisions.commands))
        if states:
            # The last state's own offset, since the transaction's marker takes one too and the end may lag (T3).
            before, self._believed = self._believed, acknowledged[len(states) - 1].offset + 1
            await self._store.write(before, self._believed, changes)
            crash_point("dispatcher.stored")

    def sent_before(self, before: int) -> AsyncIterator[list[Run]]:
        """Every run sent before an instant, oldest first, in pages."""
        return self._store.sent_before(before)

    async def _read(self, run_ids: Sequence[str]) -> Known:
        known = await self._store.read(run_ids)
        while known.next_offset != self._believed:
            metrics.STATE_MISMATCHES.inc()
            log.warning(
                "runs_elsewhere", partition=self.number, believed=self._believed, found=known.next_offset
            )
            await self.catch_up()
            known = await self._store.read(run_ids)
        return known
