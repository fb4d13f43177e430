"""What a wait policy is: how many members of a window are enough."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tidegate.core.plain import Plain


@dataclass(frozen=True)
class WaitPolicy(Plain, ABC, is_base=True):
    """A monotone claim about (arrived, expected): once satisfied, more arrivals keep it so."""

    @abstractmethod
    def is_satisfied(self, matched: int, expected: int) -> bool:
        """Whether `matched` of `expected` members let the window fire."""

    def needed(self, expected: int) -> int:
        """The smallest number of members that satisfies the policy, at least 1; expected + 1 where none does."""
        low, high = 1, expected + 1
        while low < high:
            middle = (low + high) // 2
            if self.is_satisfied(middle, expected):
                high = middle
            else:
                low = middle + 1
        return low
