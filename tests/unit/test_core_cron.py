"""Cron expressions at real instants: rule D11, and the dates that people fear."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.rules.cron import _Ticks
from tidegate import DefinitionError, DefinitionTypeError
from tidegate.core.cron import PRESETS, Cron, Crons
from tidegate.core.periods import HOUR

NEW_YORK = "America/New_York"
CHANGES = [
    (NEW_YORK, "2026-03-08T07:00"),
    (NEW_YORK, "2026-11-01T06:00"),
    ("Europe/London", "2026-03-29T01:00"),
    ("Europe/London", "2026-10-25T01:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/Havana", "2026-03-08T05:00"),
    ("America/Havana", "2026-11-01T05:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(cron: Cron | Crons, after: str, count: int) -> list[str]:
    """The next ticks after an instant, as UTC clock times."""
    found = []
    tick = at(after)
    for _ in range(count):
        following = cron.next(tick)
        assert following is not None
        found.append(following.strftime("%d %H:%M"))
        tick = following
    return found


def test_a_skipped_time_runs_once_at_the_first_instant_after_the_gap() -> None:
    assert ticks(Cron("30 2 * * *", NEW_YORK), "2026-03-07T05:00", 3) == ["07 07:30", "08 07:00", "09 06:30"]


def test_several_skipped_times_are_one_run() -> None:
    assert ticks(Cron("*/30 2 * * *", NEW_YORK), "2026-03-08T05:00", 3) == [
        "08 07:00",
        "09 06:00",
        "09 06:30",
    ]


def test_a_skipped_time_and_the_time_after_the_gap_are_one_run() -> None:
    assert ticks(Cron("0 2,3 * * *", NEW_YORK), "2026-03-08T05:00", 2) == ["08 07:00", "09 06:00"]


def test_a_repeated_time_runs_once_at_its_first_occurrence() -> None:
    assert ticks(Cron("30 1 * * *", NEW_YORK), "2026-11-01T04:00", 2) == ["01 05:30", "02 06:30"]


def test_wildcard_hours_run_every_real_hour() -> None:
    spring, autumn = "2026-03-08T05:30", "2026-11-01T04:30"
    assert ticks(Cron("0 * * * *", NEW_YORK), spring, 3) == ["08 06:00", "08 07:00", "08 08:00"]
    assert ticks(Cron("0 * * * *", NEW_YORK), autumn, 3) == ["01 05:00", "01 06:00", "01 07:00"]


def test_hours_written_as_a_range_over_the_day_are_wildcard_hours() -> None:
    autumn = "2026-11-01T04:30"
    assert ticks(Cron("0 0-23 * * *", NEW_YORK), autumn, 3) == ticks(Cron("0 * * * *", NEW_YORK), autumn, 3)


def test_hourly_at_lord_howe_stays_on_the_grid() -> None:
    # 23 and 24 hours on days of 23.5 and 24.5 (rule D20)
    for day, hours in (("2026-10-04", 23), ("2026-04-05", 24)):
        zone = ZoneInfo("Australia/Lord_Howe")
        start = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC)
        end = (datetime.fromisoformat(day) + timedelta(days=1)).replace(tzinfo=zone).astimezone(UTC)
        found = list(Crons((Cron("0 * * * *", zone.key),)).between(start, end - timedelta(seconds=1)))
        assert len(found) == hours
        assert {tick.astimezone(zone).minute for tick in found} == {0}


def test_a_skipped_date_runs_at_its_end() -> None:
    # Samoa left out 2011-12-30
    assert ticks(Cron("0 9 * * *", "Pacific/Apia"), "2011-12-29T00:00", 3) == [
        "29 19:00",
        "30 10:00",
        "30 19:00",
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_tick(preset: str) -> None:
    assert Cron(preset).next(at("2026-03-10T00:00")) is not None


def test_quarterly_is_the_first_of_each_quarter() -> None:
    found = []
    tick = at("2026-02-01T00:00")
    for _ in range(4):
        following = Cron("@quarterly").next(tick)
        assert following is not None
        found.append(following.strftime("%m-%d"))
        tick = following
    assert found == ["04-01", "07-01", "10-01", "01-01"]


@pytest.mark.parametrize(
    "expression", ["not a cron", "61 * * * *", "* * * *", "", "@once", "0 0 * * 8", "H * * * *"]
)
def test_what_cannot_be_read_is_refused_with_the_way_out(expression: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be read") as caught:
        Cron(expression)
    assert repr(expression) in str(caught.value)


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 2,4 *"])
def test_what_never_ticks_is_refused(expression: str) -> None:
    with pytest.raises(DefinitionError, match="never ticks"):
        Cron(expression)


def test_what_is_no_text_and_an_unknown_zone_are_refused() -> None:
    with pytest.raises(DefinitionTypeError):
        Cron(5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="Mars"):
        Cron("0 0 * * *", "Mars/Olympus")


def test_a_leap_day_ticks_every_leap_year() -> None:
    assert Cron("0 0 29 2 *").next(at("2026-03-10T00:00")) == at("2028-02-29T00:00")
    assert Cron("0 0 29 2 *").previous(at("2026-03-10T00:00")) == at("2024-02-29T00:00")


def test_the_ends_of_the_calendar_have_no_more_ticks() -> None:
    assert Cron("0 0 1 1 *").next(at("9999-06-01T00:00")) is None
    assert Cron("0 0 1 1 *").previous(at("0001-01-01T00:00")) is None


def test_a_tick_with_a_fraction_of_a_second_before_it_is_found() -> None:
    before = at("2026-11-01T05:59") + timedelta(seconds=59, microseconds=999_999)
    assert Cron("0 * * * *", NEW_YORK).next(before) == at("2026-11-01T06:00")
    assert Cron("0 * * * *", NEW_YORK).ticks_at(at("2026-11-01T06:00"))


def test_only_ticks_that_stand_for_skipped_times_are_shifted() -> None:
    cron = Cron("30 2 * * *", NEW_YORK)
    assert cron.is_shifted(at("2026-03-08T07:00"))
    assert not cron.is_shifted(at("2026-03-09T06:30"))
    assert not Cron("0 * * * *", NEW_YORK).is_shifted(at("2026-03-08T07:00"))


def test_several_expressions_tick_together() -> None:
    crons = Crons((Cron("0 8 * * 2"), Cron("0 11 * * 4"), Cron("0 8 * * *")))
    assert ticks(crons, "2026-03-10T00:00", 4) == ["10 08:00", "11 08:00", "12 08:00", "12 11:00"]
    assert crons.previous(at("2026-03-12T11:00")) == at("2026-03-12T08:00")


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_an_hour_starts_at_every_hourly_tick(zone: str, change: str) -> None:
    # rule D20; where a change leaves a part of an hour over, both leave it to the hour before
    start, end = at(change) - timedelta(days=2), at(change) + timedelta(days=2)
    found = list(Crons((Cron("0 * * * *", zone),)).between(start, end))
    assert found == list(HOUR.between(start, end + timedelta(microseconds=1), ZoneInfo(zone)))


FIELDS = st.tuples(
    st.sampled_from(["0", "30", "*/15", "0,45", "*/7"]),
    st.sampled_from(["*", "0", "1", "2", "3", "23", "*/2", "0-3", "0-23", "1,2"]),
    st.sampled_from(["*", "*", "*", "1", "29", "*/2"]),
    st.sampled_from(["*", "*", "2,3,10,11"]),
    st.sampled_from(["*", "*", "0", "1-5", "6,7"]),
)


@settings(deadline=None, max_examples=50)
@given(
    fields=FIELDS,
    change=st.sampled_from(CHANGES),
    minutes=st.integers(-3000, 3000),
    seconds=st.sampled_from([0, 1, 59]),
)
def test_ticks_are_those_that_walking_the_clock_finds(
    fields: tuple[str, ...], change: tuple[str, str], minutes: int, seconds: int
) -> None:
    expression, (zone, instant) = " ".join(fields), change
    start = at(instant) + timedelta(minutes=minutes, seconds=seconds)
    cron, walked = Cron(expression, zone), _Ticks([expression], zone)
    tick = start
    for _ in range(12):
        following = cron.next(tick)
        assert following == walked.next(tick)
        assert following is not None
        assert cron.previous(following + timedelta(microseconds=1)) == following
        assert cron.ticks_at(following)
        tick = following
    assert cron.previous(start) == walked.previous(start)


@settings(deadline=None, max_examples=50)
@given(fields=FIELDS, change=st.sampled_from(CHANGES), minutes=st.integers(-3000, 3000))
def test_going_back_finds_the_same_ticks(
    fields: tuple[str, ...], change: tuple[str, str], minutes: int
) -> None:
    cron = Cron(" ".join(fields), change[0])
    forward = []
    tick = at(change[1]) + timedelta(minutes=minutes)
    for _ in range(20):
        following = cron.next(tick)
        assert following is not None
        forward.append(following)
        tick = following
    backward = [tick]
    while len(backward) < len(forward):
        before = cron.previous(backward[-1])
        assert before is not None
        backward.append(before)
    assert backward[::-1] == forward
