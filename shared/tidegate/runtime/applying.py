"""`tidegate apply`: hold declarations against what is defined, and publish what is new or changed."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal

from tidegate.contracts.definitions import DefinitionRecord
from tidegate.contracts.topics import Topic, declared_topics, run_commands_topic
from tidegate.core.errors import DefinitionError
from tidegate.core.mappers import RollupMapper, TemporalMapper
from tidegate.core.plain import plain
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.core.zones import local, zone_named
from tidegate.definitions import Asset, Definitions, Job
from tidegate.definitions.load import check_together
from tidegate.runtime.definitions_log import DefinitionsLog, Stored, definitions_log
from tidegate.runtime.installing import create_and_wait, replication_of
from tidegate.runtime.topic_admin import admin_client, check_topics

Kind = Literal["job", "asset"]


class What(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one definition."""

    kind: Kind
    id: str
    what: What
    revision: int | None = None
    """Offset of its record on `definitions`; None where it is deleted."""


@dataclass(frozen=True, slots=True)
class Applied:
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    topics: tuple[str, ...]
    """Run-commands topics that were created."""


async def apply_definitions(
    bootstrap: str, definitions: Definitions, delete: Collection[str] = ()
) -> Applied:
    """Publish what differs from what is defined, and return once it can be read back.

    Deletions come first, so a job that is both deleted and declared is created anew. Raises DefinitionError for a
    changed schedule, ids that Kafka confuses, a job to delete that is not there, a topic name that is taken.
    """
    async with definitions_log(bootstrap) as log:
        partitions = log.installed().partitions
        jobs, assets = dict(log.of_kind("job")), log.of_kind("asset")
        for job in delete:
            if jobs.pop(job, None) is None:
                raise DefinitionError(f"job {job!r} is not defined, so it cannot be deleted")
        _check_ids(definitions.jobs, jobs)
        for each in definitions.jobs:
            _check_effects(each)
        records: list[DefinitionRecord] = []
        kinds: dict[tuple[Kind, str], What] = {}
        declarations: tuple[Job | Asset, ...] = (*definitions.assets, *definitions.jobs)
        for declared in declarations:
            stored = (assets if isinstance(declared, Asset) else jobs).get(_id(declared))
            record, what = _compared(declared, stored)
            kinds["asset" if isinstance(declared, Asset) else "job", record.id] = what
            if what is not What.UNCHANGED:
                records.append(record)
        topics = [_commands_topic(job, partitions) for job in definitions.jobs]
        warnings = [warning for job in definitions.jobs for warning in _warnings(job)]
        async with admin_client(bootstrap) as admin:
            created = await create_and_wait(admin, topics, await replication_of(admin))
            odd = await check_topics(admin, topics)
        if records or delete:
            await log.publish(records, [f"job:{job}" for job in delete])
        return Applied(
            changes=(
                *(Change("job", job, What.DELETED) for job in delete if ("job", job) not in kinds),
                *(_change(log, kind, id, what) for (kind, id), what in kinds.items()),
            ),
            warnings=(*warnings, *map(str, odd)),
            topics=tuple(created),
        )


def _id(declared: Job | Asset) -> str:
    return declared.name if isinstance(declared, Asset) else declared.id


def _change(log: DefinitionsLog, kind: Kind, id: str, what: What) -> Change:
    stored = log.of_kind(kind).get(id)
    return Change(kind, id, what, stored.revision if stored else None)


def _compared(declared: Job | Asset, stored: Stored | None) -> tuple[DefinitionRecord, What]:
    kind: Kind = "asset" if isinstance(declared, Asset) else "job"
    body: dict[str, Any] = plain(declared)
    if stored is None:
        return (
            DefinitionRecord(kind=kind, id=_id(declared), incarnation=secrets.token_hex(4), body=body),
            What.CREATED,
        )
    record = stored.record.model_copy(update={"body": body})
    # Through JSON, since tuples come back as lists and numbers may change their kind.
    if record.to_bytes() == stored.record.to_bytes():
        return record, What.UNCHANGED
    if kind == "job" and body.get("schedule") != stored.record.body.get("schedule"):
        raise DefinitionError(
            f"the schedule of job {_id(declared)!r} cannot be changed yet, since its windows that are still"
            " filling would be lost: use a new id, or delete the job and declare it again (`--delete`)"
        )
    return record, What.CHANGED


def _check_ids(declared: Sequence[Job], stored: Mapping[str, Stored]) -> None:
    new = {job.id for job in declared}
    check_together((*declared, *(Job(id=job) for job in stored if job not in new)))


def _check_effects(job: Job) -> None:
    """Raises DefinitionError for what a definition may say, but no service follows yet."""
    if job.team is not None:
        raise DefinitionError(f"Job.team {job.team!r} of job {job.id!r} has no effect yet: leave it out")
    schedule = job.schedule
    if schedule is None:
        return
    if not isinstance(schedule, PartitionedAssetTimetable):
        raise DefinitionError(
            f"the schedule of job {job.id!r}, a {type(schedule).__name__}, has no effect yet: use"
            " PartitionedAssetTimetable, or leave it out"
        )
    for leaf in schedule.assets_in_order:
        if not isinstance(leaf, Asset):
            raise DefinitionError(
                f"{leaf} in the schedule of job {job.id!r} has no effect yet: name the asset itself"
            )
        if leaf.access_control is not None:
            raise DefinitionError(
                f"Asset.access_control of {leaf.name!r} in the schedule of job {job.id!r} has no effect yet: leave it"
                " out"
            )
        mapper = schedule.mapper_for(leaf)
        if isinstance(mapper, RollupMapper) and mapper.wait_policy.deadline is not None:
            raise DefinitionError(
                f"the deadline of {leaf.name!r} in the schedule of job {job.id!r} has no effect yet: leave it out"
            )


def _commands_topic(job: Job, partitions: int) -> Topic:
    topic = run_commands_topic(job.id, partitions, job.run_commands_topic)
    if topic.name in {each.name for each in declared_topics(partitions)}:
        raise DefinitionError(
            f"Job.run_commands_topic {topic.name!r} of job {job.id!r} is one of Tidegate's own topics: choose another"
        )
    return topic


def _warnings(job: Job) -> list[str]:
    if not isinstance(schedule := job.schedule, PartitionedAssetTimetable):
        return []
    found = []
    for leaf in schedule.assets_in_order:
        mapper = schedule.mapper_for(leaf)
        if not isinstance(mapper, RollupMapper) or not mapper.merges_repeated_hours:
            continue
        upstream = mapper.upstream_mapper
        if isinstance(upstream, TemporalMapper) and _clocks_change(upstream.timezone):
            name = leaf.name if isinstance(leaf, Asset) else str(leaf)
            found.append(
                f"job {job.id!r}, asset {name!r}: keys of the form {upstream.input_format!r} cannot tell apart the two"
                f" hours that have one name when clocks go back in {upstream.timezone}; they count as one member"
            )
    return found


_FIRST_YEAR: Final = 1970
_YEARS: Final = 68


def _clocks_change(zone: str) -> bool:
    """Whether the zone has ever had two offsets, looked at every ten days from 1970 to 2037."""
    start, named = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC), zone_named(zone)
    offsets = {local(start + timedelta(days=day), named).utcoffset() for day in range(0, _YEARS * 365, 10)}
    return len(offsets) > 1
