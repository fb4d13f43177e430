"""What is sent stays within what Kafka takes: batches by topic, requests by broker."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.topics import MIB, PACK_BYTES
from tidegate.runtime import metrics
from tidegate.runtime.producer import count_sent
from tidegate.runtime.sending import LIMITS, SLICE_BYTES, _slices, send_acknowledged


def test_a_batch_of_small_records_fits_into_every_topic_of_ours() -> None:
    assert LIMITS["max_batch_size"] <= PACK_BYTES < MIB


def test_a_request_never_holds_more_than_a_broker_takes_and_order_is_kept() -> None:
    records = [Outgoing("t", n, None, bytes(4 * MIB)) for n in range(32)]
    slices = list(_slices(records))
    assert [each for some in slices for each in some] == records
    assert all(sum(len(each.value or b"") for each in some) <= SLICE_BYTES for some in slices)
    assert len(slices) > 1


class Producer:
    """Of aiokafka's producer what sending needs; records whose values are in `refused` fail."""

    def __init__(self, *refused: bytes) -> None:
        self.refused = refused
        self.sent: list[tuple[bytes, asyncio.Future[int]]] = []

    async def send(self, topic: str, value: bytes, *_: Any, headers: list[Any]) -> "asyncio.Future[int]":
        self.sent.append((value, asyncio.get_running_loop().create_future()))
        return self.sent[-1][1]

    def settle(self, *values: bytes) -> None:
        for number, (value, future) in enumerate(self.sent):
            if value in values:
                future.set_exception(KafkaError(value)) if value in self.refused else future.set_result(
                    number
                )


RECORDS = [Outgoing("t", 0, None, value) for value in (b"a", b"b", b"c")]


async def test_acknowledgements_come_in_the_order_of_records() -> None:
    producer = Producer()
    task = asyncio.create_task(send_acknowledged(producer, RECORDS))
    await asyncio.sleep(0)
    producer.settle(b"c")
    producer.settle(b"a")
    await asyncio.sleep(0)
    assert not task.done()
    producer.settle(b"b")
    assert await task == [0, 1, 2]


async def test_the_first_error_is_raised_once_all_have_come_to_an_end() -> None:
    producer = Producer(b"a", b"b")
    task = asyncio.create_task(send_acknowledged(producer, RECORDS))
    await asyncio.sleep(0)
    producer.settle(b"b")
    producer.settle(b"a")
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    producer.settle(b"c")
    with pytest.raises(KafkaError, match="a"):
        await task


async def test_who_gives_up_waits_for_no_record() -> None:
    producer = Producer()
    task = asyncio.create_task(send_acknowledged(producer, RECORDS))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(future.cancelled() for _, future in producer.sent)


def test_what_is_sent_is_counted_by_topic_and_by_kind() -> None:
    def counted() -> tuple[float, float]:
        kinds = metrics.AUDIT_ENTRIES.labels("kind", "nobody")
        return metrics.RECORDS_SENT.labels("counted")._value.get(), kinds._value.get()

    before = counted()
    count_sent([Outgoing("counted", 0, None, b""), Outgoing("counted", 0, None, b"", (), ("kind", "nobody"))])
    assert counted() == (before[0] + 2, before[1] + 1)
