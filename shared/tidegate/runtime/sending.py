"""Sending records and waiting until every one is acknowledged; needs nothing but the base install.

What Kafka limits is the batch and the request, not the record: `max.message.bytes` of a topic holds for a whole batch
of the client, and a broker takes requests of at most 100 MiB (`socket.request.max.bytes`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from tidegate.contracts.outgoing import HEADROOM, Outgoing
from tidegate.contracts.topics import MAX_INTERNAL_BYTES, PACK_BYTES

SLICE_BYTES: Final = 32 * 1024 * 1024

LIMITS: Final[dict[str, Any]] = {
    "max_request_size": MAX_INTERNAL_BYTES + HEADROOM,
    "max_batch_size": PACK_BYTES,  # a larger record still goes out, as a batch of its own
}
"""Settings of every producer whose records may be as large as our topics allow."""


async def send_acknowledged(producer: AIOKafkaProducer, records: Sequence[Outgoing]) -> list[RecordMetadata]:
    """Send in order and wait for every acknowledgement; raises the first error once all have come to an end.

    aiokafka 0.14 commits a transaction although a record of it was refused, so nothing may be committed before this.
    """
    acknowledged: list[RecordMetadata] = []
    for some in _slices(records):
        futures = [
            await producer.send(each.topic, each.value, each.key, each.partition, headers=list(each.headers))
            for each in some
        ]
        failed: Exception | None = None
        try:
            # One after the other, since most are done together: gather does more for each.
            for future in futures:
                try:
                    acknowledged.append(await future)
                except Exception as error:
                    failed = failed or error
        finally:
            for future in futures:
                future.cancel()  # in vain, unless this coroutine was cancelled
        if failed is not None:
            raise failed
    return acknowledged


def _slices(records: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    some: list[Outgoing] = []
    size = 0
    for each in records:
        if some and size + len(each.value or b"") > SLICE_BYTES:
            yield some
            some, size = [], 0
        some.append(each)
        size += len(each.value or b"")
    if some:
        yield some
