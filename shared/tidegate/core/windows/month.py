"""A local month of days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidegate.core.periods import DAY, MONTH
from tidegate.core.windows.base import PeriodWindow, WindowDirection, add_months, expect_first_of_month, steps


@dataclass(frozen=True)
class MonthWindow(PeriodWindow):
    """The days of a local month, 28 to 31; a date that the zone skipped is none of them."""

    period = MONTH
    member_period = DAY
    sizes = (27, 31)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        anchor = expect_first_of_month(decoded_downstream, self)
        if self.direction is WindowDirection.FORWARD:
            days = (add_months(anchor, 1) - anchor).days
        else:
            days = (anchor - add_months(anchor, -1)).days
        return steps(anchor, days, lambda at, n: at + timedelta(days=n), self.direction)
