"""The policy that is content with some of the members."""

from dataclasses import dataclass

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.policies.base import WaitPolicy


@dataclass(frozen=True)
class MinimumCount(WaitPolicy):
    """Fire with `n` members, or with all but `-n` where `n` is negative, but never with none (rule F10).

    Raises DefinitionError for 0 and DefinitionTypeError for anything but a whole number (F30).
    """

    n: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.n, bool) or not isinstance(self.n, int):
            raise DefinitionTypeError(f"MinimumCount.n must be a whole number, not {self.n!r}")
        if self.n == 0:
            raise DefinitionError(
                "MinimumCount.n must not be 0: it would fire on nothing; use WaitForAll() to require every member"
            )

    def is_satisfied(self, matched: int, expected: int) -> bool:
        return matched >= self.needed(expected)

    def needed(self, expected: int) -> int:
        return self.n if self.n > 0 else max(1, expected + self.n)
