"""What arrives, counted by a reader that has no part in the work."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer

from tidegate.contracts.accepted import AcceptedBatch
from tidegate.contracts.runs import RunCommand
from tidegate.contracts.topics import ACCEPTED, RUN_COMMANDS_PREFIX
from tidegate.runtime.patience import patient

JOBS: Final = ("daily_temperatures", "monthly_temperatures")


class Arrivals:
    """Counts since the beginning of the logs."""

    def __init__(self, assets: set[str]) -> None:
        self._assets = assets
        self._accepted: set[tuple[str, int]] = set()
        self.commands: dict[str, Counter[str]] = {job: Counter() for job in JOBS}
        """By job, how many commands each partition key has had."""

    @property
    def accepted(self) -> int:
        """Events of the given assets; a record written again after a crash counts once."""
        return len(self._accepted)

    @property
    def duplicates(self) -> int:
        """Commands beyond the first for one (job, key)."""
        return sum(count - 1 for keys in self.commands.values() for count in keys.values())

    def take(self, topic: str, value: bytes) -> None:
        if topic == ACCEPTED:
            batch = AcceptedBatch.from_bytes(value)
            self._accepted |= {
                (batch.source, each.offset) for each in batch.events if each.asset in self._assets
            }
        else:
            command = RunCommand.from_bytes(value)
            self.commands[command.job][command.partition_key or ""] += 1


@asynccontextmanager
async def arrivals(bootstrap: str, assets: set[str]) -> AsyncIterator[tuple[Arrivals, "asyncio.Task[None]"]]:
    """Counts that rise while the block runs, and the task that reads, which never ends by itself."""
    consumer = patient(
        AIOKafkaConsumer(
            ACCEPTED,  # without a group: every partition is ours
            *(RUN_COMMANDS_PREFIX + job for job in JOBS),
            bootstrap_servers=bootstrap,
            client_id="temperatures-demo",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=9 * 1024 * 1024,
        )
    )
    try:
        await consumer.start()
        found = Arrivals(assets)
        reading = asyncio.create_task(_read(consumer, found))
        try:
            yield found, reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, found: Arrivals) -> None:
    while True:
        for tp, records in (await consumer.getmany(timeout_ms=200)).items():
            for record in records:
                found.take(tp.topic, record.value)
