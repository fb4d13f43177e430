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


real_sleep = asyncio.sleep


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in seconds; nobody waits for them."""
    made: list[float] = []

    async def note(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    return made


def consumer_answering(partitions: list[tuple[Any, ...]], after_s: float = 0) -> Any:
    async def send(node_id: int, request: object) -> Any:
        await real_sleep(after_s)
        return SimpleNamespace(topics=[("t", partitions)])

    return SimpleNamespace(_client=SimpleNamespace(send=send))


async def ask(consumer: Any, request: object) -> None:
    await patient(consumer)._client.send(0, request)


EMPTY = (0, 0, 7, b"")


async def test_an_empty_answer_that_came_at_once_is_held_back(pauses: list[float]) -> None:
    await ask(consumer_answering([EMPTY, EMPTY]), FetchRequest())
    assert pauses == [pytest.approx(0.02)]


@pytest.mark.parametrize("partition", [(0, 0, 7, b"records"), (0, 1, 7, b"")], ids=["records", "error"])
async def test_records_and_errors_go_through_at_once(partition: tuple[Any, ...], pauses: list[float]) -> None:
    await ask(consumer_answering([EMPTY, partition]), FetchRequest())
    assert pauses == []


async def test_other_requests_are_left_alone(pauses: list[float]) -> None:
    await ask(consumer_answering([EMPTY]), MetadataRequest())
    assert pauses == []


async def test_a_broker_that_waited_by_itself_is_left_alone(pauses: list[float]) -> None:
    await ask(consumer_answering([EMPTY], after_s=0.05), FetchRequest())
    assert pauses == []
