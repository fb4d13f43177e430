"""A consumer for looking into logs: in no group, reading what it is told from where it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from aiokafka import AIOKafkaConsumer

from tidegate.runtime.patience import patient


@asynccontextmanager
async def log_consumer(
    bootstrap: str,
    client_id: str,
    *,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    wait_ms: int = 50,
    most_bytes: int = 1024 * 1024,
) -> AsyncIterator[AIOKafkaConsumer]:
    """Started, to be assigned by hand; committed records only, unless told otherwise. It ends with the block.

    An empty fetch waits `wait_ms` for records; one answer holds `most_bytes` of a partition, or one batch.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        fetch_max_wait_ms=wait_ms,
        max_partition_fetch_bytes=most_bytes,
    )
    patient(consumer)
    try:
        await consumer.start()
        await asyncio.sleep(0)  # aiokafka 0.14 cannot stop a consumer whose tasks have not begun
        yield consumer
    finally:
        await _stop(consumer)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """Stop; aiokafka 0.14 passes on the cancellation of a fetch of its own that waits to be tried again."""
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
