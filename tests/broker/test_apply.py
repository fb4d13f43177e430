"""Topics, the installation record and `tidegate apply`, on a broker."""

import pytest

from tests.broker.conftest import Install, delete_topics
from tests.servers.backends import Backend
from tidegate import Asset, DefinitionError, Job, PartitionedAssetTimetable
from tidegate.contracts.definitions import Installation
from tidegate.contracts.topics import AUDIT, declared_topics
from tidegate.definitions import Definitions
from tidegate.runtime.applying import What, apply_definitions
from tidegate.runtime.definitions_log import definitions_log
from tidegate.runtime.definitions_view import NotInstalledError, definitions_view
from tidegate.runtime.installing import InstallationMismatchError, install, mismatches
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
    first = await install(backend.kafka, wanted)
    assert first.is_new
    assert set(first.created) == {topic.name for topic in declared_topics(3)}
    again = await install(backend.kafka, wanted)
    assert not again.is_new
    assert again.created == ()
    with pytest.raises(InstallationMismatchError, match="3 partitions and 6 shards"):
        await install(backend.kafka, Installation(partitions=4, shards=6))
    assert await mismatches(backend.kafka) == (wanted, [])


async def test_a_missing_topic_is_reported_and_made_again(install: Install) -> None:
    from tidegate.runtime.installing import install as install_again

    kafka = install(partitions=2, shards=4).kafka
    async with admin_client(kafka) as admin:
        await delete_topics(admin, [AUDIT])
    _, found = await mismatches(kafka)
    assert [str(each) for each in found] == ["audit-log: topic is missing, wanted present"]
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
    with pytest.raises(DefinitionError, match="not defined, so it cannot be deleted"):
        await apply_definitions(kafka, Definitions(()), ["daily"])


async def test_a_schedule_changes_only_with_a_new_incarnation(install: Install) -> None:
    kafka = install().kafka
    await apply_definitions(kafka, Definitions((DAILY,)))
    async with definitions_log(kafka) as log:
        before = log.of_kind("job")["daily"].record.incarnation
    other = Job(id="daily", schedule=PartitionedAssetTimetable(A & Asset("b")))
    with pytest.raises(DefinitionError, match="cannot be changed yet"):
        await apply_definitions(kafka, Definitions((other,)))
    anew = await apply_definitions(kafka, Definitions((other,)), ["daily"])
    assert [each.what for each in anew.changes] == [What.CREATED]
    async with definitions_log(kafka) as log:
        assert log.of_kind("job")["daily"].record.incarnation != before
