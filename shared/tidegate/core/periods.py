"""Calendar periods as real stretches of time in a zone (rule D20).

A period is named by its first instant. Minutes and hours start where the wall clock shows a full one; what a clock
change cut off belongs to the one before it. Days and longer start at the first real instant of their first local date.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from tidegate.core.zones import first_instant, local, transition_between

_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)


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

    @abstractmethod
    def number(self, wall: datetime) -> int:
        """Tells the period that a wall-clock time lies in from all others, where clocks do not change nearby."""

    def previous(self, start: datetime, zone: ZoneInfo) -> datetime:
        """The start of the period before the one that starts at `start`."""
        return self.floor(start - _MICROSECOND, zone)

    def ceil(self, at: datetime, zone: ZoneInfo) -> datetime:
        """The first period start at or after the instant `at`."""
        start = self.floor(at, zone)
        return start if start == at else self.next(start, zone)

    def ceil_after(self, at: datetime, zone: ZoneInfo) -> datetime:
        """The first period start after the instant `at`."""
        return self.next(self.floor(at, zone), zone)

    def between(self, start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Every period that starts in [start, end), oldest first."""
        at = self.floor(start, zone)
        if at < start:
            at = self.next(at, zone)
        while at < end:
            yield at
            at = self.next(at, zone)


class _ClockPeriod(Period):
    """A period that starts where the wall clock shows a full `length`."""

    length: ClassVar[timedelta]

    @abstractmethod
    def elapsed(self, wall: datetime) -> timedelta:
        """How long ago, by the wall clock, the last full `length` was."""

    def floor(self, at: datetime, zone: ZoneInfo) -> datetime:
        wall = local(at, zone)
        elapsed = self.elapsed(wall)
        if not elapsed:
            return at
        start = at - elapsed
        if local(start, zone).utcoffset() == wall.utcoffset():
            return start
        change = transition_between(start, at, zone)
        return self.floor(change - _MICROSECOND, zone) if self.elapsed(local(change, zone)) else change

    def between(self, start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        at = self.ceil(start, zone)
        while at < end:
            until = min(at + _DAY, end)
            # No zone changes its clocks to and fro within a day: equal offsets mean that nothing changed in between.
            if local(at, zone).utcoffset() == local(until, zone).utcoffset():
                while at < until:
                    yield at
                    at += self.length
            else:
                while at < until:
                    yield at
                    at = self.next(at, zone)

    def next(self, start: datetime, zone: ZoneInfo) -> datetime:
        following = self.floor(start + self.length, zone)
        # After a change of less than a period the next full one may be up to two periods away.
        return following if following > start else self.floor(start + 2 * self.length, zone)


class Minute(_ClockPeriod):
    name = "minute"
    rank = 0
    length = timedelta(minutes=1)

    def number(self, wall: datetime) -> int:
        return (wall.toordinal() * 24 + wall.hour) * 60 + wall.minute

    def elapsed(self, wall: datetime) -> timedelta:
        return timedelta(0, wall.second, wall.microsecond)


class Hour(_ClockPeriod):
    name = "hour"
    rank = 1
    length = timedelta(hours=1)

    def number(self, wall: datetime) -> int:
        return wall.toordinal() * 24 + wall.hour

    def elapsed(self, wall: datetime) -> timedelta:
        return timedelta(0, 60 * wall.minute + wall.second, wall.microsecond)


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

    def number(self, wall: datetime) -> int:
        return wall.toordinal()

    def first_date(self, day: date) -> date:
        return day

    def next_date(self, first: date) -> date:
        return first + timedelta(days=1)


class Week(_DatePeriod):
    """A week from Monday (ISO 8601)."""

    name = "week"
    rank = 3

    def number(self, wall: datetime) -> int:
        return (wall.toordinal() - 1) // 7

    def first_date(self, day: date) -> date:
        return day - timedelta(days=day.weekday())

    def next_date(self, first: date) -> date:
        return first + timedelta(days=7)


class Month(_DatePeriod):
    name = "month"
    rank = 4

    def number(self, wall: datetime) -> int:
        return wall.year * 12 + wall.month

    def first_date(self, day: date) -> date:
        return day.replace(day=1)

    def next_date(self, first: date) -> date:
        return (first.replace(day=28) + timedelta(days=4)).replace(day=1)


class Quarter(_DatePeriod):
    name = "quarter"
    rank = 5

    def number(self, wall: datetime) -> int:
        return wall.year * 4 + (wall.month - 1) // 3

    def first_date(self, day: date) -> date:
        return day.replace(month=day.month - (day.month - 1) % 3, day=1)

    def next_date(self, first: date) -> date:
        return first.replace(month=first.month + 3) if first.month < 10 else first.replace(first.year + 1, 1)


class Year(_DatePeriod):
    name = "year"
    rank = 6

    def number(self, wall: datetime) -> int:
        return wall.year

    def first_date(self, day: date) -> date:
        return day.replace(month=1, day=1)

    def next_date(self, first: date) -> date:
        return first.replace(first.year + 1)


MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR = Minute(), Hour(), Day(), Week(), Month(), Quarter(), Year()

PERIODS: Final[Mapping[str, Period]] = {
    period.name: period for period in (MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR)
}
