"""A local month of days."""

from dataclasses import dataclass

from tidegate.core.periods import DAY, MONTH
from tidegate.core.windows.base import PeriodWindow


@dataclass(frozen=True)
class MonthWindow(PeriodWindow):
    """The days of a local month, 28 to 31; a date that the zone skipped is none of them."""

    period = MONTH
    member_period = DAY
