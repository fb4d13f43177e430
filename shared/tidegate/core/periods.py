"""Calendar periods as real stretches of time in a zone (rule D20).

A period is named by its first instant. Hours start where the wall clock shows a full hour; what a clock change cut
off belongs to the hour before it. Days and longer start at the first real instant of their first local date.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from tidegate.core.zones import first_instant, local, transition_between

_HOUR = timedelta(hours=1)
_MICROSECOND = timedelta(microseconds=1)


class Period(ABC):
    """One granularity of the calendar: where a period starts, and where the next one does."""

    name: ClassVar[str]
    rank: ClassVar[int]
    """Finer periods have smaller ranks; a key may be of the mapper's rank or finer."""

    @abstractmethod
    def floor(self, at: datetime, zone: ZoneInfo) -> datetime:
        """The start of the period that contains the instant `at`."""

    @abstractmethod
    def next(self, start: datetime, zone: ZoneInfo) -> datetime:
        """The start of the period after the one that starts at `start`."""

    def between(self, start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Every period that starts in [start, end), oldest first."""
        at = self.floor(start, zone)
        if at < start:
            at = self.next(at, zone)
        while at < end:
            yield at
            at = self.next(at, zone)


class Hour(Period):
    name = "hour"
    rank = 1

    def floor(self, at: datetime, zone: ZoneInfo) -> datetime:
        wall = local(at, zone)
        start = at - timedelta(minutes=wall.minute, seconds=wall.second, microseconds=wall.microsecond)
        if local(start, zone).utcoffset() == wall.utcoffset():
            return start
        change = transition_between(start, at, zone)
        wall = local(change, zone)
        if wall.minute == wall.second == 0:
            return change
        return self.floor(change - _MICROSECOND, zone)

    def next(self, start: datetime, zone: ZoneInfo) -> datetime:
        following = self.floor(start + _HOUR, zone)
        # After a change of less than an hour the next full hour may be up to two hours away.
        return following if following > start else self.floor(start + 2 * _HOUR, zone)


class _DatePeriod(Period):
    """A period that starts with a local date."""

    @abstractmethod
    def first_date(self, day: date) -> date:
        """The first date of the period that contains `day`."""

    @abstractmethod
    def next_date(self, first: date) -> date:
        """The first date of the period after the one that starts on `first`."""

    def floor(self, at: datetime, zone: ZoneInfo) -> datetime:
        wall = local(at, zone)
        first = self.first_date(wall.date())
        if wall.fold:
            # Clocks that went back over midnight repeat an evening: the next period has already begun.
            following = first_instant(self.next_date(first), zone)
            if following <= at:
                return following
        return first_instant(first, zone)

    def next(self, start: datetime, zone: ZoneInfo) -> datetime:
        first = self.first_date(local(start, zone).date())
        return first_instant(self.next_date(first), zone)


class Day(_DatePeriod):
    name = "day"
    rank = 2

    def first_date(self, day: date) -> date:
        return day

    def next_date(self, first: date) -> date:
        return first + timedelta(days=1)


class Month(_DatePeriod):
    name = "month"
    rank = 4

    def first_date(self, day: date) -> date:
        return day.replace(day=1)

    def next_date(self, first: date) -> date:
        return (first.replace(day=28) + timedelta(days=4)).replace(day=1)


HOUR, DAY, MONTH = Hour(), Day(), Month()
