"""Hours, days and months as real stretches of time (rule D20)."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.zones_of_the_world import changes, different_zones, zones_and_instants
from tidegate.core.periods import DAY, HOUR, MONTH, Period
from tidegate.core.windows import DayWindow, MonthWindow, PeriodWindow
from tidegate.core.zones import local

MINUTE, MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)
periods = st.sampled_from([HOUR, DAY, MONTH])
windows = st.sampled_from([DayWindow(), MonthWindow()])
Found = tuple[ZoneInfo, datetime]


@settings(max_examples=300)
@given(zones_and_instants(), periods)
def test_every_instant_lies_in_exactly_one_period(found: Found, period: Period) -> None:
    zone, at = found
    start = period.floor(at, zone)
    end = period.next(start, zone)
    assert start <= at < end
    assert period.floor(start, zone) == start
    assert period.floor(end - MICROSECOND, zone) == start
    assert period.floor(end, zone) == end


def test_every_instant_around_every_clock_change_lies_in_exactly_one_hour_and_day() -> None:
    around = [timedelta(minutes=m) - s for m in (0, 60) for s in (timedelta(0), MICROSECOND)]
    around.append(timedelta(minutes=119))
    seen = 0
    for name in different_zones():
        zone = ZoneInfo(name)
        for change in changes(name):
            for period in (HOUR, DAY):
                start = period.floor(change, zone)
                end = period.next(start, zone)
                for away in around:
                    at = change + away
                    while at < start:
                        start, end = period.floor(start - MICROSECOND, zone), start
                    while at >= end:
                        start, end = end, period.next(end, zone)
                    assert period.floor(at, zone) == start, (name, period.name, at)
            seen += 1
    assert seen > 10_000


@settings(max_examples=200)
@given(zones_and_instants())
def test_an_hour_starts_at_the_latest_full_hour_of_the_wall_clock(found: Found) -> None:
    zone, at = found
    minute = at.replace(second=0, microsecond=0)
    while local(minute, zone).minute:
        minute -= MINUTE
    assert HOUR.floor(at, zone) == minute


@settings(max_examples=100)
@given(zones_and_instants())
def test_a_day_lasts_from_the_first_instant_of_its_date_to_that_of_a_later_one(found: Found) -> None:
    zone, at = found
    start = at.replace(second=0, microsecond=0)
    dates = [local(start - n * MINUTE, zone).date() for n in range(60 * 50)]
    latest = max(dates)
    first = start - max(n for n, day in enumerate(dates) if day == latest) * MINUTE
    assert DAY.floor(at, zone) == first


@settings(max_examples=200)
@given(zones_and_instants(), windows)
def test_a_member_counts_for_an_anchor_if_and_only_if_the_anchor_has_it(
    found: Found, window: PeriodWindow
) -> None:
    zone, at = found
    anchor = window.period.floor(at, zone)
    members = window.members(anchor, zone)
    assert list(members) == sorted(set(members))
    assert all(window.anchors(member, zone) == (anchor,) for member in members)
    member = window.member_period.floor(at, zone)
    for counted in window.anchors(member, zone):
        assert member in window.members(counted, zone)
    for edge in (members[0] - MICROSECOND, members[-1] + timedelta(days=2)):
        outside = window.member_period.floor(edge, zone)
        assert (outside in members) == (anchor in window.anchors(outside, zone))


@settings(max_examples=200)
@given(zones_and_instants(), windows)
def test_the_members_of_windows_follow_each_other_without_a_gap(found: Found, window: PeriodWindow) -> None:
    """The rest of an hour that a clock change cut off at midnight stays with the day before (D20)."""
    zone, at = found
    anchor = window.period.floor(at, zone)
    members = window.members(anchor, zone)
    assert all(anchor <= member < window.period.next(anchor, zone) for member in members)
    following = [window.member_period.next(member, zone) for member in members]
    after = window.members(window.period.next(anchor, zone), zone)
    assert following == [*members[1:], after[0]]


def hours(zone: str, day: date) -> list[str]:
    here = ZoneInfo(zone)
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=here).astimezone(UTC)
    return [local(at, here).strftime("%H") for at in DayWindow().members(DAY.floor(noon, here), here)]


ALL = [f"{n:02}" for n in range(24)]


@pytest.mark.parametrize(
    ("zone", "day", "expected"),
    [
        ("America/Los_Angeles", date(2010, 3, 14), [h for h in ALL if h != "02"]),
        ("America/Los_Angeles", date(2010, 11, 7), [*ALL[:2], *ALL[1:]]),
        ("America/New_York", date(2026, 3, 8), [h for h in ALL if h != "02"]),
        ("America/New_York", date(2026, 11, 1), [*ALL[:2], *ALL[1:]]),
        ("Australia/Lord_Howe", date(2026, 10, 4), [h for h in ALL if h != "02"]),
        ("Australia/Lord_Howe", date(2026, 4, 5), ALL),
        ("America/Havana", date(2026, 3, 8), ALL[1:]),
        ("America/Havana", date(2026, 11, 1), ["00", *ALL]),
        ("America/Sao_Paulo", date(2018, 11, 4), ALL[1:]),
        ("America/Sao_Paulo", date(2018, 2, 17), [*ALL, "23"]),
        ("Asia/Beirut", date(2026, 3, 29), ALL[1:]),
        # 00:01 became 23:01 of the day before, which had ended: the hour of midnight lasts on, and comes again.
        ("America/St_Johns", date(2010, 11, 6), ALL),
        ("America/St_Johns", date(2010, 11, 7), ["00", *ALL]),
        # 00:01 became 01:01: what is left of one o'clock belongs to midnight.
        ("America/St_Johns", date(2010, 3, 14), [h for h in ALL if h != "01"]),
        # Midnight became 00:15: what is left of the first hour belongs to the day before.
        ("Asia/Kathmandu", date(1986, 1, 1), ALL[1:]),
        ("Asia/Kathmandu", date(1985, 12, 31), ALL),
        ("Pacific/Apia", date(2011, 12, 29), ALL),
        ("Pacific/Apia", date(2011, 12, 31), ALL),
        ("Europe/Berlin", date(2024, 2, 29), ALL),
    ],
)
def test_the_hours_of_feared_days(zone: str, day: date, expected: list[str]) -> None:
    assert hours(zone, day) == expected


def test_the_rest_of_an_hour_that_lord_howe_cut_off_belongs_to_the_hour_before() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    at = datetime(2026, 10, 4, 2, 45, tzinfo=zone).astimezone(UTC)
    assert local(at, zone).minute == 45
    assert local(HOUR.floor(at, zone), zone).replace(tzinfo=None) == datetime(2026, 10, 4, 1)


def test_a_date_that_samoa_skipped_is_no_day_of_its_month() -> None:
    zone = ZoneInfo("Pacific/Apia")
    members = MonthWindow().members(MONTH.floor(datetime(2011, 12, 15, tzinfo=UTC), zone), zone)
    assert [local(at, zone).day for at in members] == [*range(1, 30), 31]


@pytest.mark.parametrize(
    ("month", "days"), [((2024, 2), 29), ((2023, 2), 28), ((2000, 2), 29), ((2026, 12), 31)]
)
def test_a_month_has_its_days(month: tuple[int, int], days: int) -> None:
    zone = ZoneInfo("Asia/Tokyo")
    anchor = MONTH.floor(datetime(*month, 10, tzinfo=UTC), zone)
    assert len(MonthWindow().members(anchor, zone)) == days


def test_an_evening_that_comes_again_after_midnight_belongs_to_the_day_that_has_begun() -> None:
    zone = ZoneInfo("America/St_Johns")
    again = datetime(2010, 11, 6, 23, 30, fold=1, tzinfo=zone).astimezone(UTC)
    assert local(DAY.floor(again, zone), zone).date() == date(2010, 11, 7)
    first = datetime(2010, 11, 6, 23, 30, fold=0, tzinfo=zone).astimezone(UTC)
    assert local(DAY.floor(first, zone), zone).date() == date(2010, 11, 6)
