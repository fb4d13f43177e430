"""RollupMapper: where a key counts, and which keys a downstream key is made of."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.zones_of_the_world import zones_and_instants
from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.mappers import (
    IdentityMapper,
    PartitionMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    StartOfQuarterMapper,
)
from tidegate.core.mappers.membership import CalendarMembership
from tidegate.core.mappers.temporal import MAPPER_OF_PERIOD
from tidegate.core.periods import DAY
from tidegate.core.policies import WaitForAll, WaitPolicy
from tidegate.core.windows import (
    CalendarWindow,
    DayWindow,
    HourWindow,
    MonthWindow,
    QuarterWindow,
    WeekWindow,
    Window,
    YearWindow,
)
from tidegate.core.windows.base import PeriodWindow
from tidegate.core.zones import local

Found = tuple[ZoneInfo, datetime]
WITH_OFFSET = "%Y-%m-%dT%H:%M:%S%z"
SPELLINGS = (
    (StartOfDayMapper, DayWindow()),
    (StartOfHourMapper, DayWindow()),
    (StartOfMonthMapper, MonthWindow()),
    (StartOfDayMapper, MonthWindow()),
)


def rollup(kind: type, window: Window, zone: object, with_offset: bool = False) -> RollupMapper:
    form = {"input_format": WITH_OFFSET} if with_offset else {}
    return RollupMapper(kind(timezone=str(zone), **form), window)


@settings(max_examples=150)
@given(zones_and_instants(), st.sampled_from(SPELLINGS), st.booleans())
def test_a_key_counts_for_the_member_that_to_upstream_names_at_its_place(
    found: Found, spelling: tuple[type, Window], with_offset: bool
) -> None:
    zone, at = found
    mapper = rollup(*spelling, zone, with_offset)
    (placed,) = mapper.placements(at.isoformat())
    names = mapper.to_upstream(placed.key)
    assert len(names) == len(set(names)) == placed.size == placed.needed
    (of_name,) = mapper.placements(names[placed.member])
    assert of_name == placed
    assert mapper.to_downstream(at.isoformat()) == placed.key


@settings(max_examples=120)
@given(zones_and_instants(), st.sampled_from(SPELLINGS), st.booleans())
def test_every_name_of_to_upstream_counts_for_its_own_place(
    found: Found, spelling: tuple[type, Window], with_offset: bool
) -> None:
    zone, at = found
    mapper = rollup(*spelling, zone, with_offset)
    key = mapper.to_downstream(at.isoformat())
    names = mapper.to_upstream(key)
    placed = [mapper.placements(name) for name in names]
    assert [(p.key, p.member, p.size) for (p,) in placed] == [(key, n, len(names)) for n in range(len(names))]


@settings(max_examples=400)
@given(
    zones_and_instants(),
    st.sampled_from((HourWindow, DayWindow, WeekWindow, MonthWindow, QuarterWindow, YearWindow)),
    st.sampled_from((10, 13, 16, 19)),
    st.lists(st.timedeltas(timedelta(days=-3), timedelta(days=3)), max_size=5),
)
def test_a_key_is_placed_by_its_wall_clock_alone_as_it_is_by_its_instant(
    found: Found, kind: type[CalendarWindow], length: int, nearby: list[timedelta]
) -> None:
    zone, at = found
    window = kind()
    mapper = MAPPER_OF_PERIOD[window.period.name](timezone=str(zone))
    membership = CalendarMembership(mapper, window)
    for each in (at, *(at + away for away in nearby)):
        wall = local(each, zone).replace(tzinfo=None).isoformat()[:length]
        keys = (
            (wall, each.isoformat()) if length > 10 or window.period.rank >= DAY.rank else (each.isoformat(),)
        )
        for key in keys:
            assert membership.places(key) == membership._places_at(mapper.decode(key))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_most_keys_are_placed_by_their_wall_clock_alone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mapper = rollup(StartOfHourMapper, DayWindow(), zone)
    start = datetime(2026, 5, 31)
    mapper.placements(start.isoformat())
    monkeypatch.setattr(CalendarMembership, "_places_at", None)  # any other way fails
    for hours in range(72):
        (placed,) = mapper.placements((start + timedelta(hours=hours)).isoformat())
        assert (placed.key, placed.member) == (f"{start + timedelta(hours=hours):%Y-%m-%d}", hours % 24)


class _ReadsOtherwise(StartOfHourMapper):
    """A mapper of a user's own, whose keys are a day late."""

    def decode(self, key: str, *, is_own: bool = False) -> datetime:
        return super().decode(key, is_own=is_own) - timedelta(days=0 if is_own else 1)


def test_a_key_at_the_end_of_the_calendar_is_refused_in_the_same_words_in_every_form() -> None:
    mapper = RollupMapper(StartOfQuarterMapper(), QuarterWindow())
    told = set()
    for key in ("9999-12-31T00:00:00", "9999-12-31T00:00:00Z"):
        with pytest.raises(InvalidPartitionKeyError) as raised:
            mapper.placements(key)
        told.add(str(raised.value).replace(key, "KEY"))
    assert len(told) == 1


def test_a_mapper_that_reads_keys_itself_is_asked_for_every_key() -> None:
    mapper = RollupMapper(_ReadsOtherwise(), DayWindow())
    for hour in (0, 5):
        (placed,) = mapper.placements(f"2026-03-10T{hour:02}:00:00")
        assert (placed.key, placed.member) == ("2026-03-09", hour)


@settings(max_examples=120)
@given(zones_and_instants(), st.booleans())
def test_both_spellings_place_a_key_alike(found: Found, with_offset: bool) -> None:
    zone, at = found
    key = at.isoformat()
    for first, second in (SPELLINGS[:2], SPELLINGS[2:]):
        one, other = rollup(*first, zone, with_offset), rollup(*second, zone, with_offset)
        assert one.placements(key) == other.placements(key)
        assert one.to_upstream(one.to_downstream(key)) == other.to_upstream(one.to_downstream(key))


@given(zones_and_instants(), st.sampled_from(SPELLINGS))
def test_the_date_of_a_downstream_key_is_the_first_instant_of_its_period(
    found: Found, spelling: tuple[type, Window]
) -> None:
    zone, at = found
    mapper = rollup(*spelling, zone, with_offset=True)
    (placed,) = mapper.placements(at.isoformat())
    start = mapper.to_partition_date(placed.key)
    window = spelling[1]
    assert isinstance(window, PeriodWindow)
    assert start == window.period.floor(start, zone)
    member = window.member_period.floor(at, zone)
    assert start == window.period.floor(member, zone)


def test_minutes_that_the_input_format_cannot_tell_apart_have_names() -> None:
    members = RollupMapper(StartOfHourMapper(input_format="%Y-%m-%d"), HourWindow()).to_upstream(
        "2026-03-10T09"
    )
    assert members == tuple(f"2026-03-10T09:{minute:02}" for minute in range(60))
    assert len(set(members)) == 60


def test_the_day_of_the_example_has_23_members_and_its_nonexistent_hour_counts_for_the_next() -> None:
    mapper = rollup(StartOfDayMapper, DayWindow(), "America/Los_Angeles")
    names = mapper.to_upstream("2010-03-14")
    assert len(names) == 23
    assert names[1:3] == ("2010-03-14T01:00:00", "2010-03-14T03:00:00")
    assert mapper.placements("2010-03-14T02:00:00") == mapper.placements("2010-03-14T03:00:00")
    assert mapper.to_partition_date("2010-03-14") == datetime(2010, 3, 14, 8, tzinfo=UTC)
    # In local time without an offset the repeated hour of autumn is one member.
    assert len(mapper.to_upstream("2010-11-07")) == 24


def test_keys_with_an_offset_give_a_member_to_each_occurrence_of_a_repeated_hour() -> None:
    mapper = rollup(StartOfDayMapper, DayWindow(), "America/New_York", with_offset=True)
    names = mapper.to_upstream("2026-11-01")
    assert len(names) == 25
    assert names[1:3] == ("2026-11-01T01:00:00-0400", "2026-11-01T01:00:00-0500")
    assert not mapper.merges_repeated_hours
    assert rollup(StartOfDayMapper, DayWindow(), "America/New_York").merges_repeated_hours


def test_without_an_offset_each_of_two_repeated_hours_counts_for_its_own_first_occurrence() -> None:
    mapper = rollup(StartOfDayMapper, DayWindow(), "Antarctica/Troll")  # 03:00 becomes 01:00
    for again, first in (("00:30", "02"), ("01:30", "01"), ("02:30", "02")):
        assert mapper.placements(f"2026-10-25T{again}:00Z") == mapper.placements(f"2026-10-25T{first}:00:00")


def test_lord_howe_has_23_hours_in_spring_and_24_in_autumn() -> None:
    mapper = rollup(StartOfDayMapper, DayWindow(), "Australia/Lord_Howe")
    spring = mapper.to_upstream("2026-10-04")
    assert (len(spring), len(mapper.to_upstream("2026-04-05"))) == (23, 24)
    (placed,) = mapper.placements("2026-10-04T02:45:00")
    assert spring[placed.member] == "2026-10-04T01:00:00"


def test_the_month_in_which_samoa_skipped_a_day_has_30_members() -> None:
    mapper = rollup(StartOfMonthMapper, MonthWindow(), "Pacific/Apia")
    names = mapper.to_upstream("2011-12")
    assert len(names) == 30
    assert not [name for name in names if name.startswith("2011-12-30")]
    assert mapper.placements("2011-12-30") == mapper.placements("2011-12-31")


@pytest.mark.parametrize(
    ("key", "size"), [("2024-02", 29), ("2023-02", 28), ("2026-04", 30), ("2026-12", 31)]
)
def test_a_month_asks_for_its_days(key: str, size: int) -> None:
    (placed,) = RollupMapper(StartOfMonthMapper(), MonthWindow()).placements(f"{key}-15")
    assert placed == (key, 14, size, size)


@pytest.mark.parametrize("kind", [StartOfDayMapper, StartOfHourMapper])
def test_members_are_named_in_the_form_that_producers_write(kind: type) -> None:
    assert RollupMapper(kind(), DayWindow()).to_upstream("2026-03-10")[9] == "2026-03-10T09:00:00"
    mapper = RollupMapper(kind(input_format="%Y%m%d-%H"), DayWindow())
    assert mapper.to_upstream("2026-03-10")[9] == "20260310-09"
    (placed,) = mapper.placements("20260310-09")
    assert placed == ("2026-03-10", 9, 24, 24)


def test_a_form_that_cannot_tell_members_apart_does_not_name_them() -> None:
    mapper = RollupMapper(StartOfDayMapper(input_format="%Y-%m-%d"), DayWindow())
    assert mapper.to_upstream("2026-03-10")[9] == "2026-03-10T09"


def test_a_finer_key_counts_for_the_member_that_holds_it() -> None:
    mapper = RollupMapper(StartOfMonthMapper(), MonthWindow())
    assert mapper.placements("2026-03-10T23:59:59.999999") == mapper.placements("2026-03-10")


def test_the_output_format_of_the_periods_own_mapper_names_the_downstream_key() -> None:
    mapper = RollupMapper(StartOfDayMapper(output_format="%d/%m/%Y"), DayWindow())
    assert mapper.to_downstream("2026-03-10T09:00:00") == "10/03/2026"
    assert len(mapper.to_upstream("10/03/2026")) == 24


@pytest.mark.parametrize(
    ("mapper", "window", "ways_out"),
    [
        (StartOfMonthMapper(), DayWindow(), ("StartOfDayMapper", "StartOfHourMapper")),
        (StartOfHourMapper(), MonthWindow(), ("StartOfMonthMapper", "StartOfDayMapper")),
    ],
)
def test_any_other_granularity_is_refused_and_names_the_two_that_work(
    mapper: PartitionMapper, window: Window, ways_out: tuple[str, str]
) -> None:
    with pytest.raises(DefinitionError) as refused:
        RollupMapper(mapper, window)
    assert all(way in str(refused.value) for way in ways_out)


def test_a_mapper_that_reads_no_times_is_a_type_error() -> None:
    with pytest.raises(DefinitionTypeError, match="reads keys as times"):
        RollupMapper(IdentityMapper(), DayWindow())
    with pytest.raises(DefinitionTypeError, match="put the rollup outermost"):
        RollupMapper(RollupMapper(StartOfDayMapper(), DayWindow()), DayWindow())


def test_parts_of_the_wrong_kind_are_type_errors_that_name_the_part() -> None:
    with pytest.raises(DefinitionTypeError, match=r"RollupMapper\.upstream_mapper"):
        RollupMapper("day", DayWindow())  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match=r"RollupMapper\.window"):
        RollupMapper(StartOfDayMapper(), StartOfDayMapper())  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match=r"RollupMapper\.wait_policy"):
        RollupMapper(StartOfDayMapper(), DayWindow(), 24)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["0001-01-01T00:00:00", "9999-12-31T23:00:00", "9999-12"])
def test_an_end_of_the_calendar_never_overflows(key: str) -> None:
    for kind, window in SPELLINGS:
        mapper = rollup(kind, window, "Asia/Tokyo")
        for read in (mapper.placements, mapper.to_downstream, mapper.to_upstream, mapper.to_partition_date):
            try:
                read(key)
            except InvalidPartitionKeyError as refused:
                assert repr(key) in str(refused)  # noqa: PT017 - both ways are right


class AtLeast(WaitPolicy):
    """Some members are enough."""

    def is_satisfied(self, matched: int, expected: int) -> bool:
        return matched >= 10


@given(st.integers(1, 40))
def test_the_needed_count_is_the_smallest_that_satisfies_the_policy(expected: int) -> None:
    for policy in (WaitForAll(), AtLeast()):
        needed = policy.needed(expected)
        assert 1 <= needed <= expected + 1
        assert needed == expected + 1 or policy.is_satisfied(needed, expected)
        assert needed == 1 or not policy.is_satisfied(needed - 1, expected)


def test_the_needed_count_of_a_policy_travels_with_the_placement() -> None:
    (placed,) = RollupMapper(StartOfDayMapper(), DayWindow(), AtLeast()).placements("2026-03-10T05")
    assert placed == ("2026-03-10", 5, 24, 10)


def test_a_year_has_one_day_of_23_hours_and_one_of_25() -> None:
    mapper = rollup(StartOfDayMapper, DayWindow(), "America/New_York", with_offset=True)
    days = [(datetime(2024, 1, 1) + timedelta(days=n)).strftime("%Y-%m-%d") for n in range(366)]
    sizes = Counter(len(mapper.to_upstream(day)) for day in days)
    assert sizes == {23: 1, 24: 364, 25: 1}
