"""Cases from public trackers: days of 23 hours, ticks that a clock change skips, runs missed during a pause."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.cases.standard import at, audited, job, kinds, runs, waiting
from tidegate import (
    Asset,
    CronPartitionTimetable,
    DayWindow,
    Job,
    MultipleCronTriggerTimetable,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    Timetable,
    WeekWindow,
    Window,
)
from tidegate.simulate import Simulation

NEW_YORK = "America/New_York"


def test_b019_the_spring_day_runs_at_its_23rd_hour() -> None:
    rollup = RollupMapper(StartOfHourMapper(timezone=NEW_YORK), DayWindow())
    simulation = Simulation([job("ny_day", Asset("hourly"), rollup)])
    for hour in (0, 1, *range(3, 24)):
        assert simulation.runs == []
        simulation.event("hourly", f"2026-03-08T{hour:02}:00:00")
    (run,) = simulation.runs
    assert (run.partition_key, run.partition_date) == ("2026-03-08", at("2026-03-08T05:00"))
    assert [(each.arrived, each.expected) for each in run.windows] == [(23, 23)]
    assert waiting(simulation) == []


def test_b024_a_tick_in_the_gap_runs_on_its_day_and_is_audited() -> None:
    chicago = Job("chicago", CronPartitionTimetable("30 2 * * *", timezone="America/Chicago"))
    simulation = Simulation([chicago], now=at("2026-03-07T06:00"))
    simulation.move_clock(at("2026-03-10T05:00"))
    assert [(run.partition_key, run.info and run.info.run_after) for run in simulation.runs] == [
        ("2026-03-07T02:30:00", at("2026-03-07T08:30")),
        ("2026-03-08T03:00:00", at("2026-03-08T08:00")),
        ("2026-03-09T02:30:00", at("2026-03-09T07:30")),
    ]
    (shifted,) = simulation.audit
    assert (shifted.kind, shifted.job, shifted.partition_key) == (
        "tick-shifted",
        "chicago",
        "2026-03-08T03:00:00",
    )


def test_b025_the_clock_starts_both_of_the_repeated_hours() -> None:
    hourly = Job("hourly", CronPartitionTimetable("0 * * * *", timezone="America/Los_Angeles"))
    simulation = Simulation([hourly], now=at("2026-11-01T07:30"))
    simulation.move_clock(at("2026-11-01T11:30"))
    assert [run.info.run_after.hour for run in simulation.runs if run.info] == [8, 9, 10, 11]
    assert len({run.partition_key for run in simulation.runs}) == 4


def test_b027_a_week_that_ends_on_its_anchor_has_seven_local_days_across_the_change() -> None:
    backward = RollupMapper(
        StartOfDayMapper(timezone=NEW_YORK), WeekWindow(direction=Window.Direction.BACKWARD)
    )
    days = [f"2026-03-{day:02}" for day in range(3, 10)]
    members = backward.to_upstream("2026-03-09 (W11)")
    assert [key[:10] for key in members] == days
    instants = [
        datetime.fromisoformat(key).replace(tzinfo=ZoneInfo(NEW_YORK)).astimezone(UTC) for key in members
    ]
    assert [each.hour for each in instants] == [5, 5, 5, 5, 5, 5, 4]
    simulation = Simulation([job("wk", Asset("daily"), backward)])
    for day in days:
        assert simulation.runs == []
        simulation.event("daily", day)
    (run,) = simulation.runs
    assert (run.partition_key or "")[:10] == "2026-03-09"


@pytest.mark.parametrize("kind", [MultipleCronTriggerTimetable, CronPartitionTimetable])
def test_b072_resuming_runs_no_tick_for_every_cron_that_was_missed(kind: Callable[..., Timetable]) -> None:
    timetable = kind("0 8 * * 2", "0 11 * * 4")
    simulation = Simulation([Job("two", timetable)], now=at("2026-03-07T00:00"))
    simulation.move_clock(at("2026-03-09T00:00"))
    simulation.pause("two")
    simulation.move_clock(at("2026-03-13T12:00"))
    simulation.pause("two", False)
    # Without catch-up a trigger that is switched on waits for its next tick (rule D10).
    assert simulation.runs == []
    simulation.move_clock(at("2026-03-17T08:00"))
    assert [run.info.run_after for run in simulation.runs if run.info] == [at("2026-03-17T08:00")]


def test_b072_with_catch_up_every_missed_tick_runs_once() -> None:
    timetable = CronPartitionTimetable("0 8 * * 2", "0 11 * * 4")
    two = Job("two", timetable, start_date=at("2026-03-06T00:00"), catchup=True)
    simulation = Simulation([two], now=at("2026-03-06T00:00"))
    simulation.pause("two")
    simulation.move_clock(at("2026-03-13T12:00"))
    assert simulation.runs == []
    simulation.pause("two", False)
    assert runs(simulation) == [("two", "2026-03-10T08:00:00"), ("two", "2026-03-12T11:00:00")]


def test_b076_no_tick_runs_twice_however_the_clock_is_moved() -> None:
    every_two = Job("every_two", CronPartitionTimetable("*/2 * * * *"), start_date=at("2026-03-10T10:02"))
    simulation = Simulation([every_two], now=at("2026-03-10T10:01"))
    for minute in (2, 2, 3, 3, 4):
        simulation.move_clock(at("2026-03-10T10:00") + timedelta(minutes=minute))
        simulation.define(every_two)
    assert runs(simulation) == [("every_two", "2026-03-10T10:02:00"), ("every_two", "2026-03-10T10:04:00")]
    assert kinds(simulation) == []
    assert audited(simulation, "tick-shifted") == []
