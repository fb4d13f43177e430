"""A sliding window: every period is an anchor, and one event feeds several of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.periods import PERIODS, Period
from tidegate.core.windows.base import (
    UTC_ZONE,
    CalendarWindow,
    WindowDirection,
    add_months,
    expect_first_of_month,
    expect_time,
    steps,
)

_STEPS: Final = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
MAX_SIZE: Final = 10_000


@dataclass(frozen=True)
class RollingWindow(CalendarWindow):
    """`size` periods of one kind, up to the anchor or, forward, from it on.

    `RollingWindow(7)` at 2026-03-10 has the days 2026-03-04 to 2026-03-10, and the event of a day counts for that day
    and the six that follow. `unit` is minute, hour, day, week, month, quarter or year; the mapper beside it has the
    same. Raises DefinitionError for a size below 1 or above 10,000, or an unknown unit,
    DefinitionTypeError for one that is no whole number.
    """

    size: int
    unit: str = "day"
    direction: WindowDirection = field(default=WindowDirection.BACKWARD, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.size, bool) or not isinstance(self.size, int):
            raise DefinitionTypeError(f"RollingWindow.size must be a whole number, not {self.size!r}")
        if not 1 <= self.size <= MAX_SIZE:
            raise DefinitionError(f"RollingWindow.size {self.size} must lie between 1 and {MAX_SIZE}")
        if not isinstance(self.unit, str) or self.unit not in PERIODS:
            raise DefinitionError(
                f"RollingWindow.unit {self.unit!r} is not known: use one of {', '.join(PERIODS)}"
            )

    @property
    def period(self) -> Period:
        return PERIODS[self.unit]

    @property
    def member_period(self) -> Period:
        return PERIODS[self.unit]

    @property
    def sizes(self) -> tuple[int, int]:
        return (self.size, self.size)

    def members(self, anchor: datetime, zone: ZoneInfo = UTC_ZONE) -> Sequence[datetime]:
        return self._reach(anchor, zone, forward=self.direction is WindowDirection.FORWARD)

    def anchors(self, member: datetime, zone: ZoneInfo = UTC_ZONE) -> Sequence[datetime]:
        return self._reach(member, zone, forward=self.direction is WindowDirection.BACKWARD)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        if self.unit in _STEPS:
            step = _STEPS[self.unit]
            return steps(
                expect_time(decoded_downstream, self), self.size, lambda at, n: at + n * step, self.direction
            )
        months = _MONTHS[self.unit]
        first = expect_first_of_month(decoded_downstream, self)
        return steps(first, self.size, lambda at, n: add_months(at, n * months), self.direction)

    def _reach(self, at: datetime, zone: ZoneInfo, *, forward: bool) -> tuple[datetime, ...]:
        """`size` period starts from `at` on, or up to it; oldest first."""
        found = [at]
        while len(found) < self.size:
            at = self.period.next(at, zone) if forward else self.period.previous(at, zone)
            found.append(at)
        return tuple(found if forward else reversed(found))
