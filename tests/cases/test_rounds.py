"""Cases from public trackers: thresholds, repeated and late members, what one run's record holds."""

import pytest

from tests.cases.standard import audited, d_seg, d_week, job, kinds, runs, waiting
from tidegate import (
    Asset,
    AssetAlias,
    AssetAll,
    DefinitionError,
    FixedKeyMapper,
    MinimumCount,
    MonthWindow,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
)
from tidegate.core.conditions import Condition
from tidegate.core.rounds import RerunPolicy
from tidegate.simulate import Simulation
from tidegate.simulate.report import warnings_of

WEEK = [f"2026-03-{day:02}" for day in range(9, 16)]
FEBRUARY = [f"2026-02-{day:02}" for day in range(1, 29)]


def test_b018_a_window_that_can_never_be_met_is_said_when_it_opens() -> None:
    month = RollupMapper(StartOfDayMapper(), MonthWindow(), MinimumCount(30))
    m1 = job("m1", Asset("daily"), month)
    assert len(list(warnings_of(m1))) == 1
    simulation = Simulation([m1])
    simulation.event("daily", FEBRUARY[0])
    (entry,) = audited(simulation, "window-unsatisfiable")
    assert (entry.job, entry.partition_key) == ("m1", "2026-02")
    for day in FEBRUARY[1:]:
        simulation.event("daily", day)
    assert simulation.runs == []
    for number in range(1, 31):
        simulation.event("daily", f"2026-03-{number:02}")
    assert runs(simulation) == [("m1", "2026-03")]
    assert {entry.partition_key for entry in audited(simulation, "window-unsatisfiable")} == {"2026-02"}


def test_b018_a_relative_threshold_fits_every_month() -> None:
    month = RollupMapper(StartOfDayMapper(), MonthWindow(), MinimumCount(-2))
    simulation = Simulation([job("m2", Asset("daily"), month)])
    counts = []
    for day in FEBRUARY:
        simulation.event("daily", day)
        counts.append(len(simulation.runs))
    assert counts == [0] * 25 + [1] * 3
    assert kinds(simulation) == ["member-late"] * 2


def test_b018_what_no_window_can_meet_is_refused_and_what_any_meets_waits_for_one() -> None:
    def segments(n: int) -> RollupMapper:
        return RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu", "apac"]), MinimumCount(n))

    for n in (4, 0):
        with pytest.raises(DefinitionError, match=str(n)):
            segments(n)
    m5 = job("m5", Asset("regional"), segments(-3))
    assert "waits for one member" in "".join(warnings_of(m5))
    simulation = Simulation([m5])
    simulation.event("regional", "us")
    assert runs(simulation) == [("m5", "all")]


def fired_week(policy: RerunPolicy | None = None) -> Simulation:
    simulation = Simulation([d_week(rerun_policy=policy)])
    for day in WEEK:
        simulation.event("daily", day, id=day)
    assert runs(simulation) == [("week_sum", "2026-03-09 (W11)")]
    return simulation


def test_b044_a_member_that_comes_again_is_ignored_and_audited() -> None:
    simulation = fired_week()
    assert simulation.event("daily", "2026-03-12", id="again") == []
    assert waiting(simulation) == []
    (entry,) = simulation.audit
    assert (entry.kind, entry.partition_key, entry.event_id) == ("member-rerun", "2026-03-09 (W11)", "again")


def test_b044_refire_runs_the_full_set_with_the_newest_event() -> None:
    simulation = fired_week(RerunPolicy.REFIRE)
    (run,) = simulation.event("daily", "2026-03-12", id="again")
    assert (run.generation, run.partition_key) == (2, "2026-03-09 (W11)")
    assert [event.id for event in run.events] == [*WEEK[:3], "again", *WEEK[4:]]
    assert waiting(simulation) == []
    (run,) = simulation.event("daily", "2026-03-09", id="first again")
    assert run.generation == 3
    assert [event.id for event in run.events] == ["first again", *WEEK[1:3], "again", *WEEK[4:]]


def test_b044_a_partial_round_does_not_fire_again_on_what_comes_later() -> None:
    simulation = Simulation([d_week(MinimumCount(1))])
    for day in WEEK:
        simulation.event("daily", day)
    simulation.event("daily", "2026-03-09", id="again")
    assert len(simulation.runs) == 1
    assert kinds(simulation) == ["member-late"] * 6 + ["member-rerun"]
    assert waiting(simulation) == []


def test_b045_days_are_not_mixed_under_one_recurring_key() -> None:
    simulation = Simulation([d_seg()])
    for key, id in (("us", "us1"), ("eu", "eu1"), ("us", "us2"), ("eu", "eu2"), ("apac", "apac2")):
        simulation.event("regional", key, id=id)
    (run,) = simulation.runs
    assert [event.id for event in run.events] == ["us2", "eu2", "apac2"]
    assert [(entry.kind, entry.replaced_event_id) for entry in simulation.audit] == [
        ("member-replaced", "us1"),
        ("member-replaced", "eu1"),
    ]
    assert waiting(simulation) == []


def test_b050_one_asset_that_comes_often_stands_in_for_no_other() -> None:
    names = [f"a{number:02}" for number in range(1, 17)]
    simulation = Simulation([job("c16", AssetAll(*map(Asset, names)))])
    for name in names[:15]:
        simulation.event(name, "k")
    for number in range(9):
        simulation.event("a07", "k", id=f"newer-{number}")
    assert waiting(simulation) == [("c16", "k", 15, 16, ("a16",))]
    assert simulation.runs == []
    (run,) = simulation.event("a16", "k")
    assert [event.asset.name for event in run.events] == names
    assert run.events[6].id == "newer-8"


def test_b051_every_event_is_in_one_run_s_record() -> None:
    simulation = Simulation([job("day_copy", Asset("a"), StartOfDayMapper())])
    times = ("09:01:00", "09:01:00", "09:02:00")
    for number, time in enumerate(times):
        simulation.event("a", f"2026-08-19T{time}", id=f"event-{number}", extra={"number": number})
    assert runs(simulation) == [("day_copy", "2026-08-19")] * 3  # rule D16: nothing is merged
    members = [(event.id, event.extra["number"]) for run in simulation.runs for event in run.events]
    assert sorted(members) == [("event-0", 0), ("event-1", 1), ("event-2", 2)]


@pytest.mark.parametrize(
    "condition",
    [Asset("a") | AssetAlias("out"), Asset("a") & AssetAlias("out"), AssetAlias("out") | Asset("a")],
)
def test_b060_an_event_by_two_routes_gives_one_run(condition: Condition) -> None:
    simulation = Simulation([job("two", condition)])
    simulation.event("a", "k", id="one", aliases=[AssetAlias("out")])
    (run,) = simulation.runs
    assert (run.partition_key, waiting(simulation)) == ("k", [])
    assert {event.id for event in run.events} == {"one"}
    assert simulation.audit == []
    assert run.events[0].asset == Asset("a")
    assert run.events[0].aliases == (AssetAlias("out"),)
    simulation.event("a", "k", id="two", aliases=[AssetAlias("out")])
    assert len(simulation.runs) == 2
