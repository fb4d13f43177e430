"""Mappers that read keys as times, and the one that leaves them alone."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.zones_of_the_world import zones_and_instants
from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.mappers import (
    IdentityMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    StartOfQuarterMapper,
    StartOfYearMapper,
    TemporalMapper,
)
from tidegate.core.mappers.base import Placement
from tidegate.core.mappers.forms import form_of, plain_wall
from tidegate.core.windows import DayWindow
from tidegate.core.zones import instant, local

kinds = st.sampled_from([StartOfHourMapper, StartOfDayMapper, StartOfMonthMapper])
Kind = type[TemporalMapper]
MAPPERS = (StartOfHourMapper(), StartOfDayMapper(), StartOfMonthMapper())
HOUR_AND_MINUTE = "2026-03-10T09:37"


@settings(max_examples=150)
@given(zones_and_instants(), kinds)
def test_a_key_maps_to_the_period_that_holds_its_instant(
    found: tuple[ZoneInfo, datetime], kind: Kind
) -> None:
    zone, at = found
    mapper = kind(timezone=str(zone))
    start = mapper.to_partition_date(at.isoformat())
    assert start == mapper.period.floor(at, zone)
    assert mapper.to_downstream(at.isoformat()) == mapper.encode(start)
    assert mapper.to_downstream(mapper.encode_upstream(at)) == mapper.encode(
        mapper.period.floor(instant(local(at.replace(microsecond=0), zone).replace(tzinfo=None), zone), zone)
    )


@settings(max_examples=150)
@given(zones_and_instants(), kinds)
def test_a_downstream_key_is_a_fixed_point(found: tuple[ZoneInfo, datetime], kind: Kind) -> None:
    zone, at = found
    mapper = kind(timezone=str(zone))
    key = mapper.to_downstream(at.isoformat())
    assert mapper.to_downstream(key) == key
    assert mapper.encode(mapper.to_partition_date(key)) == key


@given(zones_and_instants(), kinds)
def test_a_placement_is_a_window_of_one(found: tuple[ZoneInfo, datetime], kind: Kind) -> None:
    zone, at = found
    mapper = kind(timezone=str(zone))
    key = at.isoformat()
    assert mapper.placements(key) == (Placement(mapper.to_downstream(key), 0, 1, 1),)


@pytest.mark.parametrize(
    ("key", "hour", "day", "month"),
    [
        ("2026-03-10T09:37:51", "2026-03-10T09", "2026-03-10", "2026-03"),
        ("2026-03-10T09:37", "2026-03-10T09", "2026-03-10", "2026-03"),
        ("2026-03-10T09", "2026-03-10T09", "2026-03-10", "2026-03"),
        ("2026-03-10T09:37:51.123456", "2026-03-10T09", "2026-03-10", "2026-03"),
        ("2026-03-10T09:37:51.1Z", "2026-03-10T09", "2026-03-10", "2026-03"),
        ("2026-03-10T00:30:00+01:00", "2026-03-09T23", "2026-03-09", "2026-03"),
        ("2026-03-01T00:30+0530", "2026-02-28T19", "2026-02-28", "2026-02"),
        ("2024-02-29T23:59:59", "2024-02-29T23", "2024-02-29", "2024-02"),
        ("2026-12-31T23-01:00", "2027-01-01T00", "2027-01-01", "2027-01"),
    ],
)
def test_the_forms_of_a_time_are_read(key: str, hour: str, day: str, month: str) -> None:
    assert [mapper.to_downstream(key) for mapper in MAPPERS] == [hour, day, month]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "now",
        "2026-03-10 09:37:51",
        "20260310",
        "20260310T093751",
        "2026-W11-2",
        "2026-069",
        "2026-03-10T24",
        "2026-03-10T24:00:00",
        "2026-03-10T09:60",
        "2026-03-10T09:37:60",
        "2026-03-10T09:37:51.",
        "2026-03-10T09:37:51.1234567",
        "2026-03-10T09:37:51,5",
        "2026-03-10T09:37:51+1",
        "2026-03-10T09:37:51+24:00",
        "2026-03-10T09:37:51+05:99",
        "2026-03-10T09:37:51+05:30:00",
        "2026-03-10T09:37:51 Z",
        "2026-03-10Z",
        "2026-02-29T00",
        "2026-13-01T00",
        "2026-00-01T00",
        "2026-03-10T09:37:51\n",
        " 2026-03-10T09:37:51",
        "\u0662\u0660\u0662\u0666-03-10T09:37:51",
        "2026-03-1\uff10T09",
        "+2026-03-10T09",
        "12026-03-10T09",
        "2026-03-10T09:37:51[UTC]",
    ],
)
@pytest.mark.parametrize("mapper", MAPPERS, ids=lambda mapper: mapper.period.name)
def test_anything_else_is_refused_and_quoted(mapper: TemporalMapper, key: str) -> None:
    for read in (mapper.to_downstream, mapper.to_partition_date):
        with pytest.raises(InvalidPartitionKeyError) as refused:
            read(key)
        assert repr(key) in str(refused.value)


def test_a_date_works_for_days_and_longer_but_not_for_hours() -> None:
    assert StartOfDayMapper().to_downstream("2026-03-09") == "2026-03-09"
    assert StartOfMonthMapper().to_downstream("2026-03-09") == "2026-03"
    with pytest.raises(InvalidPartitionKeyError):
        StartOfHourMapper().to_downstream("2026-03-09")


def test_a_month_is_a_month_and_not_a_day() -> None:
    assert StartOfMonthMapper().to_downstream("2026-07") == "2026-07"
    for mapper in (StartOfHourMapper(), StartOfDayMapper()):
        with pytest.raises(InvalidPartitionKeyError):
            mapper.to_downstream("2026-07")


def test_a_mapper_reads_its_input_format_its_own_form_and_the_iso_forms() -> None:
    mapper = StartOfHourMapper(input_format="%d.%m.%Y %H Uhr", output_format="%Y/%j/%H")
    for key in ("10.03.2026 09 Uhr", "2026/069/09", "2026-03-10T09:30:00"):
        assert mapper.to_downstream(key) == "2026/069/09"


def test_an_own_form_that_looks_like_a_date_is_read_by_an_hour_mapper_too() -> None:
    mapper = StartOfHourMapper(output_format="%Y-%m-%d")
    assert mapper.to_partition_date("2026-05-20") == datetime(2026, 5, 20, tzinfo=UTC)


def test_the_input_format_wins_over_the_iso_form() -> None:
    assert StartOfDayMapper(input_format="%Y-%d-%m").to_downstream("2026-03-10") == "2026-10-03"


def test_a_key_of_the_mappers_own_is_read_in_its_own_form_first() -> None:
    first_of_february = datetime(2026, 2, 1, tzinfo=UTC)
    american = StartOfDayMapper(input_format="%d/%m/%Y", output_format="%m/%d/%Y")
    assert american.to_downstream("01/02/2026") == "02/01/2026"
    assert american.to_partition_date("02/01/2026") == first_of_february
    # strptime reads 2026-03 as the third day of the year
    assert StartOfMonthMapper(input_format="%Y-%j").to_partition_date("2026-03").month == 3
    rolled = RollupMapper(american, DayWindow())
    assert rolled.to_partition_date("02/01/2026") == first_of_february
    assert rolled.to_upstream("02/01/2026")[0] == "2026-02-01T00"


@pytest.mark.parametrize(
    ("kind", "at", "key"),
    [
        (
            StartOfYearMapper,
            "2025-03-10",
            "2025-W01",
        ),  # Wednesday 2025-01-01, whose week begins on 2024-12-30
        (StartOfQuarterMapper, "2022-03-10", "2021-W52"),  # Saturday 2022-01-01
        (StartOfQuarterMapper, "2011-12-31", "2011-W39"),  # Saturday 2011-10-01
        (StartOfMonthMapper, "2026-05-31", "2026-W18"),  # Friday 2026-05-01
    ],
)
def test_a_period_named_by_its_first_week_is_that_period(kind: Kind, at: str, key: str) -> None:
    mapper = kind(output_format="%G-W%V")
    start = StartOfDayMapper().to_partition_date(at)
    assert mapper.to_downstream(at) == key
    assert mapper.to_partition_date(key) == mapper.period.floor(start, mapper.zone)


def test_an_own_form_that_looks_like_an_iso_date_is_none() -> None:
    mapper = StartOfDayMapper(output_format="%Y-%d-%m")
    assert mapper.to_downstream("2026-02-01T09:00:00") == "2026-01-02"
    assert mapper.to_downstream("2026-01-02") == "2026-01-02"
    assert mapper.to_partition_date("2026-01-02") == datetime(2026, 2, 1, tzinfo=UTC)


def test_a_sloppy_key_is_made_canonical() -> None:
    for sloppy in ("2026-3-9T1:2:3", "2026-03-09t01:02:03"):
        assert StartOfHourMapper().to_downstream(sloppy) == "2026-03-09T01"


def test_an_offset_in_the_input_format_tells_a_repeated_hour_apart() -> None:
    mapper = StartOfHourMapper(
        timezone="America/New_York", input_format="%Y-%m-%dT%H%z", output_format="%Y-%m-%dT%H%z"
    )
    assert mapper.to_downstream("2026-11-01T01-0400") == "2026-11-01T01-0400"
    assert mapper.to_downstream("2026-11-01T01-0500") == "2026-11-01T01-0500"


def test_a_form_that_names_a_part_twice_is_written_but_not_read() -> None:
    mapper = StartOfDayMapper(output_format="%Y/%Y")
    assert mapper.to_downstream("2026-03-10") == "2026/2026"
    with pytest.raises(InvalidPartitionKeyError):
        mapper.to_partition_date("2026/2026")
    with pytest.raises(InvalidPartitionKeyError):
        StartOfDayMapper(input_format="%Y-%m-%d %z %z").to_downstream("2026-03-10 +0000 +0000")


def test_an_off_anchor_key_is_normalised() -> None:
    mapper = StartOfMonthMapper(output_format="%Y-%m-%d")
    assert mapper.to_partition_date("2026-03-10") == datetime(2026, 3, 1, tzinfo=UTC)


def test_a_fraction_of_a_second_next_to_a_clock_change_is_read() -> None:
    mapper = StartOfHourMapper(timezone="Australia/Lord_Howe")
    assert mapper.to_downstream("2026-04-04T15:00:00.5Z") == "2026-04-05T01"
    assert mapper.to_downstream("2026-10-04T02:30:00.000001") == "2026-10-04T01"


@pytest.mark.parametrize(
    "key", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "9999-12-31T23", "9999-12-31T23Z"]
)
def test_an_end_of_the_calendar_is_refused_or_mapped_but_never_overflows(key: str) -> None:
    for kind in (StartOfHourMapper, StartOfDayMapper, StartOfMonthMapper):
        for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
            mapper = kind(timezone=zone)
            try:
                assert mapper.to_downstream(key)[:4] in ("0001", "9999")
            except InvalidPartitionKeyError as refused:
                assert repr(key) in str(refused)  # noqa: PT017 - both ways are right


def test_a_year_before_1000_keeps_its_zeros() -> None:
    assert [mapper.to_downstream("0987-06-05T04") for mapper in MAPPERS] == [
        "0987-06-05T04",
        "0987-06-05",
        "0987-06",
    ]


def test_a_key_may_be_wall_clock_time_of_the_zone() -> None:
    mapper = StartOfDayMapper(timezone="America/Los_Angeles")
    assert mapper.to_partition_date("2010-03-14T02:00:00") == datetime(2010, 3, 14, 8, tzinfo=UTC)
    assert mapper.to_downstream("2010-03-15T06:59:59Z") == "2010-03-14"


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("UTC")])
def test_a_zone_object_is_kept_by_name(zone: object) -> None:
    assert StartOfDayMapper(timezone=zone) == StartOfDayMapper(timezone="UTC")  # type: ignore[arg-type]


def test_a_zone_without_a_name_is_a_type_error() -> None:
    with pytest.raises(DefinitionTypeError, match="IANA name"):
        StartOfDayMapper(timezone=timezone(timedelta(hours=1)))  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError):
        StartOfDayMapper(timezone=3)  # type: ignore[arg-type]


def test_a_wrong_zone_or_format_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match="Mars/Olympus"):
        StartOfDayMapper(timezone="Mars/Olympus")
    with pytest.raises(DefinitionTypeError, match="input_format"):
        StartOfDayMapper(input_format=None)  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="output_format"):
        StartOfDayMapper(output_format=5)  # type: ignore[arg-type]


@given(st.text(min_size=1, max_size=50))
def test_identity_leaves_every_key_and_every_date_as_it_is(key: str) -> None:
    mapper = IdentityMapper()
    assert mapper.to_downstream(key) == key
    assert mapper.placements(key) == (Placement(key, 0, 1, 1),)
    assert mapper.to_partition_date(key) is None
    date = datetime(2026, 3, 10, tzinfo=UTC)
    assert mapper.carry_partition_date(date) == date
    assert mapper.carry_partition_date(None) is None


@pytest.mark.parametrize("mapper", MAPPERS, ids=lambda mapper: mapper.period.name)
def test_a_key_that_changes_drops_the_producers_date(mapper: TemporalMapper) -> None:
    assert mapper.carry_partition_date(datetime(2026, 3, 10, tzinfo=UTC)) is None


@given(
    st.text(max_size=30) | st.from_regex(r"\d{4}-\d{2}-\d{2}(T\d{2}(:\d{2}){0,2})?", fullmatch=True), kinds
)
def test_a_key_is_mapped_or_refused_and_nothing_else(key: str, kind: Kind) -> None:
    mapper = kind(timezone="America/St_Johns")
    try:
        downstream = mapper.to_downstream(key)
    except InvalidPartitionKeyError:
        return
    assert mapper.to_downstream(downstream) == downstream


@settings(max_examples=300)
@given(
    st.datetimes(),
    st.sampled_from(["%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]),
    st.integers(0, 18),
    st.characters() | st.sampled_from("0:-T +Z"),
)
def test_a_plain_key_is_read_as_strptime_reads_it(at: datetime, form: str, place: int, other: str) -> None:
    key = at.isoformat()[: form_of(form).plain_length]
    changed = key[:place] + other + key[place + 1 :]
    assert plain_wall(key) == datetime.strptime(key, form)
    if len(changed) == len(key) and (read := plain_wall(changed)) is not None:
        assert read == datetime.strptime(changed, form)


def test_a_format_that_holds_no_part_of_a_date_is_warned_of() -> None:
    (read,) = StartOfDayMapper(input_format="YYYY-MM-DD").warnings()
    assert read.startswith("StartOfDayMapper.input_format 'YYYY-MM-DD' holds no directive such as %Y")
    (written,) = StartOfMonthMapper(output_format="YYYY-MM").warnings()
    assert written.startswith("StartOfMonthMapper.output_format 'YYYY-MM'")
    assert written.endswith("all periods have one key: use a form such as '%Y-%m'")
    rollup = RollupMapper(StartOfDayMapper(input_format="%%"), DayWindow())
    assert rollup.warnings()[0].startswith("StartOfDayMapper.input_format '%%'")
    assert StartOfQuarterMapper(output_format="Q{quarter}").warnings() == ()
