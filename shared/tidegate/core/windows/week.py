"""A week of days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidegate.core.periods import DAY, WEEK
from tidegate.core.windows.base import PeriodWindow, expect_time, steps


@dataclass(frozen=True)
class WeekWindow(PeriodWindow):
    """The days of a local week from Monday; a date that the zone skipped is none of them."""

    period = WEEK
    member_period = DAY
    sizes = (6, 7)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        return steps(
            expect_time(decoded_downstream, self), 7, lambda at, n: at + timedelta(days=n), self.direction
        )
