"""Mappers: keys to keys, dates and back, alone and composed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.test_core_windows import ZONES, instants, near_changes
from tidegate import (
    AllowedKeyMapper,
    ChainMapper,
    DayWindow,
    DefinitionError,
    DefinitionTypeError,
    FanOutExceededError,
    FanOutMapper,
    FixedKeyMapper,
    HourWindow,
    IdentityMapper,
    InvalidPartitionKeyError,
    MinimumCount,
    MonthWindow,
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
    WeekWindow,
    Window,
    YearWindow,
)
from tidegate.core.mappers import MAX_DOWNSTREAM_KEYS, TemporalMapper
from tidegate.core.plain import from_plain, plain

BACKWARD = Window.Direction.BACKWARD
BACKWARD_WEEK = WeekWindow(direction=BACKWARD)
NEW_YORK_DAY = StartOfDayMapper(timezone="America/New_York")
TWO = (IdentityMapper(), IdentityMapper())
TEMPORAL = [
    StartOfHourMapper,
    StartOfDayMapper,
    StartOfWeekMapper,
    StartOfMonthMapper,
    StartOfQuarterMapper,
    StartOfYearMapper,
]
FORMS = {
    StartOfHourMapper: ["", "%Y%m%d%H", "hour %H of %d/%m/%Y", "%Y-%m-%dT%H%z"],
    StartOfDayMapper: ["", "%d.%m.%Y", "dt=%Y-%m-%d", "%G-W%V-%u", "%j of %Y", "%Y-%m-%dT%H:%M:%S%z"],
    StartOfWeekMapper: ["", "%G-W%V", "%Y-%m-%d", "%Y-%m-%d (%G-W%V)", "%B %Y-%m-%d"],
    StartOfMonthMapper: ["", "%m/%Y", "%Y%m"],
    StartOfQuarterMapper: ["", "{quarter}Q%Y", "%Y-Q{quarter} (%m)", "%Y-%m"],
    StartOfYearMapper: ["", "FY%Y", "%Y-01-01"],
}


def wrong(value: Any) -> Any:
    """A value that the type checker would refuse."""
    return value


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind, forms in FORMS.items() for form in forms])
@settings(max_examples=60, deadline=None)
@given(at=instants | near_changes, zone=st.sampled_from(ZONES))
def test_a_key_stands_for_the_period_that_contains_it(
    kind: type[TemporalMapper], form: str, at: datetime, zone: str
) -> None:
    mapper = kind(timezone=zone, input_format="%Y-%m-%dT%H:%M:%S%z", output_format=form)
    key = at.strftime("%Y-%m-%dT%H:%M:%S%z")
    downstream = mapper.to_downstream(key)
    assert mapper.to_downstream(downstream) == downstream
    start = mapper.to_partition_date(downstream)
    assert start <= at.replace(microsecond=0) < mapper.period.next(start, ZoneInfo(zone))
    assert mapper.to_partition_date(key) == start


@pytest.mark.parametrize(
    ("mapper", "key", "downstream"),
    [
        (StartOfWeekMapper(), "2024-03-13T09:00:00", "2024-03-11 (W11)"),
        (StartOfWeekMapper(), "2021-01-03", "2020-12-28 (W53)"),
        (StartOfWeekMapper(), "2024-12-31", "2024-12-30 (W01)"),
        (StartOfWeekMapper(), "2026-03-10 (W11)", "2026-03-09 (W11)"),
        (StartOfWeekMapper(output_format="%Y-W%V"), "2026-05-20", "2026-W21"),
        (StartOfWeekMapper(output_format="%Y-W%V"), "2026-W21", "2026-W21"),
        (StartOfQuarterMapper(), "2024-02-29", "2024-Q1"),
        (StartOfQuarterMapper(), "2024-Q4", "2024-Q4"),
        (StartOfQuarterMapper(output_format="Q{quarter}/%Y"), "2024-07-01T00:00:00Z", "Q3/2024"),
        (StartOfYearMapper(), "2024-12-31T23:59:59", "2024"),
        (StartOfMonthMapper(input_format="%Y-%m-%d (W%V)"), "2026-03-09 (W11)", "2026-03"),
        (StartOfDayMapper(), "2026-3-1T1:2:3", "2026-03-01"),
        (StartOfHourMapper(timezone="America/New_York"), "2026-11-01T01:30:00", "2026-11-01T01"),
        (StartOfHourMapper(timezone="America/New_York"), "2026-11-01T01:30:00-0500", "2026-11-01T01-0500"),
        (StartOfHourMapper(timezone="Australia/Lord_Howe"), "2026-10-04T02:45:00", "2026-10-04T01"),
        (AllowedKeyMapper(["us", "eu"]), "us", "us"),
        (FixedKeyMapper("all"), "us", "all"),
        (ProductMapper(IdentityMapper(), StartOfDayMapper()), "us|2026-03-10T09:00:00", "us|2026-03-10"),
        (
            ProductMapper(IdentityMapper(), StartOfDayMapper(), delimiter="::"),
            "us::2026-03-10",
            "us::2026-03-10",
        ),
        (ChainMapper(StartOfHourMapper(), StartOfDayMapper()), "2026-03-10T09:37:51", "2026-03-10"),
    ],
)
def test_keys_are_mapped(mapper: PartitionMapper, key: str, downstream: str) -> None:
    assert mapper.to_downstream(key) == downstream


@pytest.mark.parametrize(
    ("mapper", "key"),
    [
        (StartOfWeekMapper(), "2026-03-09 (W12)"),
        (StartOfWeekMapper(), "2026-03-09 (W99)"),
        (StartOfWeekMapper(), "2026-03-09 (W11)\n"),
        (StartOfWeekMapper(output_format="%Y-W%V"), "2024-W01"),  # the first days of 2024, or its last
        (StartOfDayMapper(input_format="%G-W%V-%u"), "2021-W53-1"),
        (StartOfQuarterMapper(), "2026-Q5"),
        (StartOfQuarterMapper(), "2026-q1"),
        (StartOfQuarterMapper(output_format="%Y-Q{quarter} (%m)"), "2026-Q1 (04)"),
        (StartOfQuarterMapper(output_format="{year}"), "2026-03-10"),
        (StartOfDayMapper(output_format="%Y-%Y"), "2026-2026"),
        (StartOfHourMapper(), "2026-03-10"),
        (StartOfDayMapper(), "2026-07"),
        (StartOfDayMapper(), "2026-03-10 09:00:00"),
        (StartOfDayMapper(), "2026-03-10T24:00"),
        (StartOfDayMapper(), "20260310"),
        (StartOfDayMapper(), "2026-W11-2"),
        (StartOfDayMapper(), "2026-069"),
        (StartOfDayMapper(), "\uff12\uff10\uff12\uff16-03-10"),
        (StartOfYearMapper(timezone="Asia/Tokyo"), "0001-01-01T00:00:00"),
        (ProductMapper(IdentityMapper(), StartOfDayMapper()), "2026-03-10"),
        (ProductMapper(IdentityMapper(), StartOfDayMapper()), "us|2026-03-10|x"),
    ],
)
def test_other_keys_are_refused_by_name(mapper: PartitionMapper, key: str) -> None:
    with pytest.raises(InvalidPartitionKeyError):
        mapper.to_downstream(key)


class Endless(IdentityMapper):
    def to_downstream(self, key: str) -> Iterator[str]:  # type: ignore[override]
        return (f"{key}{n}" for n in count())


MONTH_TO_DAYS = FanOutMapper(StartOfMonthMapper(), MonthWindow())


@pytest.mark.parametrize(
    ("mapper", "key"),
    [
        (Endless(), "a"),
        (ChainMapper(Endless(), IdentityMapper()), "a"),
        (ProductMapper(Endless(), IdentityMapper()), "a|b"),
        (ProductMapper(*[MONTH_TO_DAYS] * 12), "|".join(["2026-03"] * 12)),  # 31 to the power of 12
    ],
)
def test_keys_without_end_are_given_up(mapper: PartitionMapper, key: str) -> None:
    with pytest.raises(FanOutExceededError) as caught:
        mapper.downstream_keys(key)
    assert (caught.value.cap, caught.value.source) == (1000, "global")
    assert caught.value.wanted > 100_000


def test_b012_a_day_mapper_reads_times_and_dates_but_no_months() -> None:
    assert StartOfDayMapper().to_downstream("2026-07-30T14:22:05") == "2026-07-30"
    assert StartOfDayMapper().to_downstream("2026-07-30") == "2026-07-30"
    for key in ("2026-07", "random-text"):
        with pytest.raises(InvalidPartitionKeyError, match=key):
            StartOfDayMapper().to_downstream(key)


def test_b016_a_key_that_would_give_too_many_gives_none() -> None:
    month = FanOutMapper(StartOfMonthMapper(), MonthWindow(), max_downstream_keys=7)
    with pytest.raises(FanOutExceededError, match="partition fan-out exceeded") as caught:
        month.placements("2026-03-01T00:00:00")
    assert (caught.value.cap, caught.value.source, caught.value.wanted) == (7, "max_downstream_keys", 31)
    assert (
        len(FanOutMapper(StartOfWeekMapper(), WeekWindow(), max_downstream_keys=7).placements("2026-03-09"))
        == 7
    )
    with pytest.raises(FanOutExceededError):
        FanOutMapper(StartOfWeekMapper(), WeekWindow(), max_downstream_keys=6).placements("2026-03-09")


def test_the_global_cap_holds_above_every_mapper() -> None:
    minutes = FanOutMapper(
        StartOfDayMapper(), RollingWindow(MAX_DOWNSTREAM_KEYS + 1), max_downstream_keys=5000
    )
    with pytest.raises(FanOutExceededError) as caught:
        minutes.placements("2026-03-10")
    assert (caught.value.cap, caught.value.source, caught.value.wanted) == (1000, "global", 1001)
    assert (
        len(FanOutMapper(StartOfDayMapper(), RollingWindow(MAX_DOWNSTREAM_KEYS)).placements("2026-03-10"))
        == 1000
    )


def test_a_cap_inside_a_chain_holds_and_equal_keys_count_once() -> None:
    weeks = FanOutMapper(StartOfWeekMapper(), WeekWindow(), max_downstream_keys=6)
    with pytest.raises(FanOutExceededError):
        ChainMapper(weeks, StartOfMonthMapper()).placements("2026-03-09")
    chain = ChainMapper(
        FanOutMapper(StartOfWeekMapper(), WeekWindow()), StartOfMonthMapper(), max_downstream_keys=1
    )
    assert [place.key for place in chain.placements("2026-03-09")] == ["2026-03"]


def test_b089_only_the_allowed_key_is_mapped() -> None:
    mapper = AllowedKeyMapper(["us"])
    assert mapper.to_downstream("us") == "us"
    for key in ("eu", "US", "us "):
        with pytest.raises(InvalidPartitionKeyError, match="not allowed: use one of 'us'"):
            mapper.to_downstream(key)


@pytest.mark.parametrize(
    ("mapper", "key", "count", "first", "last"),
    [
        (FanOutMapper(StartOfWeekMapper(), WeekWindow()), "2026-03-11T10:00:00", 7, "2026-03-09", "2026-03-15"),
        (FanOutMapper(StartOfWeekMapper(), BACKWARD_WEEK), "2026-03-11", 7, "2026-03-03", "2026-03-09"),
        (FanOutMapper(StartOfDayMapper(), DayWindow()), "2026-03-10", 24, "2026-03-10T00", "2026-03-10T23"),
        (FanOutMapper(NEW_YORK_DAY, DayWindow()), "2026-03-08", 23, "2026-03-08T00", "2026-03-08T23"),
        (FanOutMapper(NEW_YORK_DAY, DayWindow()), "2026-11-01", 25, "2026-11-01T00", "2026-11-01T23"),
        (FanOutMapper(StartOfQuarterMapper(), QuarterWindow()), "2026-Q2", 3, "2026-04", "2026-06"),
        (FanOutMapper(StartOfYearMapper(), YearWindow()), "2026", 12, "2026-01", "2026-12"),
        (FanOutMapper(StartOfDayMapper(), RollingWindow(7)), "2026-03-10", 7, "2026-03-04", "2026-03-10"),
        (FanOutMapper(FixedKeyMapper("x"), SegmentWindow(["us", "eu"]), IdentityMapper()), "go", 2, "us", "eu"),
    ],
)  # fmt: skip
def test_a_coarse_key_gives_the_finer_ones(
    mapper: FanOutMapper, key: str, count: int, first: str, last: str
) -> None:
    keys = mapper.to_downstream(key)
    assert (len(keys), keys[0], keys[-1]) == (count, first, last)
    assert len(set(keys)) == count


@given(at=instants | near_changes, zone=st.sampled_from(ZONES))
@settings(max_examples=100, deadline=None)
def test_hours_of_a_fan_out_are_the_real_hours_of_the_day(at: datetime, zone: str) -> None:
    day = StartOfDayMapper(timezone=zone)
    keys = FanOutMapper(day, DayWindow()).to_downstream(at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    hours = [StartOfHourMapper(timezone=zone).to_partition_date(key) for key in keys]
    assert hours == list(DayWindow().members(day.period.floor(at, ZoneInfo(zone)), ZoneInfo(zone)))


def test_dates_come_from_the_part_that_is_named() -> None:
    parts = (IdentityMapper(), StartOfDayMapper(timezone="America/New_York"))
    assert ProductMapper(*parts).to_partition_date("us|2026-03-10") is None
    assert ProductMapper(*parts, date_from=1).to_partition_date("us|2026-03-10") == datetime(
        2026, 3, 10, 4, tzinfo=UTC
    )
    assert ChainMapper(*parts).to_partition_date("2026-03-10") == datetime(2026, 3, 10, 4, tzinfo=UTC)


def test_dates_are_carried_where_the_key_stays() -> None:
    date = datetime(2026, 3, 10, 9, tzinfo=UTC)
    same = IdentityMapper()
    carrying: list[PartitionMapper] = [
        same,
        ChainMapper(same, same),
        ProductMapper(same, same),
        ChainMapper(ProductMapper(same, same), same),
        RollupMapper(same, SegmentWindow(["us"])),
    ]
    for mapper in carrying:
        assert mapper.carry_partition_date(date) == date
        assert mapper.carry_partition_date(None) is None
    dropping: list[PartitionMapper] = [
        StartOfDayMapper(),
        FixedKeyMapper("x"),
        ChainMapper(same, FixedKeyMapper("x")),
        ProductMapper(same, StartOfDayMapper()),
        FanOutMapper(StartOfWeekMapper(), WeekWindow()),
        RollupMapper(StartOfDayMapper(), DayWindow()),
    ]
    for mapper in dropping:
        assert mapper.carry_partition_date(date) is None


EVERY = [
    IdentityMapper(),
    IdentityMapper(max_downstream_keys=3),
    *(kind(timezone="Asia/Tokyo", input_format="%Y") for kind in TEMPORAL),
    AllowedKeyMapper(["b", "a"]),
    FixedKeyMapper("all"),
    ProductMapper(IdentityMapper(), StartOfDayMapper(), delimiter="/", date_from=1, max_downstream_keys=2),
    ChainMapper(StartOfHourMapper(), ProductMapper(IdentityMapper(), IdentityMapper())),
    FanOutMapper(
        StartOfHourMapper(), HourWindow(direction=BACKWARD), StartOfHourMapper(output_format="%H:%M")
    ),
    FanOutMapper(StartOfDayMapper(), RollingWindow(3)),
    RollupMapper(StartOfHourMapper(), DayWindow(), MinimumCount(-2)),
    RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu"]), max_downstream_keys=1),
]


@pytest.mark.parametrize("mapper", EVERY, ids=repr)
def test_mappers_round_trip_through_plain_data(mapper: PartitionMapper) -> None:
    assert from_plain(plain(mapper)) == mapper
    assert hash(from_plain(plain(mapper))) == hash(mapper)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: AllowedKeyMapper("us,eu"), DefinitionTypeError, "must be a list of keys"),
        (lambda: AllowedKeyMapper(wrong([1])), DefinitionTypeError, "holds 1"),
        (lambda: AllowedKeyMapper([" "]), DefinitionError, "blank"),
        (lambda: FixedKeyMapper(" "), DefinitionError, "FixedKeyMapper.downstream_key"),
        (lambda: FixedKeyMapper(wrong(5)), DefinitionError, "must be text, not 5"),
        (lambda: ProductMapper(IdentityMapper()), DefinitionTypeError, "needs two mappers or more, not 1"),
        (lambda: ProductMapper(IdentityMapper(), wrong("x")), DefinitionTypeError, "ProductMapper argument 2"),
        (lambda: ProductMapper(*TWO, delimiter=""), DefinitionError, "delimiter is empty"),
        (lambda: ProductMapper(*TWO, date_from=2), DefinitionError, "date_from 2"),
        (lambda: ProductMapper(*TWO, date_from=True), DefinitionTypeError, "date_from"),
        (ChainMapper, DefinitionTypeError, "needs two mappers or more"),
        (lambda: IdentityMapper(max_downstream_keys=0), DefinitionError, "max_downstream_keys 0"),
        (lambda: IdentityMapper(max_downstream_keys=wrong(1.5)), DefinitionError, "max_downstream_keys 1.5"),
        (lambda: StartOfDayMapper(timezone="Mars/Olympus"), DefinitionError, "'Mars/Olympus' is not known"),
        (lambda: StartOfDayMapper(input_format=wrong(3)), DefinitionTypeError, "input_format must be"),
        (lambda: StartOfWeekMapper(output_format="%Y %Y"), DefinitionError, "'Y' stands in it twice"),
        (lambda: FanOutMapper(StartOfHourMapper(), HourWindow()), DefinitionError, "downstream_mapper is missing"),
        (lambda: FanOutMapper(IdentityMapper(), DayWindow()), DefinitionTypeError, "cannot combine IdentityMapper"),
        (lambda: from_plain({"type": "ChainMapper", "mappers": [], "depth": 1}), DefinitionError, "no field 'depth'"),
        (lambda: from_plain({"type": "ProductMapper", "parts": []}), DefinitionError, "no field 'parts'"),
    ],
)  # fmt: skip
def test_wrong_definitions_name_the_field_and_the_way_out(
    build: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "compose",
    [
        lambda rollup: ChainMapper(rollup, IdentityMapper()),
        lambda rollup: ProductMapper(IdentityMapper(), rollup),
        lambda rollup: FanOutMapper(rollup, DayWindow()),
        lambda rollup: FanOutMapper(StartOfDayMapper(), DayWindow(), rollup),
        lambda rollup: RollupMapper(rollup, SegmentWindow(["us"])),
    ],
)
def test_a_rollup_stands_alone(compose: object) -> None:
    with pytest.raises(DefinitionTypeError, match="put the rollup outermost"):
        compose(RollupMapper(StartOfDayMapper(), DayWindow()))  # type: ignore[operator]


@given(text=st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_is_mapped_or_refused_as_a_key(text: str) -> None:
    for kind in TEMPORAL:
        for form in FORMS[kind]:
            mapper = kind(output_format=form)
            try:
                downstream = mapper.to_downstream(text)
            except InvalidPartitionKeyError:
                continue
            assert mapper.to_downstream(downstream) == downstream


@given(at=instants, form=st.sampled_from(["%Y-%m-%d (W%V)", "%G-W%V", "%Y-W%V"]))
@settings(max_examples=200, deadline=None)
def test_a_week_key_is_read_as_its_own_week_or_not_at_all(at: datetime, form: str) -> None:
    mapper = StartOfWeekMapper(output_format=form)
    monday = mapper.period.floor(at, ZoneInfo("UTC"))
    key = mapper.encode(monday)
    try:
        found = mapper.to_partition_date(key)
    except InvalidPartitionKeyError:
        assume(form != "%Y-W%V")
        raise
    assert found == monday


def test_a_window_class_gives_its_directions() -> None:
    assert Window.Direction("backward") is Window.Direction.BACKWARD
