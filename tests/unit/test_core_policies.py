"""Wait policies: how many members are enough, and for how long to wait."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Deadline, DefinitionError, DefinitionTypeError, MinimumCount, WaitForAll, WaitPolicy
from tidegate.core.plain import from_plain, plain

sizes = st.integers(1, 100)
policies = st.just(WaitForAll()) | st.integers(-120, 120).filter(bool).map(MinimumCount)


def wrong(value: Any) -> Any:
    """A value that the type checker would refuse."""
    return value


@given(policy=policies, size=sizes)
def test_needed_is_the_smallest_number_that_satisfies(policy: WaitPolicy, size: int) -> None:
    enough = [count for count in range(1, size + 1) if policy.is_satisfied(count, size)]
    assert policy.needed(size) == enough[0] if enough else policy.needed(size) > size
    assert policy.is_unreachable(size) is not bool(enough)
    assert not policy.is_satisfied(0, size)
    assert enough == list(range(size + 1 - len(enough), size + 1))  # more arrivals keep it so


@given(size=sizes, missing=sizes)
def test_a_negative_count_leaves_that_many_out_but_never_all(size: int, missing: int) -> None:
    assert MinimumCount(-missing).needed(size) == max(1, size - missing)


@dataclass(frozen=True)
class Half(WaitPolicy):
    def is_satisfied(self, matched: int, expected: int) -> bool:
        return 2 * matched >= expected


class Share(WaitPolicy):
    def __init__(self, share: float) -> None:
        super().__init__()
        object.__setattr__(self, "share", share)

    def is_satisfied(self, matched: int, expected: int) -> bool:
        share: float = self.__dict__["share"]
        return matched >= share * expected


def test_custom_policies_need_one_method() -> None:
    assert Half().needed(7) == 4
    assert not Half().is_unreachable(7)
    assert from_plain(plain(Half())) == Half()
    assert Share(0.5) != Share(0.9)
    assert Share(2).is_unreachable(5)


def test_a_deadline_is_data() -> None:
    policy = MinimumCount(2).or_after(timedelta(hours=6), then="drop", since="window_end")
    assert policy.deadline == Deadline(timedelta(hours=6), "drop", "window_end")
    assert policy.n == 2
    assert policy != MinimumCount(2)
    assert from_plain(plain(policy)) == policy
    assert WaitForAll().deadline is None
    assert WaitForAll().or_after(timedelta(minutes=1)).deadline == Deadline(
        timedelta(minutes=1), "fire", "first_member"
    )


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: MinimumCount(0), DefinitionError, "use WaitForAll"),
        (lambda: MinimumCount(wrong(1.5)), DefinitionTypeError, "MinimumCount.n must be a whole number, not 1.5"),
        (lambda: MinimumCount(wrong("2")), DefinitionTypeError, "not '2'"),
        (lambda: MinimumCount(True), DefinitionTypeError, "not True"),
        (lambda: MinimumCount(wrong(None)), DefinitionTypeError, "not None"),
        (lambda: WaitForAll().or_after(timedelta(0)), DefinitionError, "Deadline.after 0:00:00 must be positive"),
        (lambda: WaitForAll().or_after(wrong(60)), DefinitionTypeError, "Deadline.after must be a timedelta"),
        (lambda: WaitForAll().or_after(timedelta(1), then="panic"), DefinitionError, "use one of fire, fail, drop"),
        (lambda: WaitForAll().or_after(timedelta(1), since="noon"), DefinitionError, "Deadline.since 'noon'"),
        (lambda: WaitForAll(deadline=wrong("soon")), DefinitionTypeError, "WaitForAll.deadline must be a Deadline"),
    ],
)  # fmt: skip
def test_wrong_policies_name_the_field_and_the_value(
    build: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        build()  # type: ignore[operator]
