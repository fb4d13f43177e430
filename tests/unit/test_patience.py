"""Pausing between empty fetches, and only there."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.runtime.patience import patient, reconnecting_slowly


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

    async def connect(node_id: int) -> None:
        """Not asked here."""

    return SimpleNamespace(_client=SimpleNamespace(send=send, _get_conn=connect))


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


async def test_a_broker_that_is_away_is_tried_ever_less_often(pauses: list[float]) -> None:
    answers = iter([None] * 8 + ["connected"] + [None])

    async def connect(node_id: int) -> str | None:
        return next(answers)

    client: Any = SimpleNamespace(_get_conn=connect)
    reconnecting_slowly(SimpleNamespace(_client=client))  # type: ignore[type-var]
    assert [await client._get_conn(1) for _ in range(9)] == [None] * 8 + ["connected"]
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1])
    await client._get_conn(1)
    assert pauses[-1] == pytest.approx(0.02)


async def test_another_broker_is_tried_at_once(pauses: list[float]) -> None:
    async def connect(node_id: int) -> str | None:
        return None if node_id == 1 else "connected"

    client: Any = SimpleNamespace(_get_conn=connect)
    reconnecting_slowly(SimpleNamespace(_client=client))  # type: ignore[type-var]
    await client._get_conn(1)
    await client._get_conn(2)
    assert pauses == [pytest.approx(0.02)]
