"""What is a difference between Redis and Kafka, and what may be done about it."""

import pytest

from tidegate.runtime.agreement import (
    Difference,
    Repair,
    ShardState,
    in_both,
    orphan_differences,
    runs_differences,
    shard_differences,
)
from tidegate.runtime.census import Orphan


@pytest.mark.parametrize("state", [ShardState(1, 7), ShardState(1, 10, [7, 9]), ShardState(1, 8, [7])])
def test_a_shard_between_what_was_acknowledged_and_the_logs_end_agrees(state: ShardState) -> None:
    assert shard_differences(state, 1, 7, (0, 10)) == []


@pytest.mark.parametrize(
    ("state", "committed", "said", "repair"),
    [
        (ShardState(1, None), 7, "Redis holds nothing of it", None),  # its owner builds it by itself
        (ShardState(1, 11), 7, "beyond the log's end 10", Repair.DROP_SHARD),
        (ShardState(1, 6), 7, "writes were lost", Repair.DROP_SHARD),
        (ShardState(1, 9, [5, 6, 8]), 7, "2 things in its outbox lie below 7", None),
        (ShardState(1, 9), None, "no committed offset", None),
    ],
)
def test_a_shard_that_stands_elsewhere_is_told(
    state: ShardState, committed: int | None, said: str, repair: Repair | None
) -> None:
    (found,) = shard_differences(state, 1, committed, (0, 10))
    assert said in found.what
    assert found.repair is repair


def test_nothing_is_dropped_that_its_log_cannot_give_back() -> None:  # R2
    (found,) = shard_differences(ShardState(1, 11), 1, 7, (3, 10))
    assert found.repair is None
    lost = [Orphan("t:{1}:open", "a/i/k", "an open round that holds nothing", 1)]
    assert [each.repair for each in orphan_differences(lost, {1: 3})] == [None]
    assert [each.repair for each in orphan_differences(lost, {1: 0})] == [Repair.DROP_SHARD]


def test_a_shard_that_is_new_or_was_never_read_agrees() -> None:
    assert shard_differences(ShardState(1, None), 1, None, (0, 10)) == []
    assert shard_differences(ShardState(1, None), 1, 0, (0, 0)) == []


def test_the_fold_of_runs_must_be_one_of_this_log() -> None:
    assert runs_differences(0, 9, (0, 10)) == []  # the last one is a marker
    assert runs_differences(0, None, (0, 0)) == []
    assert [each.repair for each in runs_differences(0, None, (0, 10))] == [Repair.RESET_RUNS]
    assert [each.repair for each in runs_differences(0, 11, (0, 10))] == [Repair.RESET_RUNS]


def test_only_what_two_looks_find_is_a_difference() -> None:
    stays, moved = (
        Difference("shard 1", "it stands at 4, below 7"),
        Difference("shard 1", "it stands at 5, below 8"),
    )
    passing, new = (
        Difference("shard 2", "it stands at 4, below 7"),
        Difference("shard 3", "it stands at 4, below 7"),
    )
    assert in_both([stays, passing], [moved, new]) == [moved]
