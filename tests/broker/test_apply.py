"""Topics, the installation record and `tidegate apply`, on a broker."""

import json
from pathlib import Path

import pytest

from tests.broker.conftest import Install, define, delete_topics, read_all, send
from tests.servers.backends import Backend
from tests.servers.command_line import tidegate
from tidegate import (
    Asset,
    AssetAlias,
    DefinitionError,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfMonthMapper,
    YearWindow,
)
from tidegate.contracts.definitions import DefinitionRecord, Installation
from tidegate.contracts.topics import AUDIT, DEFINITIONS, declared_topics
from tidegate.core.plain import plain
from tidegate.definitions import Definitions
from tidegate.runtime.applying import What, apply_definitions
from tidegate.runtime.definitions_log import definitions_log
from tidegate.runtime.definitions_view import NotInstalledError, definitions_view
from tidegate.runtime.installing import InstallationMismatchError, mismatches
from tidegate.runtime.installing import install as install_again
from tidegate.runtime.topic_admin import admin_client

A = Asset("a")
DAILY = Job(id="daily", schedule=PartitionedAssetTimetable(A))
WORDED = Job(id="daily", schedule=PartitionedAssetTimetable(A), description="new words")


async def test_installing_makes_the_topics_once_and_keeps_the_counts(backend: Backend) -> None:
    async with admin_client(backend.kafka) as admin:
        await delete_topics(admin, [name for name in await admin.list_topics() if not name.startswith("__")])
    with pytest.raises(NotInstalledError, match="topics create"):
        await mismatches(backend.kafka)
    wanted = Installation(partitions=3, shards=6)
    first = await install_again(backend.kafka, wanted)
    assert first.is_new
    assert set(first.created) == {topic.name for topic in declared_topics(3)}
    again = await install_again(backend.kafka, wanted)
    assert not again.is_new
    assert again.created == ()
    with pytest.raises(InstallationMismatchError, match="3 partitions and 6 shards"):
        await install_again(backend.kafka, Installation(partitions=4, shards=6))
    assert await mismatches(backend.kafka) == (wanted, [])


async def test_teams_are_switched_later_and_left_alone_where_nothing_is_said(install: Install) -> None:
    kafka, counts = install(partitions=2, shards=4).kafka, Installation(partitions=2, shards=4)
    switched = counts.model_copy(update={"multi_team": True})
    async with definitions_view(kafka) as view:
        for multi_team, records, expected in [
            (None, 1, counts),
            (False, 1, counts),
            (True, 2, switched),
            (True, 2, switched),
            (None, 2, switched),
            (False, 3, counts),
        ]:
            found = await install_again(kafka, counts, multi_team=multi_team)
            assert (found.installation, found.is_new) == (expected, False)
            written = await read_all(kafka, DEFINITIONS)
            assert len(written) == records
            await view.wait_for(records)
            assert view.installation == expected
        assert [view.is_multi_team_at(offset) for offset in (1, 2, 3)] == [False, True, False]
    assert len({DefinitionRecord.from_bytes(each.value).incarnation for each in written}) == 1
    with pytest.raises(InstallationMismatchError):
        await install_again(kafka, Installation(partitions=2, shards=5), multi_team=True)
    assert (await mismatches(kafka))[0] == counts


async def test_the_command_line_switches_teams_and_leaves_them(install: Install) -> None:
    at = install(partitions=2, shards=4)
    create = ("topics", "create", "--partitions", "2", "--shards", "4")
    for option, said in [((), False), (("--multi-team",), True), ((), True), (("--no-multi-team",), False)]:
        done = await tidegate(at, *create, *option)
        assert ("teams filtered" in done.done) is said
        assert (await mismatches(at.kafka))[0].multi_team is said
    missing = await tidegate(at, "topics", "check", "--team", "blue")
    assert (missing.exit_code, missing.out.strip()) == (
        1,
        "asset-events.blue: topic is missing, wanted present: `tidegate topics create --team blue` makes it",
    )
    assert "created asset-events.blue" in (await tidegate(at, *create, "--team", "blue")).done
    assert (await tidegate(at, "topics", "check", "--team", "blue")).done


async def test_a_definition_with_an_unknown_type_is_refused_alone(install: Install, tmp_path: Path) -> None:
    at = install()
    unknown = {"type": "Job", "id": "other", "schedule": {"type": "LunarTimetable"}}
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps([unknown, plain(DAILY)]))
    said = await tidegate(at, "apply", str(file))
    assert said.exit_code == 1
    assert "refused: other" in said.out
    assert "'LunarTimetable'" in said.out
    async with definitions_log(at.kafka) as log:
        assert set(log.of_kind("job")) == {"daily"}


async def test_warnings_look_at_what_is_defined_already(install: Install) -> None:
    kafka = install().kafka
    waiting = Job("waiting", Asset.ref(name="data") & AssetAlias("out"), team="blue")
    found = await apply_definitions(kafka, Definitions((waiting,)))
    assert len(found.warnings) == 3
    producer = Job("producer", outlets=[Asset("data"), AssetAlias("out")])
    await define(kafka, producer)
    await send(kafka, [(DEFINITIONS, 0, b"job:unreadable", unreadable())])
    await install_again(kafka, Installation(partitions=2, shards=4), multi_team=True)
    assert (await apply_definitions(kafka, Definitions((waiting,)))).warnings == ()


async def test_a_window_that_contributions_do_not_reach_back_over_is_warned_of(
    install: Install,
) -> None:  # R2
    years = RollupMapper(StartOfMonthMapper(), YearWindow())
    job = Job("years", PartitionedAssetTimetable(A, years))
    (warning,) = (await apply_definitions(install().kafka, Definitions((job,), (A,)))).warnings
    assert "keeps records for 45 days, less than the 366 days of job 'years'" in warning


def unreadable() -> bytes:
    body = {"type": "Job", "id": "unreadable", "schedule": {"type": "LunarTimetable"}}
    return DefinitionRecord(kind="job", id="unreadable", incarnation="i", body=body).to_bytes()


async def test_a_missing_topic_is_reported_and_made_again(install: Install) -> None:
    kafka = install(partitions=2, shards=4).kafka
    async with admin_client(kafka) as admin:
        await delete_topics(admin, [AUDIT])
    _, found = await mismatches(kafka)
    assert [str(each) for each in found] == [
        "audit-log: topic is missing, wanted present: `tidegate topics create` makes it"
    ]
    assert (await install_again(kafka, Installation(partitions=2, shards=4))).created == (AUDIT,)
    assert (await mismatches(kafka))[1] == []


async def test_definitions_are_created_unchanged_changed_and_deleted(install: Install) -> None:
    kafka = install().kafka
    created = await apply_definitions(kafka, Definitions((DAILY,), (A,)))
    assert [(each.kind, each.id, each.what) for each in created.changes] == [
        ("asset", "a", What.CREATED),
        ("job", "daily", What.CREATED),
    ]
    assert created.topics == ("run-commands.daily",)
    async with definitions_log(kafka) as log:
        incarnation = log.of_kind("job")["daily"].record.incarnation
    again = await apply_definitions(kafka, Definitions((DAILY,), (A,)))
    assert [each.what for each in again.changes] == [What.UNCHANGED, What.UNCHANGED]
    assert [each.revision for each in again.changes] == [each.revision for each in created.changes]
    changed = await apply_definitions(kafka, Definitions((WORDED,)))
    assert [each.what for each in changed.changes] == [What.CHANGED]
    async with definitions_view(kafka) as view:
        defined = view.job("daily")
        assert defined is not None
        assert defined.job.description == "new words"
        assert defined.incarnation == incarnation
        assert defined.revision == changed.changes[0].revision
    deleted = await apply_definitions(kafka, Definitions(()), ["daily"])
    assert [(each.id, each.what, each.revision) for each in deleted.changes] == [
        ("daily", What.DELETED, None)
    ]
    with pytest.raises(DefinitionError, match="is not defined"):
        await apply_definitions(kafka, Definitions(()), ["daily"])


async def test_a_job_keeps_its_incarnation_through_changes_but_not_when_it_is_created_again(
    install: Install,
) -> None:
    kafka = install().kafka

    async def incarnation() -> str:
        async with definitions_log(kafka) as log:
            return log.of_kind("job")["daily"].record.incarnation

    await apply_definitions(kafka, Definitions((DAILY,)))
    before = await incarnation()
    other = Job(id="daily", schedule=PartitionedAssetTimetable(A & Asset("b")))
    changed = await apply_definitions(kafka, Definitions((other,)))
    assert [each.what for each in changed.changes] == [What.CHANGED]
    assert await incarnation() == before
    anew = await apply_definitions(kafka, Definitions((other,)), ["daily"])
    assert [each.what for each in anew.changes] == [What.CREATED]
    assert await incarnation() != before
