"""A quarter of months."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.core.periods import MONTH, QUARTER
from tidegate.core.windows.base import PeriodWindow, add_months, expect_first_of_month, steps


@dataclass(frozen=True)
class QuarterWindow(PeriodWindow):
    """The three months of a calendar quarter."""

    period = QUARTER
    member_period = MONTH
    sizes = (3, 3)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        return steps(expect_first_of_month(decoded_downstream, self), 3, add_months, self.direction)
