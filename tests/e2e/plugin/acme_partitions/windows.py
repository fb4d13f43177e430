"""Windows by the company's calendar."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidegate import Window


@dataclass(frozen=True)
class BusinessDaysOfMonth(Window):
    """Monday to Friday of a month, without the dates in `holidays` (`YYYY-MM-DD`)."""

    holidays: tuple[str, ...] = ()

    expected_decoded_type = datetime

    def to_upstream(self, decoded_downstream: Any) -> Iterable[datetime]:
        first: datetime = decoded_downstream
        days = (first + timedelta(days=n) for n in range(31))
        return [
            day
            for day in days
            if day.month == first.month and day.weekday() < 5 and f"{day:%Y-%m-%d}" not in self.holidays
        ]
