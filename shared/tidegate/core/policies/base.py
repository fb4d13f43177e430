"""What a wait policy is: how many members of a window are enough, and how long to wait for them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from tidegate.core.plain import Plain, expect
from tidegate.core.policies.deadline import Deadline
from tidegate.core.state import compare_by_state


@dataclass(frozen=True)
class WaitPolicy(Plain, ABC, is_base=True):
    """A claim about (arrived, expected) that stays true when more members arrive."""

    deadline: Deadline | None = field(default=None, kw_only=True)
    """What happens when the round has waited long enough; None to wait for ever."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        compare_by_state(cls)

    def __post_init__(self) -> None:
        if self.deadline is not None:
            expect(self.deadline, Deadline, f"{type(self).__name__}.deadline")

    @abstractmethod
    def is_satisfied(self, matched: int, expected: int) -> bool:
        """Whether `matched` of `expected` members let a round fire."""

    def is_unreachable(self, expected: int) -> bool:
        """Whether no number of arrivals can ever satisfy the policy for a window of `expected` members."""
        return self.needed(expected) > expected

    def needed(self, expected: int) -> int:
        """The smallest number of members that satisfies the policy, from 1; more than `expected` where none does."""
        low, high = 1, expected + 1
        while low < high:
            middle = (low + high) // 2
            if self.is_satisfied(middle, expected):
                high = middle
            else:
                low = middle + 1
        return low

    def or_after(self, duration: timedelta, *, then: str = "fire", since: str = "first_member") -> Self:
        """This policy with a deadline: after `duration` the round is fired, failed or dropped as it is."""
        return replace(self, deadline=Deadline(duration, then=then, since=since))
