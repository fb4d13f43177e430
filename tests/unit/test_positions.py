"""What a group has committed, asked of a coordinator that may not say yet."""

from collections.abc import Collection
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupLoadInProgressError
from aiokafka.structs import OffsetAndMetadata

from tidegate.runtime import positions
from tidegate.runtime.positions import Position, committed_offsets, committed_positions

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


class Coordinator:
    """Answers as aiokafka passes answers on: one with an error of its own names no partition."""

    def __init__(self, silent: int) -> None:
        self.silent = silent

    async def list_consumer_group_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.silent -= 1
        known = {ONE: OffsetAndMetadata(7, ""), TWO: OffsetAndMetadata(-1, "")}
        return {} if self.silent >= 0 else {tp: known[tp] for tp in partitions}


async def test_a_coordinator_that_does_not_say_is_asked_again_and_is_not_one_without_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions, "_ANSWER_POLL_S", 0.001)
    coordinator: Any = Coordinator(silent=3)
    assert await committed_positions(coordinator, "g", [ONE, TWO]) == {ONE: Position(7)}
    assert await committed_positions(coordinator, "g", []) == {}
    assert await committed_offsets(coordinator, "g", [ONE, TWO]) == {ONE: 7}
    monkeypatch.setattr(positions, "_ANSWER_DEADLINE_S", 0.05)
    with pytest.raises(GroupLoadInProgressError, match="group 'g'"):
        await committed_positions(Coordinator(silent=1_000_000), "g", [ONE])  # type: ignore[arg-type]
