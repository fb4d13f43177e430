"""The policy that asks for every member."""

from dataclasses import dataclass

from tidegate.core.policies.base import WaitPolicy


@dataclass(frozen=True)
class WaitForAll(WaitPolicy):
    """Fire when every member of the window is in."""

    def is_satisfied(self, matched: int, expected: int) -> bool:
        return matched == expected

    def is_unreachable(self, expected: int) -> bool:
        return False
