"""What a worker says outside transactions, and what it needs to know about topics."""

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.runs import RunCommand, RunEvent, RunState
from tidegate.contracts.topics import RUN_EVENTS
from tidegate.runtime.patience import reconnecting_slowly

log = logging.getLogger(__name__)

_DEADLINE_S: Final = 5.0


class Reports:
    """Sends `running` reports. They are for people who watch: one that fails is logged and holds nothing up.

    Not idempotent on purpose: a repeated report says nothing new (rule T5), while an idempotent producer can
    break for good, which would have to be noticed and mended.
    """

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=client_id, retry_backoff_ms=20
        )

    async def __aenter__(self) -> Self:
        try:
            await reconnecting_slowly(self._producer).start()
        except BaseException:
            await self._producer.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DEADLINE_S):
                await self._producer.stop()

    async def partitions(self, topic: str) -> int:
        """How many partitions `topic` has."""
        async with asyncio.timeout(_DEADLINE_S):
            return len(await self._producer.partitions_for(topic))

    async def running(self, command: RunCommand) -> None:
        """Queue the report that the run has started."""
        report = run_event(command, RunState.RUNNING)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                future = await self._producer.send(report.topic, report.value, report.key, report.partition)
        except (KafkaError, TimeoutError) as error:
            log.warning("the report that run %s has started could not be sent: %r", command.run_id, error)
        else:
            future.add_done_callback(_note)


def run_event(
    command: RunCommand, state: RunState, error: str | None = None, partition_key: str | None = None
) -> Outgoing:
    """The report on a run, on the partition that its command names (rule T5), with the key that it gave itself (D8)."""
    report = RunEvent(
        run_id=command.run_id,
        job=command.job,
        attempt=command.attempt,
        state=state,
        error=error,
        partition_key=partition_key,
    )
    return Outgoing(RUN_EVENTS, command.run_events_partition, command.job.encode(), report.to_bytes())


def _note(future: "asyncio.Future[object]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.warning("a report that a run has started was not accepted: %r", error)
