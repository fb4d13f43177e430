"""A local day of hours."""

from dataclasses import dataclass

from tidegate.core.periods import DAY, HOUR
from tidegate.core.windows.base import PeriodWindow


@dataclass(frozen=True)
class DayWindow(PeriodWindow):
    """The real hours of a local day: mostly 24, at clock changes 23, 25 or another number."""

    period = DAY
    member_period = HOUR
