"""What `tidegate apply` decides before it writes anything."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate import (
    Asset,
    AssetAccessControl,
    AssetAlias,
    AssetOrTimeSchedule,
    CronPartitionTimetable,
    CronTriggerTimetable,
    DayWindow,
    DefinitionError,
    FixedKeyMapper,
    Job,
    MinimumCount,
    MonthWindow,
    NullTimetable,
    PartitionedAssetTimetable,
    PartitionedAtRuntime,
    PartitionMapper,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfMonthMapper,
    Timetable,
    WaitForAll,
    Window,
)
from tidegate.contracts.definitions import DefinitionRecord, Installation
from tidegate.core.plain import plain
from tidegate.core.rounds import RerunPolicy
from tidegate.definitions import Definitions, load_definitions
from tidegate.definitions.schedules import Schedule
from tidegate.runtime.applying import Planned, What, planned
from tidegate.runtime.definitions_log import Stored


def rollup(zone: str = "UTC", input_format: str = "%Y-%m-%dT%H:%M:%S") -> RollupMapper:
    return RollupMapper(StartOfDayMapper(timezone=zone, input_format=input_format), DayWindow())


def waiting(mapper: PartitionMapper, window: Window, since: str = "first_member") -> RollupMapper:
    return RollupMapper(mapper, window, WaitForAll().or_after(timedelta(hours=1), since=since))


def job(mapper: RollupMapper | None = None, description: str = "") -> Job:
    schedule = PartitionedAssetTimetable(Asset("a") & Asset("b"), mapper or rollup())
    return Job(id="daily", schedule=schedule, description=description)


def stored(declared: Job) -> Stored:
    record = DefinitionRecord(kind="job", id=declared.id, incarnation="first", body=plain(declared))
    return Stored(DefinitionRecord.from_bytes(record.to_bytes()), 7)


def plan(
    *jobs: Job, beside: Sequence[Stored] = (), assets: Sequence[Asset] = (), multi_team: bool = False
) -> Planned:
    """What publishing jobs comes to, beside stored ones."""
    counts = Installation(partitions=4, shards=8, multi_team=multi_team)
    by_id = {each.record.id: each for each in beside}
    return planned(Definitions(jobs, tuple(assets)), by_id, {}, counts)


def changed(declared: Job, before: Stored) -> DefinitionRecord:
    """The record of a job that is not as it was."""
    found = plan(declared, beside=[before])
    assert found.what == {("job", declared.id): What.CHANGED}
    (record,) = found.records
    return record


def test_a_new_job_gets_an_incarnation_of_its_own() -> None:
    one, other = plan(job()), plan(job())
    assert one.what == {("job", "daily"): What.CREATED}
    assert one.records[0].incarnation != other.records[0].incarnation


def test_the_same_plain_form_is_unchanged_after_a_trip_over_the_wire() -> None:
    found = plan(job(), beside=[stored(job())])
    assert (found.what, found.records) == ({("job", "daily"): What.UNCHANGED}, [])


def test_a_changed_job_keeps_its_incarnation() -> None:
    record = changed(job(description="new words"), stored(job()))
    assert record.incarnation == "first"
    assert record.body["description"] == "new words"
    assert record.created == 7  # where the record stands that created it, which compaction takes one day
    assert changed(job(description="newer words"), Stored(record, 12)).created == 7
    assert plan(job(description="new words"), beside=[Stored(record, 12)]).records == []


def test_a_job_whose_schedule_changes_is_the_same_job_still() -> None:
    record = changed(job(rollup("Europe/Berlin")), stored(job()))
    assert record.incarnation == "first"
    assert record.body["schedule"] == plain(job(rollup("Europe/Berlin")))["schedule"]


def test_ids_that_kafka_confuses_are_refused_against_those_that_exist() -> None:
    with pytest.raises(DefinitionError, match="rename one"):
        plan(Job(id="a.b"), beside=[stored(Job(id="a_b"))])
    plan(Job(id="a_b"), beside=[stored(Job(id="a_b"))])


CRON = CronTriggerTimetable("@daily", timezone="UTC")
A, B = Asset("a"), Asset("b")


class _Workdays(Timetable):
    """A timetable of the user's own."""


@pytest.mark.parametrize(
    "schedule",
    [
        CRON,
        CronPartitionTimetable("@daily", timezone="UTC"),
        "@once",
        "@continuous",
        timedelta(hours=1),
        AssetOrTimeSchedule(timetable=CRON, assets=[A]),
        _Workdays(),
    ],
)
def test_a_schedule_by_the_clock_is_refused_since_no_service_has_one(schedule: Schedule) -> None:
    with pytest.raises(DefinitionError, match=r"the schedule of job 'j', a \w+, has no effect yet"):
        plan(Job("j", schedule))


@pytest.mark.parametrize(
    "declared",
    [
        job(),
        Job("j"),
        Job("j", inlets=[Asset.ref(name="a")], outlets=[AssetAlias("out"), B], team="ops"),
        Job("j", [A, B]),
        Job("j", [Asset("a", extra={"type": {"type": ["x"]}})]),
        Job("j", A | AssetAlias("out")),
        Job("j", NullTimetable()),
        Job("j", PartitionedAtRuntime()),
        Job("j", AssetOrTimeSchedule(timetable=NullTimetable(), assets=[A])),
        Job(
            "j",
            PartitionedAssetTimetable(A & Asset.ref(name="b") & Asset.ref(uri="s3://b/c") & AssetAlias("d")),
        ),
        Job("j", PartitionedAssetTimetable(Asset("a", access_control=AssetAccessControl(["x"])))),
        Job("j", PartitionedAssetTimetable(A, rollup(), rerun_policy=RerunPolicy.REFIRE)),
        Job("j", PartitionedAssetTimetable(A, waiting(StartOfDayMapper(), DayWindow()))),
    ],
)
def test_what_the_services_follow_is_taken(declared: Job) -> None:
    plan(declared)


def test_a_type_that_only_the_file_defines_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from tidegate import *\n"
        "@dataclass(frozen=True)\n"
        "class Upper(PartitionMapper):\n"
        "    def to_downstream(self, key):\n"
        "        return key.upper()\n"
        "one = Job('one', PartitionedAssetTimetable(Asset('a'), ChainMapper(IdentityMapper(), Upper())))\n"
    )
    (declared,) = load_definitions(file).jobs
    with pytest.raises(DefinitionError, match=r"job 'one' uses Upper.*installed package.*tidegate\.mappers"):
        plan(declared)


def test_our_own_topics_cannot_be_a_jobs() -> None:
    with pytest.raises(DefinitionError, match="'run-requests' of job 'daily' is one of Tidegate's own"):
        plan(Job(id="daily", run_commands_topic="run-requests"))
    assert [each.name for each in plan(Job(id="daily", run_commands_topic="mine")).topics] == ["mine"]


def warnings_of(*jobs: Job, assets: Sequence[Asset] = (), multi_team: bool = False) -> list[str]:
    """What is said of the first job, with the others and the assets beside it."""
    beside = [stored(each) for each in jobs[1:]]
    return plan(jobs[0], beside=beside, assets=assets, multi_team=multi_team).warnings


def test_what_a_mapper_warns_of_is_said_for_every_asset_that_it_is_for() -> None:
    found = warnings_of(job(rollup("America/Los_Angeles")))
    assert [each.partition(": ")[0] for each in found] == ["job 'daily', asset 'a'", "job 'daily', asset 'b'"]
    assert all("America/Los_Angeles" in each and "%z" in each for each in found)


@pytest.mark.parametrize(
    "mapper",
    [rollup("UTC"), rollup("Asia/Kolkata"), rollup("America/Los_Angeles", "%Y-%m-%dT%H:%M:%S%z")],
    ids=["utc", "no change", "offset"],
)
def test_nothing_is_warned_of_where_hours_cannot_merge(mapper: RollupMapper) -> None:
    assert warnings_of(job(mapper)) == []


def test_b018_a_threshold_that_short_windows_cannot_meet_is_warned_of() -> None:
    mapper = RollupMapper(StartOfMonthMapper(), MonthWindow(), MinimumCount(30))
    (warning,) = warnings_of(Job("m1", PartitionedAssetTimetable(A, mapper)))
    assert warning.startswith("job 'm1', asset 'a': MinimumCount")
    assert "MonthWindow" in warning


def test_a_deadline_after_a_window_that_is_no_period_is_warned_of() -> None:
    segments = waiting(FixedKeyMapper("all"), SegmentWindow(["us"]), "window_end")
    (warning,) = warnings_of(Job("j", PartitionedAssetTimetable(A, segments)))
    assert "counts from the first member" in warning
    days = waiting(StartOfDayMapper(), DayWindow(), "window_end")
    assert warnings_of(Job("j", PartitionedAssetTimetable(A, days))) == []
    of_first = waiting(FixedKeyMapper("all"), SegmentWindow(["us"]))
    assert warnings_of(Job("j", PartitionedAssetTimetable(A, of_first))) == []


def test_an_inlet_that_no_definition_names_is_warned_of() -> None:
    reads = Job("j", inlets=[Asset.ref(name="b"), Asset.ref(name="bb"), Asset.ref(uri="s3://b/c"), A])
    assert warnings_of(reads, assets=[A, B]) == [
        "job 'j' reads the asset 'bb', of which no definition has the name yet",
        "job 'j' reads the asset 's3://b/c', of which no definition has the URI yet",
    ]


def test_a_team_is_warned_of_where_teams_are_not_filtered() -> None:
    (warning,) = warnings_of(Job("j", team="ops"))
    assert "'ops'" in warning
    assert "--multi-team" in warning
    assert warnings_of(Job("j", team="ops"), multi_team=True) == []
    assert warnings_of(Job("j")) == []


def test_a_reference_that_names_nothing_that_is_known_is_warned_of() -> None:
    by_uri, by_name = Asset.ref(uri="s3://bucket/data"), Asset.ref(name="data")
    data = Asset("data", "s3://bucket/data/")
    waiting = Job("j", by_uri & by_name)
    found = warnings_of(waiting)
    assert ["URI" in each for each in found] == [True, False]
    assert ["'s3://bucket/data'" in found[0], "'data'" in found[1]] == [True, True]
    assert warnings_of(waiting, assets=[data]) == []
    assert len(warnings_of(waiting, assets=[Asset("data")])) == 1


def test_an_alias_that_no_job_updates_is_warned_of() -> None:
    waiting = Job("j", AssetAlias("out"))
    (warning,) = warnings_of(waiting, Job("k", outlets=[Asset("out"), AssetAlias("other")]))
    assert "'out'" in warning
    assert warnings_of(waiting, Job("k", outlets=[AssetAlias("out")])) == []


def test_rollups_that_can_never_meet_under_one_key_are_warned_of() -> None:  # D19
    def fixed(key: str) -> RollupMapper:
        return RollupMapper(FixedKeyMapper(key), SegmentWindow(["us", "eu"]))

    def declared(key: str) -> Job:
        return Job("j", PartitionedAssetTimetable(A & B, fixed("all"), {B: fixed(key)}))

    (warning,) = warnings_of(declared("every"))
    assert "'all', 'every'" in warning
    assert warnings_of(declared("all")) == []


@pytest.mark.parametrize(("depth", "is_refused"), [(100, False), (230, True), (400, True)])
def test_what_is_nested_too_deeply_for_readers_is_refused(depth: int, is_refused: bool) -> None:
    nested: Any = "x"
    for _ in range(depth):
        nested = [nested]
    asset = Asset("a", extra={"deep": nested})
    if is_refused:
        with pytest.raises(DefinitionError, match="asset 'a' cannot be written and read back as JSON"):
            plan(assets=[asset])
    else:
        (record,) = plan(assets=[asset]).records
        assert DefinitionRecord.from_bytes(record.to_bytes()).body["extra"] == {"deep": nested}
