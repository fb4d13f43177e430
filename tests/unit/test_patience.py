"""Pausing between empty fetches, and only there."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.runtime.patience import patient


class FetchRequest:
    """Named as aiokafka's."""


class MetadataRequest:
    """Something else."""


def consumer_answering(partitions: list[tuple[Any, ...]], after_s: float = 0) -> Any:
    async def send(node_id: int, request: object) -> Any:
        await asyncio.sleep(after_s)
        return SimpleNamespace(topics=[("t", partitions)])

    return SimpleNamespace(_client=SimpleNamespace(send=send))


async def seconds(consumer: Any, request: object) -> float:
    began = asyncio.get_running_loop().time()
    await consumer._client.send(0, request)
    return asyncio.get_running_loop().time() - began


EMPTY = (0, 0, 7, b"")


async def test_an_empty_answer_that_came_at_once_is_held_back() -> None:
    assert await seconds(patient(consumer_answering([EMPTY, EMPTY])), FetchRequest()) >= 0.019


@pytest.mark.parametrize("partition", [(0, 0, 7, b"records"), (0, 1, 7, b"")], ids=["records", "error"])
async def test_records_and_errors_go_through_at_once(partition: tuple[Any, ...]) -> None:
    consumer = consumer_answering([EMPTY, partition])
    patient(consumer)
    fastest = min([await seconds(consumer, FetchRequest()) for _ in range(5)])
    assert fastest < 0.015


async def test_other_requests_and_brokers_that_wait_are_left_alone() -> None:
    fastest = min([await seconds(patient(consumer_answering([EMPTY])), MetadataRequest()) for _ in range(5)])
    assert fastest < 0.015
    slow = min([await seconds(patient(consumer_answering([EMPTY], 0.03)), FetchRequest()) for _ in range(5)])
    assert slow < 0.045
