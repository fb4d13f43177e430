"""Whole schedules in memory: the examples of the requirement's kind, and what holds for every one."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import (
    Asset,
    AssetAccessControl,
    AssetAlias,
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    DataInterval,
    DayWindow,
    FixedKeyMapper,
    IdentityMapper,
    Job,
    MinimumCount,
    MonthWindow,
    PartitionedAssetTimetable,
    PartitionedAtRuntime,
    PartitionMapper,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    WaitForAll,
    WaitPolicy,
)
from tidegate.core.conditions import Condition
from tidegate.core.rounds import RerunPolicy
from tidegate.simulate import Simulation

HOURS = [f"2026-03-10T{hour:02}:00:00" for hour in range(24)]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def job(
    assets: Condition,
    mapper: PartitionMapper | None = None,
    config: dict[Asset, PartitionMapper] | None = None,
    *,
    id: str = "job",
    team: str | None = None,
) -> Job:
    return Job(id, PartitionedAssetTimetable(assets, mapper or IdentityMapper(), config or {}), team=team)  # type: ignore[arg-type]


def kinds(simulation: Simulation) -> list[str]:
    return [entry.kind for entry in simulation.audit]


def keys(simulation: Simulation) -> list[str | None]:
    return [run.partition_key for run in simulation.runs]


@pytest.mark.parametrize("mapper", [StartOfDayMapper(), StartOfHourMapper()])
def test_an_hourly_asset_gives_one_run_a_day(mapper: PartitionMapper) -> None:
    simulation = Simulation([job(Asset("a"), RollupMapper(mapper, DayWindow()))])
    for hour in HOURS[:-1]:
        assert simulation.event("a", hour) == []
    (pending,) = simulation.pending()
    assert pending.progress == {"a": (23, 24)}
    (run,) = simulation.event("a", HOURS[-1])
    assert (run.partition_key, run.partition_date, len(run.events)) == (
        "2026-03-10",
        at("2026-03-10T00:00"),
        24,
    )


def test_three_assets_join_on_the_hour() -> None:
    simulation = Simulation([job(Asset("a") & Asset("b") & Asset("c"), StartOfHourMapper())])
    simulation.event("a", "2026-03-10T09:00:00")
    simulation.event("b", "2026-03-10T10:15:00")
    simulation.event("c", "2026-03-10T09:30:00")
    assert simulation.runs == []
    simulation.event("b", "2026-03-10T09:59:59")
    assert keys(simulation) == ["2026-03-10T09"]
    assert [pending.partition_key for pending in simulation.pending()] == ["2026-03-10T10"]


@pytest.mark.parametrize(
    ("policy", "fires_at"), [(WaitForAll(), 3), (MinimumCount(2), 2), (MinimumCount(-1), 2)]
)
def test_segments_fire_when_enough_are_in(policy: WaitPolicy, fires_at: int) -> None:
    window = SegmentWindow(["us", "eu", "apac"])
    mapper = RollupMapper(FixedKeyMapper("all"), window, policy)
    simulation = Simulation([job(Asset("a"), mapper)])
    counts = []
    for key in ("us", "eu", "apac"):
        simulation.event("a", key)
        counts.append(len(simulation.runs))
    assert counts.index(1) == fires_at - 1
    # keys without a date come again: what came after a partial round is the first of the next (rule D23)
    assert [pending.partition_key for pending in simulation.pending()] == ([] if fires_at == 3 else ["all"])


def test_a_month_too_short_for_its_policy_is_audited_once_when_it_opens() -> None:
    month = RollupMapper(StartOfMonthMapper(), MonthWindow(), MinimumCount(30))
    simulation = Simulation([job(Asset("a"), month)])
    for day in range(1, 29):
        assert simulation.event("a", f"2026-02-{day:02}") == []
    (entry,) = simulation.audit
    assert (entry.kind, entry.partition_key) == ("window-unsatisfiable", "2026-02")
    assert "28 members" in entry.message


def test_a_run_that_is_started_again_keeps_the_date_that_another_event_brought() -> None:
    segments = RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu"]))
    schedule = PartitionedAssetTimetable(
        Asset("a") & Asset("b"), IdentityMapper(), {Asset("a"): segments}, RerunPolicy.REFIRE
    )
    simulation = Simulation([Job("job", schedule)])
    simulation.event("b", "all", partition_date=at("2026-03-10T00:00"))
    for key in ("us", "eu", "us"):
        simulation.event("a", key)
    assert [(run.generation, run.partition_date) for run in simulation.runs] == [
        (1, at("2026-03-10T00:00")),
        (2, at("2026-03-10T00:00")),
    ]
    assert kinds(simulation) == ["member-rerun"]


def test_what_no_window_waits_for_is_audited() -> None:
    simulation = Simulation(
        [job(Asset("a"), RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu"])))]
    )
    simulation.event("a", "latam")
    assert (kinds(simulation), simulation.pending()) == (["not-a-member"], [])


def test_a_paused_job_collects_and_lets_go_in_order() -> None:
    simulation = Simulation([job(Asset("a"))])
    simulation.pause("job")
    for key in ("x", "y", "x"):
        assert simulation.event("a", key) == []
    assert [run.partition_key for run in simulation.pause("job", False)] == ["x", "y", "x"]
    assert keys(simulation) == ["x", "y", "x"]


def test_progress_follows_a_changed_definition() -> None:
    daily, hourly = (
        RollupMapper(StartOfDayMapper(timezone=zone), DayWindow()) for zone in ("UTC", "Asia/Tokyo")
    )
    simulation = Simulation([job(Asset("a"), daily)])
    for hour in HOURS:
        if hour != HOURS[3]:
            simulation.event("a", hour)
    simulation.define(job(Asset("a"), hourly))
    assert simulation.pending()[0].progress == {"a": (23, 24)}
    simulation.define(job(Asset("a"), RollupMapper(StartOfDayMapper(), DayWindow(), MinimumCount(20))))
    assert keys(simulation) == ["2026-03-10"]


def test_a_job_that_no_longer_waits_for_anything_closes_its_rounds_visibly() -> None:
    simulation = Simulation([job(Asset("a") & Asset("b"))])
    simulation.event("a", "k")
    simulation.define(job(Asset("c") & Asset("b")))
    assert kinds(simulation) == ["round-closed"]
    simulation.event("b", "k")
    simulation.remove("job")
    assert kinds(simulation) == ["round-closed", "round-closed"]


def test_dates_that_differ_are_no_date_and_an_audit_entry() -> None:
    simulation = Simulation([job(Asset("a") & Asset("b"))])
    simulation.event("a", "k", partition_date=at("2026-03-10T00:00"))
    (run,) = simulation.event("b", "k", partition_date=at("2026-03-11T00:00"))
    assert run.partition_date is None
    assert kinds(simulation) == ["partition-date-conflict"]


@dataclass(frozen=True)
class _Failing(PartitionMapper, is_base=True):
    def to_downstream(self, key: str) -> str:
        if key == "bad":
            raise RuntimeError("no")
        return key

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        raise RuntimeError("no date")

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        raise RuntimeError("no carrying")


def test_a_hook_that_raises_costs_the_date_and_never_the_event() -> None:
    simulation = Simulation([job(Asset("a"), _Failing())])
    (run,) = simulation.event("a", "k", partition_date=at("2026-03-10T00:00"))
    assert run.partition_date is None
    assert kinds(simulation) == ["partition-date-failed"]
    simulation.event("a", "bad")
    assert kinds(simulation)[-1] == "mapping-failed"


def test_one_date_goes_through_a_chain_of_three_jobs() -> None:
    simulation = Simulation([job(Asset(name), id=f"job-{name}") for name in ("a", "b", "c")])
    date = at("2026-03-10T00:00")
    for name in ("a", "b", "c"):
        (run,) = simulation.event(name, "us", partition_date=date)
        assert run.partition_date == date
        date = run.partition_date


def test_aliases_stand_for_assets() -> None:
    simulation = Simulation([job(AssetAlias("outputs") & Asset("b"))])
    simulation.event("a", "k", aliases=[AssetAlias("outputs")])
    assert len(simulation.event("b", "k")) == 1
    simulation.event("a", "k")
    assert kinds(simulation) == ["unknown-asset"]


def test_references_stand_for_assets() -> None:
    simulation = Simulation([job(Asset.ref(name="a") & Asset.ref(uri="s3://bucket/b"))])
    simulation.event("a", "k")
    assert len(simulation.event(Asset("b", "s3://bucket/b"), "k")) == 1


def test_teams_filter_events_where_there_are_several() -> None:
    for multi_team, names, count in ((True, [], 0), (True, ["sales"], 1), (False, [], 1)):
        asset = Asset("a", access_control=AssetAccessControl(names))
        simulation = Simulation([job(asset, team="ops")], multi_team=multi_team)
        simulation.event("a", "k", team="sales")
        assert len(simulation.runs) == count
        assert kinds(simulation) == ([] if count else ["cross-team"])


def test_unpartitioned_jobs_take_events_without_a_key() -> None:
    simulation = Simulation([Job("job", [Asset("a"), Asset("b")])])
    simulation.event("a")
    simulation.event("b", "k")
    assert (simulation.runs, kinds(simulation)) == ([], ["partitioned-event"])
    (run,) = simulation.event("b")
    assert run.partition_key is None


def test_time_starts_every_run_on_its_way() -> None:
    hourly = Job("hourly", CronPartitionTimetable("@hourly"), start_date=at("2026-03-10T00:00"))
    daily = Job("daily", "@daily", start_date=at("2026-03-10T00:00"))
    simulation = Simulation([hourly, daily], now=at("2026-03-09T12:00"))
    simulation.move_clock(at("2026-03-11T00:00"))
    assert len([run for run in simulation.runs if run.job == "hourly"]) == 25
    assert len([run for run in simulation.runs if run.job == "daily"]) == 2
    starts = [run.info.run_after for run in simulation.runs if run.info]
    assert all(earlier <= later for earlier, later in pairwise(starts))
    assert simulation.now == at("2026-03-11T00:00")


@settings(deadline=None, max_examples=50)
@given(order=st.permutations([(asset, key) for asset in ("a", "b") for key in HOURS[:6]]))
def test_any_order_of_the_same_events_gives_the_same_runs(order: list[tuple[str, str]]) -> None:
    window = RollupMapper(StartOfHourMapper(), DayWindow(), MinimumCount(6))
    simulation = Simulation([job(Asset("a") & Asset("b"), StartOfHourMapper())])
    waiting = Simulation([job(Asset("a") & Asset("b"), window)])
    for asset, key in order:
        simulation.event(asset, key)
        waiting.event(asset, key)
    assert sorted(str(key) for key in keys(simulation)) == [f"2026-03-10T{hour:02}" for hour in range(6)]
    assert keys(waiting) == ["2026-03-10"]


@settings(deadline=None, max_examples=50)
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from("abz"),
            st.sampled_from([None, "", "x", "2026-03-10T05:00:00", "2026-03-10"]),
            st.integers(0, 5),
        ),
        max_size=40,
    )
)
def test_every_event_counts_or_leaves_an_audit_entry(events: list[tuple[str, str | None, int]]) -> None:
    simulation = Simulation([job(Asset("a") & Asset("b"), StartOfDayMapper())])
    for asset, key, number in events:
        simulation.event(asset, key, id=f"{asset}-{number}")
    counted = [event.id for run in simulation.runs for event in run.events]
    counted += [each.id for one in simulation.pending() for there in one.arrived.values() for each in there]
    audited = {each for entry in simulation.audit for each in (entry.event_id, entry.replaced_event_id)}
    for asset, _, number in events:
        assert f"{asset}-{number}" in {*counted, *audited}


@settings(deadline=None, max_examples=50)
@given(repeats=st.lists(st.integers(0, 23), max_size=60))
def test_a_dated_round_never_fires_twice_for_one_set_of_events(repeats: list[int]) -> None:
    simulation = Simulation([job(Asset("a"), RollupMapper(StartOfHourMapper(), DayWindow()))])
    for hour in [*repeats, *range(24), *repeats]:
        simulation.event("a", HOURS[hour], id=f"event-{hour}")
    assert keys(simulation) == ["2026-03-10"]
    assert len(simulation.runs[0].events) == 24


def test_an_event_beyond_the_horizon_starts_anew() -> None:
    simulation = Simulation([job(Asset("a"))])
    simulation.event("a", "k", id="one")
    assert simulation.event("a", "k", id="one") == []
    simulation.move_clock(simulation.now + timedelta(days=8))
    assert len(simulation.event("a", "k", id="one")) == 1


# ---- ingest, outlets, time and pauses ----


def test_an_event_is_taken_once_within_the_horizon_whatever_it_says() -> None:
    simulation = Simulation([job(Asset("a"))])
    simulation.event("a", "k", id="one")
    simulation.event("a", "other", id="one")
    simulation.event("a", "other", id="one", source="/elsewhere")
    assert keys(simulation) == ["k", "other"]
    assert [(entry.kind, entry.event_id, entry.job) for entry in simulation.audit] == [
        ("duplicate-event", "one", None)
    ]
    simulation.move_clock(simulation.now + timedelta(days=7))
    assert simulation.event("a", "k", id="one") == []
    simulation.move_clock(simulation.now + timedelta(milliseconds=1))
    assert len(simulation.event("a", "k", id="one")) == 1


def test_a_run_updates_its_outlets_with_its_own_key_date_and_team() -> None:
    first = Job(
        "first", PartitionedAssetTimetable(Asset("a"), StartOfDayMapper()), outlets=[Asset("b")], team="t"
    )
    second = job(Asset("b"), id="second", team="t")
    simulation = Simulation([first, second], multi_team=True)
    found = simulation.event("a", "2026-03-10T09:00:00", team="t", extra={"rows": 1})
    assert [(run.job, run.partition_key, run.partition_date) for run in found] == [
        ("first", "2026-03-10", at("2026-03-10T00:00")),
        ("second", "2026-03-10", at("2026-03-10T00:00")),
    ]
    (event,) = found[1].events
    assert (event.id, event.source, event.team, event.extra) == ("run-1:b", "/tidegate/jobs/first", "t", {})
    assert [each.what for each in simulation.happened] == simulation.runs == found
    quiet = Simulation([first, second], run_outlets=False)
    assert [run.job for run in quiet.event("a", "2026-03-10T09:00:00")] == ["first"]


def test_what_a_run_decides_itself_is_not_guessed() -> None:
    runtime = AssetOrTimeSchedule(timetable=PartitionedAtRuntime(), assets=Asset("c"))
    simulation = Simulation(
        [
            Job("runtime", runtime, outlets=[Asset("b")]),
            Job("aliased", PartitionedAssetTimetable(Asset("a")), outlets=[AssetAlias("out")]),
            job(Asset("b") | AssetAlias("out")),
        ]
    )
    assert [run.job for run in simulation.event("a", "k")] == ["aliased"]
    assert [run.job for run in simulation.event("c")] == ["runtime"]
    assert simulation.audit == []


def test_jobs_that_lead_to_each_other_run_once_each_and_a_notice_says_so() -> None:
    ring = [
        Job(f"job-{name}", PartitionedAssetTimetable(Asset(name)), outlets=[Asset(following)])
        for name, following in ("ab", "bc", "ca")
    ]
    simulation = Simulation(ring)
    assert [run.job for run in simulation.event("a", "k")] == ["job-a", "job-b", "job-c", "job-a"]
    (notice,) = simulation.notices
    assert "job-a -> job-b -> job-c -> job-a" in notice
    assert len(simulation.event("a", "k")) == 4  # an event from outside begins anew


def test_held_runs_update_their_outlets_when_they_go_out() -> None:
    first = Job("first", PartitionedAssetTimetable(Asset("a")), outlets=[Asset("b")])
    simulation = Simulation([first, job(Asset("b"), id="second")])
    simulation.pause("first")
    simulation.event("a", "x")
    assert ([run.partition_key for run in simulation.held()], simulation.runs) == (["x"], [])
    simulation.pause("second")
    assert [run.job for run in simulation.pause("first", False)] == ["first"]
    assert [run.job for run in simulation.held()] == ["second"]
    simulation.remove("second")
    assert [(entry.kind, entry.partition_key) for entry in simulation.audit] == [("round-closed", "x")]
    assert simulation.held() == []


def test_time_starts_no_run_of_a_paused_job_and_goes_on_with_the_next_tick() -> None:
    simulation = Simulation([Job("hourly", CronPartitionTimetable("30 * * * *"))], now=at("2026-03-10T00:00"))
    simulation.move_clock(at("2026-03-10T01:00"))
    simulation.pause("hourly")
    simulation.move_clock(at("2026-03-10T04:00"))
    simulation.pause("hourly", False)
    simulation.move_clock(at("2026-03-10T05:00"))
    assert keys(simulation) == ["2026-03-10T00:30:00", "2026-03-10T04:30:00"]


def test_a_schedule_of_intervals_that_is_resumed_runs_the_latest_complete_one() -> None:
    daily = Job("daily", CronDataIntervalTimetable("@daily", "UTC"), start_date=at("2026-03-10T00:00"))
    simulation = Simulation([daily], now=at("2026-03-10T00:00"))
    simulation.pause("daily")
    simulation.move_clock(at("2026-03-14T06:00"))
    (run,) = simulation.pause("daily", False)
    assert run.info is not None
    assert run.info.data_interval == DataInterval(at("2026-03-13T00:00"), at("2026-03-14T00:00"))


def test_a_changed_schedule_goes_on_after_the_last_run() -> None:
    start = at("2026-03-10T00:00")
    simulation = Simulation(
        [Job("job", CronPartitionTimetable("@hourly"), start_date=start, catchup=True)], now=start
    )
    simulation.move_clock(at("2026-03-10T02:30"))
    simulation.define(Job("job", CronPartitionTimetable("45 * * * *"), start_date=start, catchup=True))
    simulation.move_clock(at("2026-03-10T04:00"))
    assert keys(simulation) == [
        *(f"2026-03-10T{hour:02}:00:00" for hour in range(3)),
        "2026-03-10T02:45:00",
        "2026-03-10T03:45:00",
    ]


def test_once_runs_once_and_continuous_whenever_time_has_passed() -> None:
    simulation = Simulation([Job("once", "@once"), Job("always", "@continuous")], now=at("2026-03-10T00:00"))
    for hour in (1, 1, 2):
        simulation.move_clock(at(f"2026-03-10T0{hour}:00"))
    assert [run.job for run in simulation.runs] == ["once", "always", "always", "always"]
    intervals = [run.info.data_interval for run in simulation.runs if run.info and run.job == "always"]
    assert [each.end.hour for each in intervals if each] == [0, 1, 2]


def test_an_asset_is_known_as_long_as_a_definition_names_it() -> None:
    simulation = Simulation([Job("job", inlets=[Asset("in", "s3://bucket/in")], outlets=[Asset("out")])])
    simulation.declare(Asset("declared"))
    for name in ("in", "out", "declared"):
        simulation.event(name, "k")
    simulation.event(asset_uri="s3://bucket/in", partition_key="k")
    assert simulation.audit == []
    simulation.remove("job")
    for name in ("in", "out", "declared"):
        simulation.event(name, "k")
    assert [(entry.kind, entry.asset) for entry in simulation.audit] == [
        ("unknown-asset", "in"),
        ("unknown-asset", "out"),
    ]


def test_a_partial_run_and_a_waiting_round_name_what_is_missing() -> None:
    mapper = RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu", "apac"]), MinimumCount(2))
    simulation = Simulation([job(Asset("a") & Asset("b"), mapper, {Asset("b"): FixedKeyMapper("all")})])
    simulation.event("a", "eu")
    (pending,) = simulation.pending()
    assert [
        (each.asset, each.arrived, each.expected, each.needed, each.missing) for each in pending.windows
    ] == [
        ("a", 1, 3, 2, ("us", "apac")),
        ("b", 0, 1, 1, ("b",)),
    ]
    simulation.event("b", "x")
    (run,) = simulation.event("a", "apac", id="last")
    assert [(each.asset, each.arrived, each.expected, each.missing) for each in run.windows] == [
        ("a", 2, 3, ("us",)),
        ("b", 1, 1, ()),
    ]
    assert run.completed_by is not None
    assert run.completed_by.id == "last"


def test_a_refired_run_has_the_dates_of_all_its_events() -> None:
    segments = RollupMapper(IdentityMapper(), SegmentWindow(["us"]))
    schedule = PartitionedAssetTimetable(
        Asset("a") & Asset("b"),
        IdentityMapper(),
        {Asset("a"): segments},
        rerun_policy="refire",  # type: ignore[arg-type]
    )
    simulation = Simulation([Job("job", schedule)])
    simulation.event("a", "us", partition_date=at("2026-03-10T00:00"))
    (run,) = simulation.event("b", "us")
    assert run.partition_date == at("2026-03-10T00:00")
    (run,) = simulation.event("b", "us")
    assert (run.generation, run.partition_date) == (2, at("2026-03-10T00:00"))
    (run,) = simulation.event("b", "us", partition_date=at("2026-03-11T00:00"))
    assert (run.generation, run.partition_date, kinds(simulation)[-1]) == (3, None, "partition-date-conflict")
