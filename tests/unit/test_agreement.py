"""What is a difference between Redis and Kafka, and what may be done about it."""

import pytest

from tidegate.cli.check import closing
from tidegate.runtime.agreement import (
    Code,
    Difference,
    Repair,
    ShardState,
    in_both,
    orphan_differences,
    runs_differences,
    shard_differences,
)
from tidegate.runtime.census import LACKS, Lack, Orphan


@pytest.mark.parametrize("state", [ShardState(1, 7), ShardState(1, 10, [7, 9]), ShardState(1, 8, [7])])
def test_a_shard_between_what_was_acknowledged_and_the_logs_end_agrees(state: ShardState) -> None:
    assert shard_differences(state, 1, 7, (0, 10)) == []


@pytest.mark.parametrize(
    ("state", "committed", "code", "said", "repair"),
    [
        # Its owner builds it by itself.
        (ShardState(1, None), 7, Code.SHARD_MISSING, "Redis holds nothing of it", None),
        (ShardState(1, 11), 7, Code.SHARD_BEYOND_LOG, "beyond the log's end 10", None),
        (ShardState(1, 6), 7, Code.SHARD_FELL_BACK, "writes were lost", Repair.DROP_SHARD),
        (
            ShardState(1, 9, [5, 6, 8]),
            7,
            Code.OUTBOX_ACKNOWLEDGED,
            "2 things in its outbox lie below 7",
            None,
        ),
        (ShardState(1, 9), None, Code.SHARD_NOT_COMMITTED, "no committed offset", None),
    ],
)
def test_a_shard_that_stands_elsewhere_is_told(
    state: ShardState, committed: int | None, code: Code, said: str, repair: Repair | None
) -> None:
    (found,) = shard_differences(state, 1, committed, (0, 10))
    assert (found.code, found.repair) == (code, repair)
    assert str(found).startswith("shard 1 of contributions/1: ")
    assert said in str(found)
    assert ("--repair" in found.to_do) == (repair is not None)


def test_nothing_is_dropped_that_its_log_cannot_give_back() -> None:  # R2
    (found,) = shard_differences(ShardState(1, 5), 1, 7, (3, 10))
    assert found.repair is None
    assert found.to_do.startswith("the log no longer holds all")
    lost = [Orphan("t:{1}:open", "a/i/k", Lack.OPEN, 1)]
    assert [each.repair for each in orphan_differences(lost, {1: 3})] == [None]
    assert [each.repair for each in orphan_differences(lost, {1: 0})] == [Repair.DROP_SHARD]


@pytest.mark.parametrize("code", [*Code, *Lack])
def test_every_kind_of_difference_has_words_and_something_to_do(code: Code | Lack) -> None:
    for log_is_whole in (True, False):
        found = Difference(
            code=code,
            shard=3,
            partition=1,
            job="j",
            incarnation="i",
            stands=4,
            other=7,
            log_is_whole=log_is_whole,
        )
        assert str(found).removeprefix("shard 3 of contributions/1: ") or code is Code.SHARD_NOT_FOLDED
        if found.repair is None:
            assert "--repair" not in found.to_do
            is_of_the_log = found.to_do.startswith("the log no longer holds")
            assert is_of_the_log <= (not log_is_whole), "what a whole log gives back is dropped"
        else:
            assert found.to_do.endswith(found.repair)


def test_no_two_kinds_share_a_code() -> None:
    assert not {each.value for each in Code} & {each.value for each in Lack}
    assert LACKS.keys() == set(Lack)


def test_a_shard_that_is_new_or_was_never_read_agrees() -> None:
    assert shard_differences(ShardState(1, None), 1, None, (0, 10)) == []
    assert shard_differences(ShardState(1, None), 1, 0, (0, 0)) == []


def test_the_fold_of_runs_must_be_one_of_this_log() -> None:
    assert runs_differences(0, 9, 10) == []  # the last one is a marker
    assert runs_differences(0, None, 0) == []
    assert [each.repair for each in runs_differences(0, None, 10)] == [Repair.RESET_RUNS]
    (beyond,) = runs_differences(0, 11, 10)
    assert beyond.repair is None, "a person has to see that the log was created again"
    assert beyond.to_do.startswith("the dispatcher tells of a gap")


def test_only_what_two_looks_find_is_a_difference() -> None:
    stays, moved, passing, new = (
        Difference(code=Code.SHARD_FELL_BACK, shard=shard, partition=0, stands=stands, other=7)
        for shard, stands in [(1, 4), (1, 5), (2, 4), (3, 4)]
    )
    assert in_both([stays, passing], [moved, new]) == [moved]


def test_what_is_named_by_digits_is_told_apart() -> None:
    def rounds_of(job: str, count: int) -> Difference:
        return Difference(
            code=Code.JOB_NOT_DEFINED, shard=1, partition=1, job=job, incarnation="i", count=count
        )

    assert in_both([rounds_of("a1", 3)], [rounds_of("a2", 3)]) == []
    assert in_both([rounds_of("a1", 3)], [rounds_of("a1", 4)]) == [rounds_of("a1", 4)]
    other = Difference(code=Code.SHARD_MISSING, shard=1, partition=1, other=9)
    assert in_both([other], [rounds_of("a1", 3)]) == []


def test_the_last_line_counts_what_is_left_for_a_person() -> None:
    lost, left = (
        Difference(code=code, shard=1, partition=1, stands=4, other=7, count=1)
        for code in (Code.SHARD_FELL_BACK, Code.OUTBOX_ACKNOWLEDGED)
    )
    assert closing([], None) == "Redis and Kafka agree"
    assert closing([lost], None) == "1 difference: 1 that --repair sees to, 0 for a person to see to"
    assert closing([lost, left], None) == "2 differences: 1 that --repair sees to, 1 for a person to see to"
    assert closing([lost, left], 1) == "2 differences: 1 repaired, 1 for a person to see to"
