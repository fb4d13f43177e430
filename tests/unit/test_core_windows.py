"""Windows as relations: m in members(a) <=> a in anchors(m), for every window, direction and zone."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import (
    DayWindow,
    DefinitionError,
    DefinitionTypeError,
    HourWindow,
    MonthWindow,
    QuarterWindow,
    RollingWindow,
    SegmentWindow,
    WeekWindow,
    Window,
    YearWindow,
)
from tidegate.core.plain import from_plain, plain
from tidegate.core.windows import CalendarWindow

ZONES = [
    "UTC",
    "America/New_York",
    "America/Havana",  # clocks change at midnight
    "America/Sao_Paulo",  # midnight skipped, until 2018
    "Australia/Lord_Howe",  # half an hour
    "Asia/Kolkata",
    "Pacific/Apia",  # a whole date skipped in 2011
    "Africa/Casablanca",
    "Antarctica/Troll",  # two hours
]
PERIODS: list[type[CalendarWindow]] = [
    HourWindow,
    DayWindow,
    WeekWindow,
    MonthWindow,
    QuarterWindow,
    YearWindow,
]
DIRECTIONS = [Window.Direction.FORWARD, Window.Direction.BACKWARD]
WINDOWS: list[CalendarWindow] = [
    *(kind(direction=direction) for kind in PERIODS for direction in DIRECTIONS),
    *(
        RollingWindow(size, unit, direction=direction)
        for size, unit in (
            (7, "day"),
            (3, "hour"),
            (1, "day"),
            (2, "week"),
            (4, "quarter"),
            (3, "month"),
            (30, "minute"),
        )
        for direction in DIRECTIONS
    ),
]


def wrong(value: Any) -> Any:
    """A value that the type checker would refuse."""
    return value


instants = st.datetimes(datetime(1975, 1, 2), datetime(2036, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
near_changes = st.sampled_from(
    [
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        datetime(2026, 11, 1, 6, tzinfo=UTC),
        datetime(2026, 11, 1, 5, tzinfo=UTC),
        datetime(2026, 4, 4, 15, tzinfo=UTC),
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
        datetime(2018, 11, 4, 3, tzinfo=UTC),
        datetime(2018, 2, 18, 2, tzinfo=UTC),
        datetime(2011, 12, 30, 10, tzinfo=UTC),
    ]
).flatmap(lambda at: st.integers(-3000, 3000).map(lambda minutes: at + timedelta(minutes=minutes)))


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@settings(max_examples=60, deadline=None)
@given(at=instants | near_changes, zone=st.sampled_from(ZONES).map(ZoneInfo))
def test_members_and_anchors_are_one_relation(window: CalendarWindow, at: datetime, zone: ZoneInfo) -> None:
    member = window.member_period.floor(at, zone)
    anchors = window.anchors(member, zone)
    assert anchors
    for anchor in anchors:
        assert window.period.floor(anchor, zone) == anchor
        assert member in window.members(anchor, zone)
    beside = {window.period.previous(anchors[0], zone), window.period.next(anchors[-1], zone)}
    for anchor in beside:
        assert member not in window.members(anchor, zone)
    members = window.members(anchors[0], zone)
    assert list(members) == sorted(set(members))
    for other in (members[0], members[len(members) // 2], members[-1]):
        assert window.member_period.floor(other, zone) == other
        assert anchors[0] in window.anchors(other, zone)


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_sizes_bound_the_members(window: CalendarWindow) -> None:
    assert window.sizes is not None
    least, most = window.sizes
    anchor = window.period.floor(datetime(2024, 2, 10, tzinfo=UTC), ZoneInfo("America/New_York"))
    for _ in range(40):
        assert least <= len(window.members(anchor, ZoneInfo("America/New_York"))) <= most
        anchor = window.period.next(anchor, ZoneInfo("America/New_York"))


@pytest.mark.parametrize(
    ("zone", "day", "size"),
    [
        ("America/New_York", "2026-03-08T05:00", 23),
        ("America/New_York", "2026-11-01T04:00", 25),
        ("Australia/Lord_Howe", "2026-10-03T13:30", 23),
        ("Australia/Lord_Howe", "2026-04-04T13:00", 24),
        ("America/Havana", "2026-03-08T05:00", 23),
        ("UTC", "2026-03-08T00:00", 24),
    ],
)
def test_a_day_has_its_real_hours(zone: str, day: str, size: int) -> None:
    anchor = datetime.fromisoformat(day).replace(tzinfo=UTC)
    assert len(DayWindow().members(anchor, ZoneInfo(zone))) == size


def test_a_week_lacks_the_date_that_its_zone_skipped() -> None:
    zone = ZoneInfo("Pacific/Apia")
    monday = WeekWindow().period.floor(datetime(2011, 12, 31, tzinfo=UTC), zone)
    assert [at.astimezone(zone).day for at in WeekWindow().members(monday, zone)] == [26, 27, 28, 29, 31, 1]


def test_b027_backward_week_in_a_zone_has_seven_local_midnights() -> None:
    zone = ZoneInfo("America/New_York")
    members = WeekWindow(direction=Window.Direction.BACKWARD).members(
        datetime(2026, 3, 9, 4, tzinfo=UTC), zone
    )
    assert [at.astimezone(zone).strftime("%m-%d %H") for at in members] == [
        f"03-0{day} 00" for day in range(3, 10)
    ]
    assert [at.hour for at in members] == [5, 5, 5, 5, 5, 5, 4]


def test_an_event_feeds_every_anchor_of_a_rolling_window() -> None:
    day = datetime(2026, 3, 10, tzinfo=UTC)
    assert [at.day for at in RollingWindow(7).anchors(day)] == [10, 11, 12, 13, 14, 15, 16]
    assert [at.day for at in RollingWindow(7).members(day)] == [4, 5, 6, 7, 8, 9, 10]
    assert [at.day for at in RollingWindow(7, direction=Window.Direction.FORWARD).members(day)] == list(
        range(10, 17)
    )


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@given(at=st.datetimes(datetime(1975, 1, 1), datetime(2036, 1, 1)))
@settings(max_examples=20, deadline=None)
def test_wall_clock_steps_agree_with_real_members_where_clocks_never_change(
    window: CalendarWindow, at: datetime
) -> None:
    anchor = window.period.floor(at.replace(tzinfo=UTC), ZoneInfo("UTC"))
    real = tuple(member.replace(tzinfo=None) for member in window.members(anchor))
    assert tuple(window.to_upstream(anchor.replace(tzinfo=None))) == real


@pytest.mark.parametrize("window", [*WINDOWS, SegmentWindow(["us", "eu"])], ids=repr)
def test_windows_round_trip_through_plain_data(window: Window) -> None:
    assert from_plain(plain(window)) == window
    assert hash(from_plain(plain(window))) == hash(window)


def test_segments_keep_their_order_and_count_once() -> None:
    assert SegmentWindow(["b", "a", "b"]).to_upstream("whatever") == ("b", "a")


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: SegmentWindow([]), DefinitionError, "segments is empty"),
        (lambda: SegmentWindow("us"), DefinitionTypeError, "must be a list of keys, not 'us'"),
        (lambda: SegmentWindow([" "]), DefinitionError, "empty or blank"),
        (lambda: SegmentWindow(wrong([1])), DefinitionError, "holds 1"),
        (lambda: DayWindow(direction=wrong("sideways")), DefinitionError, "'sideways' is neither"),
        (lambda: RollingWindow(0), DefinitionError, "RollingWindow.size 0"),
        (lambda: RollingWindow(True), DefinitionTypeError, "RollingWindow.size must be a whole number"),
        (lambda: RollingWindow(3, "fortnight"), DefinitionError, "'fortnight' is not known"),
        (
            lambda: MonthWindow().to_upstream(datetime(2026, 3, 2)),
            DefinitionError,
            "not the first day of a month",
        ),
        (lambda: DayWindow().to_upstream("all_regions"), DefinitionTypeError, "'all_regions'"),
    ],
)
def test_errors_name_the_field_and_the_value(build: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        build()  # type: ignore[operator]
