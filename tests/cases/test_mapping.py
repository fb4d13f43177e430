"""Cases from public trackers: which run an event leads to, and that what leads to none is seen."""

from dataclasses import dataclass
from datetime import datetime

import pytest

from tests.cases.standard import at, audited, d_day, d_id, job, kinds, runs, waiting
from tests.unit.test_core_rollup import OverlappingWeeks
from tidegate import (
    AllowedKeyMapper,
    Asset,
    FanOutMapper,
    IdentityMapper,
    Job,
    MonthWindow,
    RollupMapper,
    StartOfDayMapper,
    StartOfMonthMapper,
    StartOfWeekMapper,
    WeekWindow,
)
from tidegate.simulate import Simulation


def test_b010_events_with_and_without_a_key_go_to_consumers_of_their_kind() -> None:
    simulation = Simulation([d_id(), Job("plain", [Asset("a")])])
    simulation.event("a", "2026-03-10")
    assert runs(simulation) == [("copy", "2026-03-10")]
    (ignored,) = audited(simulation, "partitioned-event")
    assert ignored.job == "plain"
    simulation.event("a")
    assert runs(simulation)[1:] == [("plain", None)]
    (missed,) = audited(simulation, "no-partition-key")
    assert missed.job == "copy"
    assert len(simulation.audit) == 2


def test_b011_an_event_without_a_key_is_seen_every_time() -> None:
    simulation = Simulation([d_day()])
    for number in range(3):
        simulation.event("hourly", id=f"event-{number}")
    assert (simulation.runs, waiting(simulation)) == ([], [])
    assert [(entry.kind, entry.asset, entry.job, entry.event_id) for entry in simulation.audit] == [
        ("no-partition-key", "hourly", "day_sum", f"event-{number}") for number in range(3)
    ]


def test_b012_keys_of_several_granularities_run_or_are_audited() -> None:
    simulation = Simulation([job("day_copy", Asset("a"), StartOfDayMapper())])
    for key in ("2026-07-30T14:22:05", "2026-07-30", "2026-07", "random-text", "2026-07-31"):
        simulation.event("a", key)
    assert runs(simulation) == [("day_copy", day) for day in ("2026-07-30", "2026-07-30", "2026-07-31")]
    assert [entry.partition_key for entry in audited(simulation, "mapping-failed")] == [
        "2026-07",
        "random-text",
    ]
    assert len({run.events[0].id for run in simulation.runs}) == 3


def test_b013_a_sloppy_key_completes_its_day() -> None:
    simulation = Simulation([d_day()])
    for hour in range(24):
        if hour != 5:
            simulation.event("hourly", f"2026-12-01T{hour:02}:00:00")
    assert waiting(simulation) == [("day_sum", "2026-12-01", 23, 24, ("2026-12-01T05:00:00",))]
    simulation.event("hourly", "2026-12-1T5:00:00")
    assert (runs(simulation), waiting(simulation)) == ([("day_sum", "2026-12-01")], [])


@dataclass(frozen=True)
class CarriesBadly(IdentityMapper):
    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        raise RuntimeError("a bug in the plugin")


def test_b014_a_hook_that_raises_costs_its_own_job_the_date_and_nobody_the_event() -> None:
    simulation = Simulation(
        [d_id(), job("bad", Asset("a"), CarriesBadly()), job("day_copy", Asset("a"), StartOfDayMapper())]
    )
    simulation.event("a", "2026-03-10T09:00:00", partition_date=at("2026-03-10T09:00"))
    assert [(run.job, run.partition_key, run.partition_date) for run in simulation.runs] == [
        ("copy", "2026-03-10T09:00:00", at("2026-03-10T09:00")),
        ("bad", "2026-03-10T09:00:00", None),
        ("day_copy", "2026-03-10", at("2026-03-10T00:00")),
    ]
    assert [(entry.kind, entry.job) for entry in simulation.audit] == [("partition-date-failed", "bad")]
    assert "a bug in the plugin" in simulation.audit[0].message


def test_b016_a_month_above_the_cap_gives_no_run_and_leaves_others_alone() -> None:
    capped = FanOutMapper(StartOfMonthMapper(), MonthWindow(), max_downstream_keys=7)
    simulation = Simulation([job("mfan", Asset("monthly"), capped), job("mcopy", Asset("monthly"))])
    simulation.event("monthly", "2026-03-01T00:00:00")
    assert runs(simulation) == [("mcopy", "2026-03-01T00:00:00")]
    (entry,) = simulation.audit
    assert (entry.job, entry.details) == ("mfan", {"cap": 7, "source": "max_downstream_keys", "wanted": 31})
    assert "partition fan-out exceeded" in entry.message


@pytest.mark.parametrize(("cap", "count"), [(7, 7), (6, 0)])
def test_b016_as_many_as_the_cap_are_allowed(cap: int, count: int) -> None:
    fan = FanOutMapper(StartOfWeekMapper(), WeekWindow(), max_downstream_keys=cap)
    simulation = Simulation([job("infer", Asset("weekly"), fan)])
    simulation.event("weekly", "2026-03-09")
    assert len(simulation.runs) == count
    assert kinds(simulation) == ([] if count else ["partition-fan-out-exceeded"])


def test_b087_a_month_is_not_complete_before_its_last_week_exists() -> None:
    mapper = RollupMapper(StartOfMonthMapper(), OverlappingWeeks())
    simulation = Simulation([job("mw", Asset("weekly"), mapper)], now=at("2026-09-28T00:00"))
    for week in ("2026-09-28", "2026-10-05", "2026-10-12", "2026-10-19"):
        simulation.event("weekly", week)
    simulation.move_clock(at("2026-11-01T23:59"))
    assert simulation.runs == []
    october = [each for each in waiting(simulation) if each[1] == "2026-10"]
    assert october == [("mw", "2026-10", 4, 5, ("2026-10-26T00:00:00",))]
    simulation.move_clock(at("2026-11-02T00:00"))
    simulation.event("weekly", "2026-10-26")
    assert runs(simulation) == [("mw", "2026-10")]


def test_b089_only_the_named_partition_runs() -> None:
    simulation = Simulation([job("only_us", Asset("regional"), AllowedKeyMapper(["us"]))])
    for key in ("us", "eu", "US", "us "):
        simulation.event("regional", key)
    assert (runs(simulation), waiting(simulation)) == ([("only_us", "us")], [])
    assert [(entry.kind, entry.partition_key) for entry in simulation.audit] == [
        ("mapping-failed", key) for key in ("eu", "US", "us ")
    ]
    assert all("not allowed" in entry.message for entry in simulation.audit)
