"""What people do is a record that a service takes in its order: writing one, and waiting until it is taken."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiokafka import TopicPartition

from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.runs import FailRun, JobControl, ManualRun, Redrive
from tidegate.contracts.topics import RUN_REQUESTS
from tidegate.runtime.positions import committed_offsets
from tidegate.runtime.producer import acknowledged_producer, send_all
from tidegate.runtime.topic_admin import admin_client

WAIT_S: Final = 10.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Written:
    """A record of what a person does, on the log that its service reads."""

    position: str
    """`<topic>/<partition>@<offset>`, as its audit entries name it."""
    service: str
    """Whose it is to take it in."""
    is_read: bool
    """Whether the service has; the audit log says what came of it."""

    @property
    def state(self) -> str:
        """In words."""
        return "done" if self.is_read else f"written, and waiting for the {self.service} (`tidegate status`)"


async def write(
    bootstrap: str,
    record: Outgoing,
    service: str,
    next_offset: Callable[[], Awaitable[int]],
    wait_s: float,
) -> Written:
    """Write a record, and wait up to `wait_s` seconds until `next_offset`, where its service reads on, is past it."""
    async with acknowledged_producer(bootstrap, "tidegate-operator") as producer:
        (stored,) = await send_all(producer, [record])
    is_read = True
    try:
        async with asyncio.timeout(wait_s):
            while await next_offset() <= stored.offset:
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        is_read = False
    return Written(f"{stored.topic}/{stored.partition}@{stored.offset}", service, is_read)


async def write_to_dispatcher(
    bootstrap: str,
    namespace: str,
    record: JobControl | ManualRun | Redrive | FailRun,
    partition: int,
    wait_s: float,
) -> Written:
    """Write a record to `run-requests`, and wait up to `wait_s` seconds until the dispatcher has taken it in."""
    tp = TopicPartition(RUN_REQUESTS, partition)
    outgoing = Outgoing(tp.topic, tp.partition, None, record.to_bytes())
    async with admin_client(bootstrap) as admin:

        async def next_offset() -> int:
            return (await committed_offsets(admin, f"{namespace}-dispatcher", [tp])).get(tp, 0)

        return await write(bootstrap, outgoing, "dispatcher", next_offset, wait_s)
