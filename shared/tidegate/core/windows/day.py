"""A local day of hours."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidegate.core.periods import DAY, HOUR
from tidegate.core.windows.base import PeriodWindow, expect_time, steps


@dataclass(frozen=True)
class DayWindow(PeriodWindow):
    """The real hours of a local day: mostly 24, at clock changes 23, 25 or another number."""

    period = DAY
    member_period = HOUR
    sizes = (20, 28)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        return steps(
            expect_time(decoded_downstream, self), 24, lambda at, n: at + timedelta(hours=n), self.direction
        )
