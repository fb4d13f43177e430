"""The calendar around every clock change of every zone, 1975 to 2035.

Zones that share a change, before and after it, are looked at once.
"""

from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from tests.unit.zones_of_the_world import changes, different_zones
from tidegate import (
    DayWindow,
    FanOutMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfWeekMapper,
    WeekWindow,
    Window,
)
from tidegate.core.periods import DAY, HOUR, MINUTE, MONTH, QUARTER, WEEK, YEAR

BACKWARD = Window.Direction.BACKWARD


class Change(NamedTuple):
    zone: str
    at: datetime
    before: timedelta
    after: timedelta

    @property
    def kind(self) -> tuple[object, ...]:
        """What tells changes apart: the offsets, the local time, the weekday, the day of the month."""
        local = self.at + self.before
        return (self.before, self.after, local.time(), local.weekday() == 0, local.day == 1)


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


@cache
def every_change() -> tuple[Change, ...]:
    distinct: dict[tuple[object, ...], Change] = {}
    for name in different_zones():
        zone = ZoneInfo(name)
        for at in changes(name):
            change = Change(name, at, _offset(at - timedelta(seconds=1), zone), _offset(at, zone))
            distinct[change[1:]] = change
    return tuple(distinct.values())


def check(change: Change) -> None:
    """The days around a change are made of their real hours, in both directions; those that it touches through keys."""
    zone = ZoneInfo(change.zone)
    start = DAY.floor(change.at - timedelta(days=1), zone)
    days = [start]
    while days[-1] <= change.at + timedelta(days=1):
        days.append(DAY.next(days[-1], zone))
    _check_hours(change, days, zone)
    _check_keys(change, days, zone)
    for period in (WEEK, MONTH, QUARTER, YEAR):
        first = period.floor(change.at, zone)
        assert first <= change.at < period.next(first, zone)
        assert period.floor(first, zone) == first
        assert DAY.floor(first, zone) == first


def _check_hours(change: Change, days: list[datetime], zone: ZoneInfo) -> None:
    hours = list(HOUR.between(days[0], days[-1], zone))
    forward, backward = DayWindow(), DayWindow(direction=BACKWARD)
    by_day = [forward.members(day, zone) for day in days[:-1]]
    assert [hour for members in by_day for hour in members] == hours  # each in exactly one day
    for day, members in zip(days, by_day, strict=False):
        assert all(forward.anchors(hour, zone) == (day,) for hour in members)
    for day in days[1:-1]:
        assert all(day in backward.anchors(hour, zone) for hour in backward.members(day, zone))
    for hour, following in pairwise(hours):
        wall = hour.astimezone(zone)
        assert wall.minute == wall.second == 0 or hour == change.at
        assert timedelta(0) < following - hour < timedelta(hours=2) or change.at - hour < timedelta(hours=30)
        assert HOUR.floor(following - timedelta(microseconds=1), zone) == hour
    minute = MINUTE.floor(change.at - timedelta(seconds=1), zone)
    assert minute < change.at <= MINUTE.next(minute, zone) + timedelta(minutes=1)


def _check_keys(change: Change, days: list[datetime], zone: ZoneInfo) -> None:
    form = "%Y-%m-%dT%H:%M:%S%z"
    if any(_offset(day, zone) % timedelta(minutes=1) for day in days):
        return  # no key can hold an offset of seconds
    day_mapper = StartOfDayMapper(timezone=change.zone, input_format=form)
    hour_mapper = StartOfHourMapper(timezone=change.zone, input_format=form)
    exact = RollupMapper(day_mapper, DayWindow())
    naive = RollupMapper(StartOfHourMapper(timezone=change.zone), DayWindow())
    fan_out = FanOutMapper(StartOfDayMapper(timezone=change.zone), DayWindow())
    touched = {DAY.floor(change.at + timedelta(hours=off), zone) for off in (-2, 0, 2)}
    for day in sorted(touched.intersection(days[:-1])):
        key = day_mapper.encode(day)
        assert day_mapper.to_partition_date(key) == day
        hours = DayWindow().members(day, zone)
        keys = [hour_mapper.encode(hour) for hour in hours]
        assert [hour_mapper.to_partition_date(one) for one in keys] == list(hours)
        assert list(fan_out.to_downstream(key)) == keys
        assert len(exact.to_upstream(key)) == len(hours)
        for hour in (hours[0], hours[len(hours) // 2], hours[-1]):
            placed = exact.placements(hour.strftime(form))
            assert [(one.key, one.member) for one in placed] == [(key, hours.index(hour))]
        merged = naive.to_upstream(key)
        assert len(merged) == len(set(merged)) <= len(hours)
        for index in (0, len(merged) // 2, len(merged) - 1):
            assert naive.placements(merged[index])[0].member == index
    for at in (change.at - timedelta(seconds=1), change.at, change.at + timedelta(minutes=59)):
        key = hour_mapper.to_downstream(at.strftime(form))
        assert hour_mapper.to_downstream(key) == key
        begin = hour_mapper.to_partition_date(key)
        assert begin <= at < HOUR.next(begin, zone)
    week = RollupMapper(StartOfWeekMapper(timezone=change.zone), WeekWindow())
    placement = week.placements(change.at.strftime("%Y-%m-%dT%H:%M:%SZ"))[0]
    assert placement.size == len(week.to_upstream(placement.key))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_clock_change() -> None:
    assert len(every_change()) > 5000
    assert len({change.kind for change in every_change()}) > 200
    for change in every_change():
        try:
            check(change)
        except AssertionError as error:
            raise AssertionError(str(change)) from error
