"""The view of definitions answers for any offset of their log (rule D24)."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord

from tidegate import Asset, AssetAccessControl, Job, PartitionedAssetTimetable
from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.contracts.topics import DEFINITIONS
from tidegate.core.conditions import AssetAll, Condition
from tidegate.core.errors import DefinitionError
from tidegate.core.plain import plain
from tidegate.core.timetables import Timetable
from tidegate.runtime.definitions_view import DefinitionsView


def record(offset: int, key: str, value: bytes | None) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(
        topic=DEFINITIONS,
        partition=0,
        offset=offset,
        timestamp=0,
        timestamp_type=1,
        key=key.encode(),
        value=value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
        headers=(),
    )


def job_record(offset: int, asset: str, incarnation: str = "a1") -> ConsumerRecord[bytes, bytes]:
    job = Job("copy", schedule=PartitionedAssetTimetable(assets=Asset(asset)))
    return record(offset, "job:copy", written(plain(job), incarnation))


def written(body: dict[str, Any], incarnation: str = "a1") -> bytes:
    return DefinitionRecord(kind="job", id="copy", incarnation=incarnation, body=body).to_bytes()


def assets_at(view: DefinitionsView, offset: int) -> list[str]:
    return [leaf.name for each in view.jobs_at(offset).values() for leaf in each.job.schedule.assets_in_order]  # type: ignore[union-attr]


def test_a_job_that_is_not_there_is_refused_with_those_that_a_person_may_mean() -> None:
    view = DefinitionsView()
    view.apply(job_record(3, "a"))
    for named, said in (
        ("cpoy", r"^job 'cpoy' is not defined: did you mean 'copy'\?$"),
        ("monthly", r"^job 'monthly' is not defined \(defined: 'copy'\)$"),
    ):
        with pytest.raises(DefinitionError, match=said):
            view.defined(named)
    view.apply(record(4, "job:copy", written({"type": "Job", "id": "copy", "schedule": {"type": "Lunar"}})))
    with pytest.raises(DefinitionError, match=r"its definition \(definitions@4\) cannot be read: .*Lunar"):
        view.defined("copy")
    view.apply(record(5, "job:copy", None))
    with pytest.raises(DefinitionError, match=r"^job 'copy' is not defined \(defined: none\)$"):
        view.defined("copy")


def test_a_routing_is_that_of_the_schedule_the_team_and_the_incarnation_and_of_nothing_else() -> None:
    """Rule R6: what else a definition says moves no round."""

    def routing(incarnation: str = "a1", **more: Any) -> str:
        body = plain(Job("copy", **{"schedule": PartitionedAssetTimetable(Asset("a")), **more}))
        return DefinitionRecord(kind="job", id="copy", incarnation=incarnation, body=body).routing

    alike = [
        routing(),
        routing(description="other words"),
        routing(outlets=[Asset("b")]),
        routing(run_commands_topic="elsewhere"),
    ]
    others = [
        routing("a2"),
        routing(team="red"),
        routing(schedule=PartitionedAssetTimetable(Asset("b"))),
        routing(schedule=PartitionedAssetTimetable(Asset("a"), rerun_policy="refire")),
        routing(schedule=[Asset("a")]),
        routing(schedule=None),
    ]
    assert set(alike) == {"jXNzKIZGPz5w"}, "rounds of every installation would be mapped again"
    assert len({*alike, *others}) == 1 + len(others)


def test_a_job_has_the_routing_of_its_record_however_its_fields_are_ordered() -> None:
    view = DefinitionsView()
    schedule = {"type": "PartitionedAssetTimetable", "assets": {"type": "Asset", "name": "a"}}
    for offset, body in enumerate((schedule, dict(reversed(schedule.items())))):
        view.apply(record(offset, "job:copy", written({"type": "Job", "id": "copy", "schedule": body})))
    routings = [found.routing for offset in (0, 1) if (found := view.job_at_revision("copy", offset))]
    assert len(routings) == 2
    assert len(set(routings)) == 1


def test_a_job_is_what_the_last_record_below_the_offset_says() -> None:
    view = DefinitionsView()
    view.apply(job_record(3, "old"))
    view.apply(job_record(7, "new"))
    view.apply(record(9, "job:copy", None))
    assert [assets_at(view, offset) for offset in (3, 4, 7, 8, 9, 10)] == [
        [],
        ["old"],
        ["old"],
        ["new"],
        ["new"],
        [],
    ]
    assert view.job("copy") is None
    assert view.job_at_revision("copy", 3) is not None


def test_a_job_knows_where_it_was_created_though_the_record_is_gone() -> None:
    view = DefinitionsView()
    view.apply(job_record(3, "old"))
    first = view.job("copy")
    later = DefinitionRecord.from_bytes(job_record(7, "new").value or b"").model_copy(update={"created": 2})
    view.apply(record(7, "job:copy", later.to_bytes()))
    changed = view.job("copy")
    assert first is not None
    assert changed is not None
    assert [(each.revision, each.created) for each in (first, changed)] == [(3, 3), (7, 2)]


def test_what_a_job_became_is_known_from_the_next_definition_that_can_be_read() -> None:
    view = DefinitionsView()
    view.apply(job_record(3, "old"))
    view.apply(record(5, "job:copy", written({"type": "Job", "id": "copy", "schedule": {"type": "Unknown"}})))
    assert [view.can_read("copy", revision) for revision in (2, 3, 4, 5, 6)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    view.apply(job_record(8, "new"))
    assert view.can_read("copy", 4)
    found = view.job_from("copy", 5)
    assert found is not None
    assert found.revision == 8
    view.apply(record(9, "job:gone", b"nothing"))
    assert not view.can_read("gone", 9)
    view.apply(record(10, "job:gone", None))
    assert view.can_read("gone", 9)
    assert view.job_from("gone", 9) is None


def test_a_definition_that_cannot_be_read_removes_only_its_own_job() -> None:
    view = DefinitionsView()
    view.apply(job_record(0, "a"))
    view.apply(
        record(1, "job:other", written({"type": "Job", "id": "other", "schedule": {"type": "NoSuch"}}))
    )
    view.apply(record(2, "job:third", b"not json"))
    assert list(view.jobs()) == ["copy"]
    assert view.next_offset == 3


def test_a_timetable_whose_assets_cannot_be_judged_removes_only_its_own_job() -> None:
    view = DefinitionsView()
    view.apply(job_record(0, "a"))
    body = {"type": "Job", "id": "other", "schedule": {"type": "_Broken"}}
    view.apply(record(1, "job:other", written(body)))
    assert list(view.jobs()) == ["copy"]


class _Broken(Timetable):
    """Reads well, but has more ways to be satisfied than a round can be judged by."""

    @property
    def asset_condition(self) -> Condition:
        return AssetAll(*(Asset(f"a{n}") | Asset(f"b{n}") for n in range(7)))


def installation_record(offset: int, multi_team: bool) -> ConsumerRecord[bytes, bytes]:
    body = Installation(multi_team=multi_team).model_dump()
    found = DefinitionRecord(kind="installation", id="tidegate", incarnation="a1", body=body)
    return record(offset, INSTALLATION_KEY, found.to_bytes())


def test_teams_are_filtered_from_the_record_on_that_says_so_until_the_one_that_does_not() -> None:
    view = DefinitionsView()
    assert not view.is_multi_team_at(99)
    for offset, multi_team in [(0, False), (3, True), (7, False)]:
        view.apply(installation_record(offset, multi_team))
    assert [view.is_multi_team_at(offset) for offset in (0, 1, 3, 4, 7, 8)] == [
        False,
        False,
        False,
        True,
        True,
        False,
    ]
    assert view.installation == Installation(multi_team=False)


def asset(teams: list[str] | None) -> Asset:
    return Asset("a", access_control=None if teams is None else AssetAccessControl(teams))


def test_what_an_assets_own_definition_says_comes_first_then_its_producer_then_who_waits() -> None:
    view = DefinitionsView()
    jobs = [
        Job("copy", PartitionedAssetTimetable(asset(["waits"]))),
        Job("producer", outlets=[asset(["updates"])]),
    ]
    records = [("job", each.id, plain(each)) for each in jobs]
    records.append(("asset", "a", plain(asset(["own"]))))
    for offset, (kind, name, body) in enumerate(records):
        found = DefinitionRecord(kind=kind, id=name, incarnation="i", body=body)  # type: ignore[arg-type]
        view.apply(record(offset, found.record_key, found.to_bytes()))
    teams = []
    for offset in (1, 2, 3):
        access = view.assets_at(offset)["a"].access_control
        assert access is not None
        teams.append(access.producer_teams)
    assert teams == [("waits",), ("updates",), ("own",)]


def test_every_asset_that_a_job_names_is_known() -> None:
    view = DefinitionsView()
    job = Job(
        "copy", schedule=PartitionedAssetTimetable(assets=Asset("a")), outlets=[Asset("b", "s3://bucket/b")]
    )
    view.apply(record(0, "job:copy", written(plain(job))))
    assert view.known_assets()["b"].uri == "s3://bucket/b"
    assert set(view.known_assets()) == {"a", "b"}
