"""A local hour of minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidegate.core.periods import HOUR, MINUTE
from tidegate.core.windows.base import PeriodWindow, expect_time, steps


@dataclass(frozen=True)
class HourWindow(PeriodWindow):
    """The real minutes of a local hour: mostly 60."""

    period = HOUR
    member_period = MINUTE
    sizes = (30, 120)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        return steps(
            expect_time(decoded_downstream, self), 60, lambda at, n: at + timedelta(minutes=n), self.direction
        )
