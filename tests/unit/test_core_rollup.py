"""Rollups: which member of which downstream key an upstream key is."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_core_windows import ZONES, instants, near_changes
from tidegate import (
    AllowedKeyMapper,
    DayWindow,
    DefinitionError,
    DefinitionTypeError,
    FixedKeyMapper,
    HourWindow,
    IdentityMapper,
    InvalidPartitionKeyError,
    MinimumCount,
    MonthWindow,
    NotAMemberError,
    PartitionMapper,
    ProductMapper,
    QuarterWindow,
    RollingWindow,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    StartOfQuarterMapper,
    StartOfWeekMapper,
    StartOfYearMapper,
    WaitForAll,
    WeekWindow,
    Window,
    YearWindow,
)
from tidegate.core.mappers import Placement, TemporalMapper
from tidegate.core.periods import DAY
from tidegate.core.windows import CalendarWindow, WindowDirection
from tidegate.core.zones import local

BACKWARD = Window.Direction.BACKWARD
TWO = (IdentityMapper(), IdentityMapper())
SEGMENTS = SegmentWindow(["us", "eu", "apac"])
ALIGNED: list[tuple[type[TemporalMapper], type[TemporalMapper] | None, CalendarWindow]] = [
    (StartOfHourMapper, None, HourWindow()),
    (StartOfDayMapper, StartOfHourMapper, DayWindow()),
    (StartOfDayMapper, StartOfHourMapper, DayWindow(direction=BACKWARD)),
    (StartOfWeekMapper, StartOfDayMapper, WeekWindow()),
    (StartOfWeekMapper, StartOfDayMapper, WeekWindow(direction=BACKWARD)),
    (StartOfMonthMapper, StartOfDayMapper, MonthWindow()),
    (StartOfMonthMapper, StartOfDayMapper, MonthWindow(direction=BACKWARD)),
    (StartOfQuarterMapper, StartOfMonthMapper, QuarterWindow()),
    (StartOfYearMapper, StartOfMonthMapper, YearWindow(direction=BACKWARD)),
    (StartOfDayMapper, None, RollingWindow(7)),
    (StartOfHourMapper, None, RollingWindow(3, "hour")),
]


def wrong(value: Any) -> Any:
    """A value that the type checker would refuse."""
    return value


@pytest.mark.parametrize(("period", "member", "window"), ALIGNED, ids=repr)
@settings(max_examples=40, deadline=None)
@given(
    at=instants | near_changes,
    zone=st.sampled_from(ZONES),
    form=st.sampled_from(["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M%z"]),
)
def test_a_placed_key_lies_within_its_member(
    period: type[TemporalMapper],
    member: type[TemporalMapper] | None,
    window: CalendarWindow,
    at: datetime,
    zone: str,
    form: str,
) -> None:
    at = at.replace(second=0, microsecond=0)
    key = at.astimezone(ZoneInfo(zone)).strftime(form)
    rollup = RollupMapper(period(timezone=zone, input_format=form), window)
    placements = rollup.placements(key)
    for placement in placements:
        upstream = rollup.to_upstream(placement.key)
        assert len(upstream) == placement.size == placement.needed == len(set(upstream))
        assert 0 <= placement.member < placement.size
        again = rollup.placements(upstream[placement.member])
        assert placement in again
        anchor = rollup.to_partition_date(placement.key)
        assert anchor is not None
        assert window.period.floor(anchor, ZoneInfo(zone)) == anchor
    if member is not None:
        other = RollupMapper(member(timezone=zone, input_format=form), window)
        assert other.placements(key) == placements
        assert other.to_upstream(placements[0].key) == rollup.to_upstream(placements[0].key)


@pytest.mark.parametrize("direction", list(Window.Direction))
@pytest.mark.parametrize(
    ("mapper", "unit", "key"),
    [
        (StartOfDayMapper(timezone="Pacific/Apia"), "day", "2011-12-31T05:00:00"),  # 2011-12-30 was skipped
        (StartOfHourMapper(timezone="Europe/Berlin"), "hour", "2026-10-25T02:30:00"),
        (StartOfHourMapper(timezone="Europe/Berlin"), "hour", "2026-10-25T04:00:00"),
        (
            StartOfHourMapper(timezone="Europe/Berlin", input_format="%Y-%m-%dT%H%z"),
            "hour",
            "2026-10-25T02+0100",
        ),
        (StartOfHourMapper(timezone="Australia/Lord_Howe"), "hour", "2026-10-04T03:00:00"),
        (StartOfMonthMapper(), "month", "2026-02"),
    ],
)
def test_a_key_has_its_place_in_every_sliding_window(
    mapper: TemporalMapper, unit: str, key: str, direction: WindowDirection
) -> None:
    window = RollingWindow(5, unit, direction=direction)
    rollup = RollupMapper(mapper, window)
    merges = rollup.merges_repeated_hours
    at = mapper.start_of(key)
    found = rollup.placements(key)
    anchors = window.anchors(at, mapper.zone)
    assert [place.key for place in found] == [mapper.encode(anchor) for anchor in anchors]
    for place, anchor in zip(found, anchors, strict=True):
        members = [
            one
            for one in window.members(anchor, mapper.zone)
            if not (merges and local(one, mapper.zone).fold)
        ]
        assert (place.member, place.size) == (members.index(at), len(members))


def test_a_sliding_window_of_more_keys_than_an_event_may_give_is_refused() -> None:
    RollupMapper(StartOfDayMapper(), RollingWindow(1000))
    with pytest.raises(DefinitionError, match="every event counts for 1001 windows"):
        RollupMapper(StartOfDayMapper(), RollingWindow(1001))
    with pytest.raises(DefinitionError, match="max_downstream_keys 6 allows 6"):
        RollupMapper(StartOfDayMapper(), RollingWindow(7), max_downstream_keys=6)


def test_b013_a_sloppy_key_counts_for_its_member() -> None:
    rollup = RollupMapper(StartOfHourMapper(), DayWindow())
    assert rollup.placements("2026-12-1T5:00:00") == (Placement("2026-12-01", 5, 24, 24),)
    assert rollup.placements("2026-12-01T05:37:12.5Z") == (Placement("2026-12-01", 5, 24, 24),)


def test_b019_the_day_of_the_spring_change_has_23_members() -> None:
    rollup = RollupMapper(StartOfHourMapper(timezone="America/New_York"), DayWindow())
    members = rollup.to_upstream("2026-03-08")
    assert len(members) == 23
    assert "2026-03-08T02:00:00" not in members
    assert rollup.to_partition_date("2026-03-08") == datetime(2026, 3, 8, 5, tzinfo=UTC)
    assert [rollup.placements(key)[0].member for key in members] == list(range(23))


def test_the_day_of_the_autumn_change_has_25_members_where_keys_tell_them_apart() -> None:
    naive = RollupMapper(StartOfDayMapper(timezone="America/New_York"), DayWindow())
    exact = RollupMapper(
        StartOfDayMapper(timezone="America/New_York", input_format="%Y-%m-%dT%H:%M:%S%z"), DayWindow()
    )
    assert naive.placements("2026-11-01T01:00:00") == naive.placements("2026-11-01T06:30:00Z")
    assert (len(naive.to_upstream("2026-11-01")), len(exact.to_upstream("2026-11-01"))) == (24, 25)
    assert exact.placements("2026-11-01T01:00:00-0400") != exact.placements("2026-11-01T01:00:00-0500")
    assert "add %z to input_format" in naive.warnings()[0]
    assert exact.warnings() == ()
    assert RollupMapper(StartOfDayMapper(), DayWindow()).warnings() == ()


def test_a_backward_rollup_gives_an_event_to_the_first_anchor_at_or_after_it() -> None:
    rollup = RollupMapper(StartOfDayMapper(), DayWindow(direction=BACKWARD))
    assert rollup.placements("2026-03-10T00:00:00")[0] == Placement("2026-03-10", 23, 24, 24)
    assert rollup.placements("2026-03-10T00:30:00")[0] == Placement("2026-03-10", 23, 24, 24)
    assert rollup.placements("2026-03-10T01:00:00")[0] == Placement("2026-03-11", 0, 24, 24)


def test_an_event_feeds_every_window_that_slides_over_it() -> None:
    rollup = RollupMapper(StartOfDayMapper(), RollingWindow(3))
    assert rollup.to_downstream("2026-03-10T12:00:00") == ("2026-03-10", "2026-03-11", "2026-03-12")
    assert [placement.member for placement in rollup.placements("2026-03-10")] == [2, 1, 0]
    assert rollup.to_upstream("2026-03-10") == (
        "2026-03-08T00:00:00",
        "2026-03-09T00:00:00",
        "2026-03-10T00:00:00",
    )


def test_keys_have_the_format_of_the_period_whichever_spelling() -> None:
    days = RollupMapper(StartOfDayMapper(), WeekWindow())
    weeks = RollupMapper(StartOfWeekMapper(output_format="%G-W%V"), WeekWindow())
    assert days.to_downstream("2026-03-10") == "2026-03-09 (W11)"
    assert weeks.to_downstream("2026-03-10") == "2026-W11"


def test_segments_come_together_under_one_key() -> None:
    rollup = RollupMapper(FixedKeyMapper("all_regions"), SEGMENTS, MinimumCount(2))
    assert rollup.placements("eu") == (Placement("all_regions", 1, 3, 2),)
    assert rollup.to_upstream("all_regions") == ("us", "eu", "apac")
    with pytest.raises(NotAMemberError, match="'latam' is none of the members"):
        rollup.placements("latam")
    assert rollup.to_downstream("latam") == "all_regions"


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: RollupMapper(IdentityMapper(), SEGMENTS), DefinitionError, "can never fire: IdentityMapper"),
        (lambda: RollupMapper(AllowedKeyMapper(["us", "eu"]), SEGMENTS), DefinitionError, "at most 1 of the 3"),
        (lambda: RollupMapper(ProductMapper(*TWO), SEGMENTS), DefinitionError, "at most 0"),
        (lambda: RollupMapper(FixedKeyMapper("x"), SEGMENTS, MinimumCount(4)), DefinitionError, "at most 3"),
        (lambda: RollupMapper(StartOfMonthMapper(), MonthWindow(), MinimumCount(32)), DefinitionError, "at most 31"),
        (lambda: RollupMapper(StartOfHourMapper(), WeekWindow()), DefinitionError, "StartOfWeekMapper or"),
        (lambda: RollupMapper(StartOfHourMapper(), RollingWindow(7)), DefinitionError, "use StartOfDayMapper"),
        (lambda: RollupMapper(StartOfDayMapper(), HourWindow()), DefinitionError, "use StartOfHourMapper"),
        (lambda: RollupMapper(IdentityMapper(), DayWindow()), DefinitionTypeError, "works with datetime"),
        (lambda: RollupMapper(StartOfDayMapper(), SEGMENTS), DefinitionTypeError, "leaves keys as text"),
        (lambda: RollupMapper(wrong("x"), SEGMENTS), DefinitionTypeError, "RollupMapper.upstream_mapper"),
        (lambda: RollupMapper(IdentityMapper(), wrong("x")), DefinitionTypeError, "RollupMapper.window"),
        (lambda: RollupMapper(IdentityMapper(), SEGMENTS, wrong("all")), DefinitionTypeError, "wait_policy"),
    ],
)  # fmt: skip
def test_what_can_never_fire_is_refused(build: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()  # type: ignore[operator]


def test_a_rollup_of_keys_that_stay_is_fine_where_one_member_is_enough() -> None:
    assert RollupMapper(IdentityMapper(), SEGMENTS, MinimumCount(1)).placements("eu") == (
        Placement("eu", 1, 3, 1),
    )
    assert RollupMapper(IdentityMapper(), SegmentWindow(["us"])).placements("us") == (
        Placement("us", 0, 1, 1),
    )


def test_b018_thresholds_that_some_windows_cannot_meet_are_said_at_load() -> None:
    m1 = RollupMapper(StartOfDayMapper(), MonthWindow(), MinimumCount(30))
    m2 = RollupMapper(StartOfDayMapper(), MonthWindow(), MinimumCount(-2))
    m5 = RollupMapper(FixedKeyMapper("all"), SEGMENTS, MinimumCount(-3))
    assert "can never be met by a MonthWindow of 27 members" in m1.warnings()[0]
    assert m1.placements("2026-02-03")[0] == Placement("2026-02", 2, 28, 30)  # more than there are
    assert m1.wait_policy.is_unreachable(28)
    assert m2.warnings() == ()
    assert m2.placements("2026-02-03")[0].needed == 26
    assert "waits for one member" in m5.warnings()[0]
    assert m5.placements("us")[0].needed == 1
    for policy in (
        lambda: RollupMapper(FixedKeyMapper("all"), SEGMENTS, MinimumCount(4)),
        lambda: MinimumCount(0),
    ):
        with pytest.raises(DefinitionError):
            policy()


class BusinessDays(Window):
    """Monday to Friday of a month."""

    expected_decoded_type = datetime
    member_granularity = DAY

    def to_upstream(self, decoded_downstream: datetime) -> Iterable[datetime]:
        days = (decoded_downstream + timedelta(days=n) for n in range(31))
        return [day for day in days if day.month == decoded_downstream.month and day.weekday() < 5]


class Weeks(Window):
    """Every ISO week that overlaps a month, without a word on anchors."""

    expected_decoded_type = datetime

    def to_upstream(self, decoded_downstream: datetime) -> Iterable[datetime]:
        monday = decoded_downstream - timedelta(days=decoded_downstream.weekday())
        mondays = (monday + timedelta(weeks=n) for n in range(7))
        return [day for day in mondays if day < _next_month(decoded_downstream)]


class OverlappingWeeks(Weeks):
    def anchors(self, member: datetime) -> Iterable[datetime]:
        return dict.fromkeys(day.replace(day=1) for day in (member, member + timedelta(days=6)))


def _next_month(first: datetime) -> datetime:
    return (first + timedelta(days=31)).replace(day=1)


def test_a_custom_window_counts_its_own_members_only() -> None:
    rollup = RollupMapper(StartOfMonthMapper(timezone="Europe/Berlin"), BusinessDays())
    assert len(rollup.to_upstream("2026-03")) == 22
    assert rollup.placements("2026-03-10T09:37:00") == (Placement("2026-03", 6, 22, 22),)
    with pytest.raises(NotAMemberError, match="BusinessDays"):
        rollup.placements("2026-03-14")  # a Saturday


def test_b087_a_month_waits_for_every_week_that_overlaps_it() -> None:
    rollup = RollupMapper(StartOfMonthMapper(), OverlappingWeeks())
    weeks = ["2026-09-28", "2026-10-05", "2026-10-12", "2026-10-19", "2026-10-26"]
    assert [key[:10] for key in rollup.to_upstream("2026-10")] == weeks
    for index, week in enumerate(weeks):
        (october,) = [placement for placement in rollup.placements(week) if placement.key == "2026-10"]
        assert october == Placement("2026-10", index, 5, 5)
    assert [placement.key for placement in rollup.placements("2026-09-28")] == ["2026-09", "2026-10"]
    assert [placement.key for placement in rollup.placements("2026-10-05")] == ["2026-10"]


def test_a_window_whose_members_map_elsewhere_must_give_anchors() -> None:
    with pytest.raises(DefinitionError, match=r"define anchors\(member\) in Weeks"):
        RollupMapper(StartOfMonthMapper(), Weeks())


class Namespaced(PartitionMapper):
    """Strips a prefix; written without `@dataclass`."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        object.__setattr__(self, "prefix", prefix)

    def to_downstream(self, key: str) -> str:
        prefix: str = self.__dict__["prefix"]
        if not key.startswith(prefix):
            raise InvalidPartitionKeyError(f"partition key {key!r} does not start with {prefix!r}")
        return key.removeprefix(prefix)

    def serialize(self) -> dict[str, Any]:
        return {"prefix": self.__dict__["prefix"]}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "Namespaced":
        return cls(data["prefix"])


class Numbers(PartitionMapper):
    """Keys are numbers; ten of them make one downstream key."""

    expected_decoded_type = int

    def to_downstream(self, key: str) -> str:
        return str(int(key) // 10)

    def decode_downstream(self, downstream_key: str) -> int:
        return int(downstream_key)

    def encode_upstream(self, decoded: int) -> str:
        return str(decoded)


class Tens(Window):
    expected_decoded_type = int

    def to_upstream(self, decoded_downstream: int) -> Iterable[int]:
        return range(10 * decoded_downstream, 10 * decoded_downstream + 10)


def test_custom_mappers_are_values_with_their_whole_state() -> None:
    from tidegate.core.plain import from_plain, plain

    assert Namespaced("a/").to_downstream("a/us") == "us"
    assert Namespaced("a/") == Namespaced("a/") != Namespaced("b/")
    assert from_plain(plain(Namespaced("a/"))) == Namespaced("a/")
    assert [placement.key for placement in Namespaced("a/").placements("a/us")] == ["us"]


def test_a_custom_pair_decodes_to_anything() -> None:
    rollup = RollupMapper(Numbers(), Tens())
    assert rollup.placements("47") == (Placement("4", 7, 10, 10),)
    assert rollup.to_upstream("0") == tuple(map(str, range(10)))
    with pytest.raises(DefinitionTypeError, match="works with int"):
        RollupMapper(IdentityMapper(), Tens())


@pytest.mark.parametrize(
    ("defined", "missing"), list(pairwise(("decode_downstream", "encode_upstream", "decode_downstream")))
)
def test_one_side_of_the_decoding_pair_is_refused(defined: str, missing: str) -> None:
    methods = {"to_downstream": lambda self, key: key, defined: lambda self, key: key}
    with pytest.raises(TypeError, match=f"defines {defined} without {missing}"):
        type("_OneSided", (PartitionMapper,), methods)


def test_policies_default_to_every_member() -> None:
    assert RollupMapper(StartOfDayMapper(), DayWindow()).wait_policy == WaitForAll()
