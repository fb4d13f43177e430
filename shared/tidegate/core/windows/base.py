"""What a window is: the relation between an anchor and its members (docs/rules.md, Meaning)."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from zoneinfo import ZoneInfo

from tidegate.core.periods import Period
from tidegate.core.plain import Plain


@dataclass(frozen=True)
class Window(Plain, ABC, is_base=True):
    """The members that make up one downstream key."""


@dataclass(frozen=True)
class PeriodWindow(Window, is_base=True):
    """One calendar period, made of the finer periods that start in it.

    Both directions of the relation hold: m in members(a) <=> a in anchors(m). Anchors and members are the UTC
    instants at which the periods start in `zone`.
    """

    period: ClassVar[Period]
    member_period: ClassVar[Period]

    def members(self, anchor: datetime, zone: ZoneInfo) -> Sequence[datetime]:
        """Every member of `anchor`, oldest first."""
        end = self.period.next(anchor, zone)
        return tuple(at for at in self.member_period.between(anchor, end, zone))

    def anchors(self, member: datetime, zone: ZoneInfo) -> Sequence[datetime]:
        """Every anchor that `member` counts for."""
        return (self.period.floor(member, zone),)
