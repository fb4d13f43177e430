"""What `tidegate apply` decides before it writes anything."""

from datetime import timedelta

import pytest

from tidegate import (
    Asset,
    AssetAccessControl,
    AssetAlias,
    DayWindow,
    DefinitionError,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
    WaitForAll,
)
from tidegate.contracts.definitions import DefinitionRecord
from tidegate.core.plain import plain
from tidegate.runtime.applying import (
    What,
    _check_effects,
    _check_ids,
    _clocks_change,
    _commands_topic,
    _compared,
    _warnings,
)
from tidegate.runtime.definitions_log import Stored


def rollup(zone: str = "UTC", input_format: str = "%Y-%m-%dT%H:%M:%S") -> RollupMapper:
    return RollupMapper(StartOfDayMapper(timezone=zone, input_format=input_format), DayWindow())


def job(mapper: RollupMapper | None = None, description: str = "") -> Job:
    schedule = PartitionedAssetTimetable(Asset("a") & Asset("b"), mapper or rollup())
    return Job(id="daily", schedule=schedule, description=description)


def stored(declared: Job) -> Stored:
    record = DefinitionRecord(kind="job", id=declared.id, incarnation="first", body=plain(declared))
    return Stored(DefinitionRecord.from_bytes(record.to_bytes()), 7)


def test_a_new_job_gets_an_incarnation_of_its_own() -> None:
    (one, what), (other, _) = _compared(job(), None), _compared(job(), None)
    assert what is What.CREATED
    assert one.incarnation != other.incarnation


def test_the_same_plain_form_is_unchanged_after_a_trip_over_the_wire() -> None:
    assert _compared(job(), stored(job()))[1] is What.UNCHANGED


def test_a_changed_job_keeps_its_incarnation() -> None:
    record, what = _compared(job(description="new words"), stored(job()))
    assert what is What.CHANGED
    assert record.incarnation == "first"
    assert record.body["description"] == "new words"


def test_a_changed_schedule_is_refused_with_the_ways_out() -> None:
    with pytest.raises(DefinitionError, match=r"'daily' cannot be changed yet.*new id, or delete"):
        _compared(job(rollup("Europe/Berlin")), stored(job()))


def test_ids_that_kafka_confuses_are_refused_against_those_that_exist() -> None:
    with pytest.raises(DefinitionError, match="rename one"):
        _check_ids([Job(id="a.b")], {"a_b": stored(Job(id="a_b"))})
    _check_ids([Job(id="a_b")], {"a_b": stored(Job(id="a_b"))})


@pytest.mark.parametrize(
    ("declared", "part"),
    [
        (Job("j", team="ops"), "Job.team 'ops'"),
        (Job("j", "@daily"), "CronTriggerTimetable"),
        (Job("j", [Asset("a")]), "AssetTriggeredTimetable"),
        (Job("j", PartitionedAssetTimetable(Asset("a") & Asset.ref(name="b"))), "AssetNameRef"),
        (Job("j", PartitionedAssetTimetable(AssetAlias("b"))), "AssetAlias"),
        (
            Job("j", PartitionedAssetTimetable(Asset("a", access_control=AssetAccessControl(["x"])))),
            "access_control",
        ),
        (
            Job(
                "j",
                PartitionedAssetTimetable(
                    Asset("a"),
                    RollupMapper(StartOfDayMapper(), DayWindow(), WaitForAll().or_after(timedelta(hours=1))),
                ),
            ),
            "deadline",
        ),
    ],
)
def test_what_no_service_follows_yet_is_refused(declared: Job, part: str) -> None:
    with pytest.raises(DefinitionError, match=f"{part}.*has no effect yet"):
        _check_effects(declared)


def test_what_the_services_follow_is_taken() -> None:
    for declared in (job(), Job("j"), Job("j", inlets=[Asset.ref(name="a")])):
        _check_effects(declared)


def test_our_own_topics_cannot_be_a_jobs() -> None:
    with pytest.raises(DefinitionError, match="'run-requests' of job 'daily' is one of Tidegate's own"):
        _commands_topic(Job(id="daily", run_commands_topic="run-requests"), 4)
    assert _commands_topic(Job(id="daily", run_commands_topic="mine"), 4).name == "mine"


def test_repeated_hours_that_merge_are_warned_of_once_an_asset() -> None:
    found = _warnings(job(rollup("America/Los_Angeles")))
    assert len(found) == 2
    assert "'a'" in found[0]
    assert "America/Los_Angeles" in found[0]


@pytest.mark.parametrize(
    "mapper", [rollup("UTC"), rollup("America/Los_Angeles", "%Y-%m-%dT%H:%M:%S%z")], ids=["utc", "offset"]
)
def test_nothing_is_warned_of_where_hours_cannot_merge(mapper: RollupMapper) -> None:
    assert _warnings(job(mapper)) == []


@pytest.mark.parametrize(
    ("zone", "change"),
    [("UTC", False), ("Asia/Kolkata", False), ("America/Los_Angeles", True), ("Australia/Lord_Howe", True)],
)
def test_zones_whose_clocks_change(zone: str, change: bool) -> None:
    assert _clocks_change(zone) is change
