"""CronPartitionTimetable: keys, dates, offsets, jitter; and the dates of typed keys."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import (
    Asset,
    CronPartitionTimetable,
    DagRunInfo,
    InvalidPartitionKeyError,
    PartitionedAssetTimetable,
    StartOfDayMapper,
    TimeRestriction,
)
from tidegate.core.timetables import next_run, partitions_between, resolve_partition_date

NEW_YORK = "America/New_York"
LOS_ANGELES = "America/Los_Angeles"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(timetable: CronPartitionTimetable, earliest: str, count: int, job: str = "") -> list[DagRunInfo]:
    found: list[DagRunInfo] = []
    last = None
    for _ in range(count):
        last = next_run(timetable, last, TimeRestriction(at(earliest), None, True, job=job))
        assert last is not None
        found.append(last)
    return found


def test_b024_a_tick_in_the_gap_runs_once_right_after_it() -> None:
    timetable = CronPartitionTimetable("30 2 * * *", timezone="America/Chicago")
    found = runs(timetable, "2026-03-07T06:00", 3)
    assert [run.partition_key for run in found] == [
        "2026-03-07T02:30:00",
        "2026-03-08T03:00:00",
        "2026-03-09T02:30:00",
    ]
    assert found[1].run_after == at("2026-03-08T08:00")
    assert [timetable.is_shifted(run.run_after) for run in found] == [False, True, False]


def test_b025_both_of_the_repeated_hours_are_processed() -> None:
    found = runs(CronPartitionTimetable("0 * * * *", timezone=LOS_ANGELES), "2026-11-01T07:30", 4)
    assert [run.run_after.hour for run in found] == [8, 9, 10, 11]
    assert [run.partition_key for run in found] == [
        "2026-11-01T01:00:00",
        "2026-11-01T01:00:00-0800",
        "2026-11-01T02:00:00",
        "2026-11-01T03:00:00",
    ]


def test_b028_the_key_of_the_spring_morning_is_that_day() -> None:
    timetable = CronPartitionTimetable("0 7 * * *", timezone=NEW_YORK, key_format="%Y-%m-%d")
    (run,) = runs(timetable, "2026-03-08T10:00", 1)
    assert (run.run_after, run.partition_key) == (at("2026-03-08T11:00"), "2026-03-08")


def test_b032_jitter_moves_the_start_and_never_the_key() -> None:
    plain = CronPartitionTimetable("0 23 * * *", key_format="%Y-%m-%d")
    spread = CronPartitionTimetable("0 23 * * *", key_format="%Y-%m-%d", jitter=timedelta(hours=2))
    for job in ("one", "two", "three"):
        for expected, run in zip(
            runs(plain, "2026-03-06T00:00", 40), runs(spread, "2026-03-06T00:00", 40, job), strict=True
        ):
            assert (run.partition_key, run.partition_date) == (
                expected.partition_key,
                expected.partition_date,
            )
            assert timedelta(0) <= run.run_after - expected.run_after <= timedelta(hours=2)
    starts = {runs(spread, "2026-03-06T00:00", 1, f"job-{n}")[0].run_after for n in range(20)}
    assert len(starts) > 10
    assert any(start.day == 7 for start in starts)


def test_jitter_with_an_offset_goes_on_with_the_next_tick() -> None:
    timetable = CronPartitionTimetable(
        "@daily", run_offset=-2, jitter=timedelta(hours=20), key_format="%Y-%m-%d"
    )
    keys = [run.partition_key for run in runs(timetable, "2026-03-10T00:00", 5)]
    assert keys == ["2026-03-08", "2026-03-09", "2026-03-10", "2026-03-11", "2026-03-12"]


def test_b076_the_same_tick_asked_for_twice_is_the_same_run() -> None:
    timetable = CronPartitionTimetable("*/2 * * * *")
    last = DagRunInfo(at("2026-03-10T10:00"), None, at("2026-03-10T10:00"), "2026-03-10T10:00:00")
    given = TimeRestriction(None, None, False, at("2026-03-10T10:02"))
    once, again = (next_run(timetable, last, given) for _ in range(2))
    assert once == again
    assert once is not None
    assert once.partition_key == "2026-03-10T10:02:00"
    following = next_run(timetable, once, given)
    assert following is not None
    assert following.run_after == at("2026-03-10T10:04")


@pytest.mark.parametrize("offset", [-24, -2, -1, 0, 1, 2, 24])
def test_an_offset_counts_scheduled_ticks_across_clock_changes(offset: int) -> None:
    plain = CronPartitionTimetable("30 2 * * *", timezone=NEW_YORK)
    shifted = CronPartitionTimetable("30 2 * * *", timezone=NEW_YORK, run_offset=offset)
    keys = [run.partition_key for run in runs(plain, "2026-02-01T00:00", 70)]
    given = [run.partition_key for run in runs(shifted, "2026-03-05T00:00", 6)]
    start = keys.index("2026-03-05T02:30:00") + offset
    assert given == keys[start : start + 6]
    assert len(set(given)) == 6


def test_the_older_form_of_the_question_gives_keys_too() -> None:
    timetable = CronPartitionTimetable("@hourly")
    run = timetable.next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(at("2026-03-10T00:30"), None, True)
    )
    assert run is not None
    assert (run.partition_key, run.data_interval) == ("2026-03-10T01:00:00", None)


@settings(deadline=None, max_examples=50)
@given(
    zone=st.sampled_from(
        [NEW_YORK, "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "UTC"]
    ),
    cron=st.sampled_from(["0 * * * *", "*/15 * * * *", "30 1,2 * * *", "@daily"]),
    form=st.sampled_from(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y%m%d%H%M"]),
    day=st.integers(0, 364),
)
def test_keys_never_collide_and_are_read_back(zone: str, cron: str, form: str, day: int) -> None:
    timetable = CronPartitionTimetable(cron, timezone=zone, key_format=form)
    start = at("2026-01-01T00:00") + timedelta(days=day)
    found = runs(timetable, start.replace(tzinfo=None).isoformat(), 60)
    assert len({run.partition_key for run in found}) == len(found)
    assert all(earlier.run_after < later.run_after for earlier, later in pairwise(found))
    for run in found:
        assert timetable.resolve_partition_date(run.partition_key) == run.partition_date


def test_a_range_of_partitions_is_read_in_the_own_zone() -> None:
    timetable = CronPartitionTimetable("0 0 * * *", timezone="Asia/Kolkata", key_format="%Y-%m-%d")
    found = list(partitions_between(timetable, at("2026-03-08T00:00"), at("2026-03-10T00:00")))
    assert [run.partition_key for run in found] == ["2026-03-08", "2026-03-09", "2026-03-10"]
    assert found[0].run_after == at("2026-03-07T18:30")
    assert list(partitions_between(timetable, at("2026-03-10T00:00"), at("2026-03-08T00:00"))) == []


def test_a_range_that_ends_in_a_repeated_hour_holds_both() -> None:
    timetable = CronPartitionTimetable("0 * * * *", timezone=NEW_YORK)
    found = list(partitions_between(timetable, at("2026-11-01T01:00"), at("2026-11-01T01:30")))
    assert [run.partition_key for run in found] == ["2026-11-01T01:00:00", "2026-11-01T01:00:00-0500"]


def test_a_range_that_begins_in_a_gap_holds_its_tick() -> None:
    timetable = CronPartitionTimetable("30 2 * * *", timezone=NEW_YORK)
    found = list(partitions_between(timetable, at("2026-03-08T02:30"), at("2026-03-08T12:00")))
    assert [run.partition_key for run in found] == ["2026-03-08T03:00:00"]


@pytest.mark.parametrize("key", ["", "random", "2026-03-10", "2026-03-10T09:00:00\n", "2026-03-10T0٩:00:00"])
def test_keys_in_another_form_are_refused_with_an_example(key: str) -> None:
    with pytest.raises(InvalidPartitionKeyError, match="2026-03-10T09:00:00"):
        resolve_partition_date(CronPartitionTimetable("@hourly"), key)


def test_a_typed_key_of_a_changed_hour_is_its_first_instant() -> None:
    timetable = CronPartitionTimetable("@hourly", timezone=NEW_YORK)
    assert timetable.resolve_partition_date("2026-11-01T01:00:00") == at("2026-11-01T05:00")
    assert timetable.resolve_partition_date("2026-11-01T01:00:00-0500") == at("2026-11-01T06:00")
    assert timetable.resolve_partition_date("2026-03-08T02:30:00") == at("2026-03-08T07:00")
    assert timetable.resolve_partition_date(None) is None


def test_a_typed_key_of_assets_has_the_date_that_their_mappers_agree_on() -> None:
    utc, eastern = StartOfDayMapper(), StartOfDayMapper(timezone=NEW_YORK)
    assets = Asset("a") & Asset("b")
    same = PartitionedAssetTimetable(assets, default_partition_mapper=eastern)
    assert resolve_partition_date(same, "2026-03-10") == at("2026-03-10T04:00")
    other = PartitionedAssetTimetable(assets, utc, {Asset("b"): eastern})
    assert resolve_partition_date(other, "2026-03-10") is None
    with pytest.raises(InvalidPartitionKeyError):
        resolve_partition_date(same, "random")


def test_crons_may_be_given_as_a_list() -> None:
    assert CronPartitionTimetable(["@daily", "@hourly"]) == CronPartitionTimetable("@daily", "@hourly")
