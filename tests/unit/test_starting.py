"""Where partitions start while another replica is starting the same ones."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from tidegate.runtime import starting
from tidegate.runtime.positions import Position
from tidegate.runtime.settings import Settings

TP = TopicPartition("run-events", 1)


@pytest.mark.parametrize("reads_before", [0, 1, 2, 3])
async def test_what_another_replica_starts_meanwhile_is_no_gap(
    monkeypatch: pytest.MonkeyPatch, reads_before: int
) -> None:
    """The other one commits the beginning and then notes in Redis that it did, between two reads of ours."""
    committed: dict[TopicPartition, Position] = {}
    noted: dict[str, str] = {}
    reads = 0

    def other_starts_when_due() -> None:
        nonlocal reads
        reads += 1
        if reads > reads_before:
            committed[TP] = Position(0)
            noted["run-events/1"] = "0"

    async def committed_positions(*_: object) -> Mapping[TopicPartition, Position]:
        other_starts_when_due()
        return dict(committed)

    async def bounds(partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        other_starts_when_due()
        return dict.fromkeys(partitions, (0, 0))

    async def hmget(_: str, names: list[str]) -> list[str | None]:
        other_starts_when_due()
        return [noted.get(name) for name in names]

    async def hset(_: str, name: str, value: str) -> None:
        noted[name] = value

    async def commit(positions: Mapping[TopicPartition, Position]) -> bool:
        return True

    async def nothing(*_: object) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(starting, "committed_positions", committed_positions)
    monkeypatch.setattr(starting, "pass_accepted_gaps", nothing)
    consumer: Any = SimpleNamespace(bounds=bounds, commit=commit)
    redis: Any = SimpleNamespace(hmget=hmget, hset=hset)
    places, positions = await starting.start_from_committed(consumer, None, redis, Settings(), "g", [TP])  # type: ignore[arg-type]
    assert places == {TP: 0}
    assert positions[TP].offset == 0


def test_a_log_keeps_its_incarnation_where_offsets_were_reset_by_another_tool() -> None:
    """Under an older name all that comes would be taken for repeats of the log before (E1)."""
    other = TopicPartition("run-events", 2)
    committed = {TP: Position(17), other: Position(4, incarnation=3)}
    found = starting.of_incarnations(committed, {TP: 2, other: 1})
    assert found == {TP: Position(17, incarnation=2), other: Position(4, incarnation=3)}
