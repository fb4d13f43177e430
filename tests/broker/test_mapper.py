"""ingest and mapper as processes: what events become on `contributions`, and what the audit log says of the others."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition

from tests.broker.conftest import Install, Installed, define, read_all, send, until_async
from tests.broker.events import audit, event, give
from tests.packages import install_package
from tidegate import (
    Asset,
    AssetAccessControl,
    AssetAlias,
    AssetOrTimeSchedule,
    FanOutMapper,
    Job,
    MonthWindow,
    NullTimetable,
    PartitionedAssetTimetable,
    StartOfDayMapper,
    StartOfMonthMapper,
    StartOfWeekMapper,
    WeekWindow,
)
from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.contributions import Contribution, ContributionBatch, JobRef, MemberEvent
from tidegate.contracts.definitions import DefinitionRecord, Installation
from tidegate.contracts.placement import contributions_partition, shard_of
from tidegate.contracts.topics import ACCEPTED, ASSET_EVENTS, CONTRIBUTIONS, DEFINITIONS, team_events_topic
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Condition
from tidegate.runtime.installing import install as install_again
from tidegate.runtime.positions import committed_positions
from tidegate.runtime.topic_admin import admin_client

SHARDS = 4
Taken = tuple[str, str, str, str]
"""Event id, job, the asset as the job names it, downstream key."""


class Found(NamedTuple):
    """A contribution with what its indexes stand for."""

    job: JobRef
    event: MemberEvent
    entry: Contribution


async def contributions(at: Installed) -> list[Found]:
    """Every contribution, each on the partition that feeds the shard of its job and key."""
    found = []
    for record in await read_all(at.kafka, CONTRIBUTIONS):
        packed = ContributionBatch.from_bytes(record.value)
        for entry in packed.entries:
            job = packed.jobs[entry.job]
            shard = shard_of(job.id, entry.key, SHARDS)
            assert record.partition == contributions_partition(shard, at.partitions)
            found.append(Found(job, packed.events[entry.event], entry))
    return found


async def taken(at: Installed) -> list[Taken]:
    return sorted(
        (each.event.id, each.job.id, each.job.assets[each.entry.asset], each.entry.key)
        for each in await contributions(at)
    )


async def until_taken(at: Installed, wanted: Iterable[Taken]) -> None:
    """Return when all of these are there; whatever is there besides is for the test to see."""

    async def are_there() -> bool:
        return set(wanted) <= set(await taken(at))

    await until_async(are_there, f"the contributions {list(wanted)}")


async def noted(at: Installed) -> list[tuple[str, str, str]]:
    """(event id, job, kind) of every audit entry, sorted."""
    return sorted(
        (each.event_id or "", each.job or "", str(each.kind)) for each in await audit(at, *AuditKind)
    )


@asynccontextmanager
async def running(at: Installed, **env: str) -> AsyncIterator[None]:
    with at.service("ingest", **env) as ingest, at.service("mapper", **env) as mapper:
        ingest.wait_ready()
        mapper.wait_ready()
        yield


def copying(name: str, assets: Condition, team: str | None = None) -> Job:
    return Job(name, PartitionedAssetTimetable(assets), team=team)


async def test_an_asset_is_found_by_name_uri_and_alias_however_the_job_and_the_event_name_it(
    install: Install,
) -> None:
    at = install(shards=SHARDS)
    data = Asset("data", "s3://bucket/data/")
    await define(
        at.kafka,
        data,
        Asset("other"),
        copying("alias", AssetAlias("out")),
        copying("direct", data),
        copying("name", Asset.ref(name="data")),
        copying("two", data | AssetAlias("out")),
        copying("uri", Asset.ref(uri="S3://bucket/data")),
        Job("whole", AssetAlias("out")),
    )
    await give(
        at,
        event("1 named", "data", partition_key="k"),
        event("2 spelled", None, asset_uri="s3://me:secret@bucket/data#x", partition_key="k"),
        event("3 alias", "other", partition_key="k", aliases=["out", "out"]),
        event("4 both", "data", partition_key="k", aliases=["out"]),
        event("5 nothing", None, partition_key="k", aliases=["out"]),
        event("6 broken", None, asset_uri="s3://me:secret@/data", partition_key="k"),
        event("7 unknown", None, asset_uri="S3://bucket/more/", partition_key="k"),
        event("8 without a key", "other", partition_key=None, aliases=["out"]),
        event("9 last", "data", partition_key="k"),
    )
    by_name = [("direct", "data"), ("name", "data"), ("two", "data"), ("uri", "s3://bucket/data")]
    expected = [
        *(("1 named", *each, "k") for each in by_name),
        *(("2 spelled", *each, "k") for each in by_name),
        ("3 alias", "alias", "out", "k"),
        ("3 alias", "two", "out", "k"),
        *(("4 both", *each, "k") for each in (("alias", "out"), *by_name, ("two", "out"))),
        ("8 without a key", "whole", "out", ""),
        *(("9 last", *each, "k") for each in by_name),
    ]
    async with running(at):
        await until_taken(at, expected)
    assert await taken(at) == sorted(expected)
    assert await noted(at) == sorted(
        [
            ("", "", "alias-without-asset"),
            ("", "", "event-refused"),
            ("3 alias", "whole", "partitioned-event"),
            ("4 both", "whole", "partitioned-event"),
            ("7 unknown", "", "unknown-asset"),
            ("8 without a key", "alias", "no-partition-key"),
            ("8 without a key", "two", "no-partition-key"),
        ]
    )
    (unknown,) = await audit(at, AuditKind.UNKNOWN_ASSET)
    assert unknown.asset == "s3://bucket/more"
    assert {each.event.asset for each in await contributions(at)} == {"data", "other"}
    for log in at.log_folder.glob("*.log"):
        assert "secret" not in log.read_text()


FAILING = """
from dataclasses import dataclass
from tidegate import IdentityMapper

@dataclass(frozen=True)
class FailsToCarry(IdentityMapper):
    def carry_partition_date(self, source_partition_date):
        raise RuntimeError("no carrying")

@dataclass(frozen=True)
class FailsToRead(IdentityMapper):
    def to_partition_date(self, downstream_key):
        raise RuntimeError("no reading")

@dataclass(frozen=True)
class FailsToMap(IdentityMapper):
    def to_downstream(self, key):
        raise RuntimeError("no mapping")
"""


def plugin(folder: Path) -> str:
    """PYTHONPATH with an installed package that brings the mappers above."""
    names = ("FailsToCarry", "FailsToRead", "FailsToMap")
    points = {"tidegate.mappers": {name: f"failing_mappers:{name}" for name in names}}
    packages = install_package(folder, "failing_mappers", FAILING, points)
    return os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])


async def define_plain(at: Installed, name: str, schedule: dict[str, Any]) -> None:
    """Publish a job with types that this process does not know."""
    body = {"type": "Job", "id": name, "schedule": schedule}
    record = DefinitionRecord(kind="job", id=name, incarnation="test", body=body)
    await send(at.kafka, [(DEFINITIONS, 0, record.record_key.encode(), record.to_bytes())])


def mapped_by(mapper: str) -> dict[str, Any]:
    return {
        "type": "PartitionedAssetTimetable",
        "assets": {"type": "Asset", "name": "a"},
        "default_partition_mapper": {"type": mapper},
    }


async def test_what_one_job_cannot_take_is_audited_and_the_others_take_it(
    install: Install, tmp_path: Path
) -> None:
    at = install(shards=SHARDS)
    a = Asset("a")
    over = FanOutMapper(StartOfMonthMapper(), MonthWindow(), max_downstream_keys=7)
    within = FanOutMapper(StartOfWeekMapper(), WeekWindow(), max_downstream_keys=7)
    await define(
        at.kafka,
        copying("copy", a),
        Job("day_copy", PartitionedAssetTimetable(a, StartOfDayMapper())),
        Job("either", AssetOrTimeSchedule(timetable=NullTimetable(), assets=[a])),
        Job("mfan", PartitionedAssetTimetable(a, over)),
        Job("wfan", PartitionedAssetTimetable(a, within)),
        Job("whole", [a]),
    )
    for name, mapper in [("bad", "FailsToCarry"), ("worse", "FailsToRead"), ("worst", "FailsToMap")]:
        await define_plain(at, name, mapped_by(mapper))
    await define_plain(at, "foreign", mapped_by("NotInstalled"))
    key = "2026-03-10T09:00:00"
    await give(
        at,
        event("1 keyed", "a", partition_key=key, partition_date="2026-03-10T09:00:00.000001Z"),
        event("2 whole", "a", partition_key=None),
    )
    expected = [
        ("1 keyed", "bad", "a", key),
        ("1 keyed", "copy", "a", key),
        ("1 keyed", "day_copy", "a", "2026-03-10"),
        *(("1 keyed", "wfan", "a", f"2026-03-{day:02}") for day in range(9, 16)),
        ("1 keyed", "worse", "a", key),
        ("2 whole", "either", "a", ""),
        ("2 whole", "whole", "a", ""),
    ]
    async with running(at, PYTHONPATH=plugin(tmp_path / "packages")):
        await until_taken(at, expected)
    assert await taken(at) == sorted(expected)
    assert await noted(at) == sorted(
        [
            ("", "foreign", "unreadable-record"),
            ("1 keyed", "bad", "partition-date-failed"),
            ("1 keyed", "either", "partitioned-event"),
            ("1 keyed", "mfan", "partition-fan-out-exceeded"),
            ("1 keyed", "whole", "partitioned-event"),
            ("1 keyed", "worse", "partition-date-failed"),
            ("1 keyed", "worst", "mapping-failed"),
            ("2 whole", "bad", "no-partition-key"),
            ("2 whole", "copy", "no-partition-key"),
            ("2 whole", "day_copy", "no-partition-key"),
            ("2 whole", "mfan", "no-partition-key"),
            ("2 whole", "wfan", "no-partition-key"),
            ("2 whole", "worse", "no-partition-key"),
            ("2 whole", "worst", "no-partition-key"),
        ]
    )
    (fan_out,) = await audit(at, AuditKind.FAN_OUT_EXCEEDED)
    assert fan_out.message.startswith("partition fan-out exceeded")
    assert fan_out.details == {"cap": 7, "source": "max_downstream_keys", "wanted": 31}
    date, midnight = 1_773_133_200_000_001, 1_773_100_800_000_000  # 09:00 and 00:00 UTC of that day
    dates = {
        each.job.id: (each.entry.decoded, each.entry.carried, each.entry.is_date_failed)
        for each in await contributions(at)
        if each.job.id in ("bad", "copy", "day_copy", "worse")
    }
    assert dates["copy"] == (None, date, False)
    assert dates["day_copy"][0] == midnight
    assert [dates[name][2] for name in ("day_copy", "bad", "worse")] == [False, True, True]
    assert all(each.event.date == date for each in await contributions(at) if each.event.id == "1 keyed")
    for service in ("ingest", "mapper"):
        log = (at.log_folder / f"{service}.log").read_text()
        assert log.count("definition_unreadable") == 1
        assert "NotInstalled" in log


async def test_teams_are_filtered_from_the_switch_on_until_the_switch_off(install: Install) -> None:
    at = install(shards=SHARDS, more=(team_events_topic("red", 2),))
    closed, shared = Asset("a"), Asset("b", access_control=AssetAccessControl(["red"]))
    await define(
        at.kafka,
        closed,
        shared,
        copying("anyone", closed),
        copying("blue", closed, "blue"),
        copying("blue_alias", AssetAlias("out"), "blue"),
        copying("blue_ref", Asset.ref(name="b"), "blue"),
        copying("red", closed, "red"),
    )

    async def from_red(*values: bytes) -> None:
        await give(at, *values, topic="asset-events.red")

    async def switch(multi_team: bool) -> None:
        """Return when ingest stamps events with the new record."""
        await install_again(at.kafka, Installation(partitions=2, shards=SHARDS), multi_team=multi_team)
        end = len(await read_all(at.kafka, DEFINITIONS))

        async def is_known() -> bool:
            await give(at, event(os.urandom(4).hex(), "probe"), topic=ASSET_EVENTS)
            packed = [AcceptedBatch.from_bytes(each.value) for each in await read_all(at.kafka, ACCEPTED)]
            return any(each.definitions >= end for some in packed for each in some.events)

        await until_async(is_known, "an event that is stamped with the switch")

    everyone = ("anyone", "blue", "red")
    async with running(at, TIDEGATE_TEAMS='["red"]'):
        await from_red(event("1 off", "a", partition_key="k"))
        await until_taken(at, [("1 off", job, "a", "k") for job in everyone])
        await switch(True)
        await from_red(event("2 on", "a", partition_key="k"))
        await from_red(event("3 shared", "b", partition_key="k", aliases=["out"]))
        await from_red(event("4 closed", "a", partition_key="k", aliases=["out"]))
        await give(at, event("5 of nobody", "a", partition_key="k"))
        await until_taken(
            at,
            [
                ("3 shared", "blue_alias", "out", "k"),
                *(("4 closed", job, "a", "k") for job in ("anyone", "red")),
                *(("5 of nobody", job, "a", "k") for job in everyone),
            ],
        )
        await switch(False)
        await from_red(event("6 off again", "a", partition_key="k"))
        await until_taken(at, [("6 off again", job, "a", "k") for job in everyone])
    assert await taken(at) == sorted(
        [
            *((name, job, "a", "k") for name in ("1 off", "5 of nobody", "6 off again") for job in everyone),
            *((name, job, "a", "k") for name in ("2 on", "4 closed") for job in ("anyone", "red")),
            ("3 shared", "blue_alias", "out", "k"),
            ("3 shared", "blue_ref", "b", "k"),
        ]
    )
    refused = await audit(at, AuditKind.CROSS_TEAM)
    assert sorted((each.event_id or "", each.job or "") for each in refused) == [
        ("2 on", "blue"),
        ("4 closed", "blue"),
        ("4 closed", "blue_alias"),
    ]
    assert all("'blue'" in each.message and "'red'" in each.message for each in refused)


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
async def test_more_partitions_than_a_commit_can_tell_of_hold_the_mapper_back_before_it_reads(
    install: Install,
) -> None:
    at = install(more=(team_events_topic("wide", 430),))
    with at.service("mapper") as mapper:
        reason = mapper.wait_not_ready("session")
        while "NotFitError" not in reason:
            reason = mapper.wait_not_ready("session")
        assert "432 partitions of `asset-events`" in reason


@pytest.mark.parametrize("backend", ["real"], indirect=True)
async def test_a_backlog_is_taken_in_parts_that_end_within_a_session(install: Install) -> None:
    at = install(shards=SHARDS)
    data = Asset("data")
    await define(at.kafka, data, *(copying(f"job{number}", data) for number in range(8)))
    stamp = len(await read_all(at.kafka, DEFINITIONS))
    records = [
        AcceptedBatch(
            source="asset-events/0",
            events=tuple(
                AcceptedEvent(
                    number, stamp, 0, "/s", f"e{number}", "data", f"k{number % 50}", None, None, None
                )
                for number in range(first, first + 500)
            ),
        )
        for first in range(0, 12_000, 500)
    ]
    await send(at.kafka, [(ACCEPTED, 0, None, each.to_bytes()) for each in records])
    tp = TopicPartition(ACCEPTED, 0)
    with at.service("mapper", TIDEGATE_SESSION_TIMEOUT_MS="2000") as mapper:
        async with admin_client(at.kafka) as admin:

            async def is_done() -> bool:
                found = await committed_positions(admin, f"{at.namespace}-mapper", [tp])
                return tp in found and found[tp].offset == len(records)

            await until_async(is_done, "the backlog to be mapped", 90)
        said = mapper.log_tail(20_000)
    assert "session expired" not in said
    assert "commit_refused" not in said
    assert len(await contributions(at)) == 8 * 12_000
