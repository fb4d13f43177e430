"""A year of months."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.core.periods import MONTH, YEAR
from tidegate.core.windows.base import PeriodWindow, add_months, expect_first_of_month, steps


@dataclass(frozen=True)
class YearWindow(PeriodWindow):
    """The twelve months of a calendar year."""

    period = YEAR
    member_period = MONTH
    sizes = (12, 12)

    def to_upstream(self, decoded_downstream: Any) -> Sequence[datetime]:
        return steps(expect_first_of_month(decoded_downstream, self), 12, add_months, self.direction)
