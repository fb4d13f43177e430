"""Instants and local calendars: where days start and what wall clocks mean."""

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.zones_of_the_world import zones, zones_and_instants
from tidegate.core.errors import DefinitionError
from tidegate.core.zones import first_instant, instant, local, steady_offset, zone_named

_SECOND = timedelta(seconds=1)
days = st.dates(date(1975, 1, 2), date(2035, 12, 30))


@given(zones_and_instants())
def test_the_wall_clock_of_an_instant_names_that_instant_or_its_twin_before(
    found: tuple[ZoneInfo, datetime],
) -> None:
    zone, at = found
    wall = local(at, zone)
    named = instant(wall.replace(tzinfo=None), zone)
    assert named == at if not wall.fold else named < at
    assert local(named, zone).replace(tzinfo=None, fold=0) == wall.replace(tzinfo=None, fold=0)


@given(zones_and_instants(), st.integers(-23, 23))
def test_a_time_with_an_offset_keeps_it(found: tuple[ZoneInfo, datetime], hours: int) -> None:
    zone, at = found
    assert instant(at.astimezone(timezone(timedelta(hours=hours))), zone) == at


@given(zones, days)
def test_no_instant_before_a_days_first_has_its_date_or_a_later_one(zone: ZoneInfo, day: date) -> None:
    first = first_instant(day, zone)
    assert local(first, zone).date() >= day
    assert local(first - _SECOND, zone).date() < day
    for hours in (1, 3, 24, 25):
        assert local(first - timedelta(hours=hours), zone).date() < day


@given(zones, days)
def test_days_start_in_the_order_of_their_dates(zone: ZoneInfo, day: date) -> None:
    assert first_instant(day, zone) <= first_instant(day + timedelta(days=1), zone)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("zone", "day", "first"),
    [
        ("UTC", date(2026, 3, 10), at(2026, 3, 10)),
        ("America/Los_Angeles", date(2026, 3, 8), at(2026, 3, 8, 8)),
        # Midnight was skipped: the day starts at one o'clock.
        ("America/Havana", date(2026, 3, 8), at(2026, 3, 8, 5)),
        ("America/Sao_Paulo", date(2018, 11, 4), at(2018, 11, 4, 3)),
        ("Asia/Beirut", date(2026, 3, 29), at(2026, 3, 28, 22)),
        # Midnight comes twice: the first one counts (F35).
        ("America/Havana", date(2026, 11, 1), at(2026, 11, 1, 4)),
        # The clocks went back at 00:01 to 23:01 of the day before: midnight comes twice here too.
        ("America/St_Johns", date(2010, 11, 7), at(2010, 11, 7, 2, 30)),
        # And forward at 00:01.
        ("America/St_Johns", date(2010, 3, 14), at(2010, 3, 14, 3, 30)),
        # The clocks went forward by 15 minutes at midnight.
        ("Asia/Kathmandu", date(1986, 1, 1), at(1985, 12, 31, 18, 30)),
        # Clocks went from 23:30 to 00:30: the day has no first half hour.
        ("America/Toronto", date(1919, 3, 31), at(1919, 3, 31, 4, 30)),
        # The whole date was skipped: its first instant is that of the next.
        ("Pacific/Apia", date(2011, 12, 30), at(2011, 12, 30, 10)),
        ("Pacific/Apia", date(2011, 12, 31), at(2011, 12, 30, 10)),
    ],
)
def test_the_first_instant_of_feared_days(zone: str, day: date, first: datetime) -> None:
    assert first_instant(day, ZoneInfo(zone)) == first


@settings(max_examples=300)
@given(zones_and_instants())
def test_with_a_steady_offset_a_time_is_shown_once_and_arithmetic_finds_it(
    found: tuple[ZoneInfo, datetime],
) -> None:
    zone, at = found
    wall = local(at, zone).replace(tzinfo=None, fold=0)
    offset = steady_offset(wall, zone)
    if offset is None:
        assert len({local(at + timedelta(days=n), zone).utcoffset() for n in range(-4, 6)}) > 1
    else:
        shown = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        assert shown == {at} == {(wall - offset).replace(tzinfo=UTC)}


def test_clocks_that_change_in_a_month_leave_its_other_days_steady() -> None:
    zone = ZoneInfo("Europe/Berlin")  # the clocks go forward on 2026-03-29
    steady = [day for day in range(1, 32) if steady_offset(datetime(2026, 3, day), zone) is not None]
    assert steady == list(range(1, 27))


@pytest.mark.parametrize("wall", [datetime.min, datetime.max])
def test_no_offset_is_steady_where_the_calendar_ends(wall: datetime) -> None:
    assert steady_offset(wall, ZoneInfo("UTC")) is None


def test_a_skipped_time_is_what_the_wall_clock_shows_instead() -> None:
    zone = ZoneInfo("America/Los_Angeles")
    assert instant(datetime(2010, 3, 14, 2), zone) == at(2010, 3, 14, 10)
    assert local(at(2010, 3, 14, 10), zone).hour == 3


def test_a_repeated_time_is_its_first_occurrence_whatever_its_fold() -> None:
    zone = ZoneInfo("America/New_York")
    assert instant(datetime(2026, 11, 1, 1, 30, fold=1), zone) == at(2026, 11, 1, 5, 30)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../a/zone", "/a/zone", "America", "utc ", "Ä", "\x00"])
def test_an_unknown_zone_is_refused_with_its_name(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not known"):
        zone_named(name)
