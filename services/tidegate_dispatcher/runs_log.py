"""Reading a partition of `runs`, the dispatcher's changelog."""

from collections.abc import AsyncIterator
from typing import Final

import structlog
from aiokafka import ConsumerRecord, TopicPartition

from tidegate.contracts.runs import RunsRecord, read_runs_record
from tidegate.contracts.topics import RUNS
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.positions import Position
from tidegate.runtime.starting import recreated

log = structlog.get_logger()

_CLIENT: Final = "tidegate-runs-log"


def _change(record: ConsumerRecord) -> tuple[str, RunsRecord | None] | None:
    """The state of a record, with None for a tombstone; a record that cannot be read is logged and passed over."""
    try:
        key = record.key.decode()
        return key, None if record.value is None else read_runs_record(key, record.value)
    except ValueError as error:
        log.error(
            "run_state_unreadable", partition=record.partition, offset=record.offset, error=str(error)[:500]
        )
        return None


class RunsLog:
    """What the log holds from an offset on, committed transactions only."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self._bootstrap, self._tp = bootstrap, TopicPartition(RUNS, partition)

    async def bounds(self) -> tuple[int, int]:
        """The log's beginning and its high watermark; the read_committed end may lag behind."""
        async with log_consumer(self._bootstrap, _CLIENT, isolation="read_uncommitted") as consumer:
            consumer.assign([self._tp])
            beginning = (await consumer.beginning_offsets([self._tp]))[self._tp]
            return beginning, (await consumer.end_offsets([self._tp]))[self._tp]

    async def is_another(self, stands: int, at: int) -> bool:
        """Whether the record before offset `stands` shows that it is not the log whose record there had time `at`."""
        return bool(await recreated(self._bootstrap, {self._tp: Position(stands, at)}))

    async def read(
        self, start: int, end: int
    ) -> AsyncIterator[tuple[int, int, dict[str, RunsRecord | None]]]:
        """Changes from `start` to `end` in batches, each with the offset after its last record and that one's time.

        A marker of a transaction is no record: the offset after one would leave nothing to know the log by.
        """
        if start >= end:
            return
        async with log_consumer(self._bootstrap, _CLIENT) as consumer:
            consumer.assign([self._tp])
            consumer.seek(self._tp, start)
            position = start
            while position < end:
                records = (await consumer.getmany(timeout_ms=200)).get(self._tp, [])
                position = await consumer.position(self._tp)
                if records:
                    last = records[-1]
                    yield last.offset + 1, last.timestamp, dict(filter(None, map(_change, records)))
