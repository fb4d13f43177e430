"""`tidegate apply`: hold declarations against what is defined, and publish what is new or changed."""

import contextlib
import getpass
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import chain
from time import time
from typing import Any, Final, Literal, NamedTuple

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.definitions import DefinitionRecord, Installation
from tidegate.contracts.topics import CONTRIBUTIONS, DEFINITIONS, Topic, declared_topics, run_commands_topic
from tidegate.core.audit import AuditKind
from tidegate.core.errors import DefinitionError
from tidegate.core.mappers import FixedKeyMapper, PartitionMapper, RollupMapper
from tidegate.core.plain import from_plain, plain, type_registry
from tidegate.core.rounds import HORIZON_MS
from tidegate.core.timetables import (
    AssetOrTimeSchedule,
    AssetTriggeredTimetable,
    PartitionedAssetTimetable,
    Timetable,
)
from tidegate.definitions import Asset, AssetAlias, AssetNameRef, AssetUriRef, Definitions, Job
from tidegate.definitions.known import assets_of
from tidegate.definitions.load import FILE_MODULE, check_together
from tidegate.definitions.routes import JobRoutes, label
from tidegate.runtime.definitions_log import DefinitionsLog, Stored, definitions_log
from tidegate.runtime.definitions_view import not_defined
from tidegate.runtime.installing import create_and_wait, replication_of
from tidegate.runtime.producer import acknowledged_producer, audit_records, send_all
from tidegate.runtime.replaying import Replayed, replay
from tidegate.runtime.start_checks import longest_wait, retention_warnings
from tidegate.runtime.topic_admin import admin_client, check_topics, found_topics

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
    replayed: tuple[Replayed, ...] = ()
    """What jobs that were created with `replay_from` took of the stored events."""


class Planned(NamedTuple):
    """What publishing definitions comes to."""

    records: list[DefinitionRecord]
    """To be written: those that are new or changed."""
    what: dict[tuple[Kind, str], What]
    """What becomes of every definition, by kind and id."""
    topics: list[Topic]
    """Of the commands of every job."""
    warnings: list[str]


def planned(
    definitions: Definitions,
    jobs: Mapping[str, Stored],
    assets: Mapping[str, Stored],
    installation: Installation,
) -> Planned:
    """What it comes to beside the jobs and assets, by id, that are stored already; nothing is read or written.

    Raises DefinitionError for what no service could follow or read back, ids that Kafka confuses, and a topic name that
    is taken.
    """
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
    declared_ids = {job.id for job in definitions.jobs}
    others = (each for each in _readable(jobs.values()) if isinstance(each, Job))
    all_jobs = [*definitions.jobs, *(job for job in others if job.id not in declared_ids)]
    known = [
        *definitions.assets,
        *_readable(assets.values()),
        *chain.from_iterable(map(assets_of, all_jobs)),
    ]
    return Planned(
        records,
        kinds,
        [_commands_topic(job, installation.partitions) for job in definitions.jobs],
        [
            warning
            for job in definitions.jobs
            for warning in _warnings(job, all_jobs, known, multi_team=installation.multi_team)
        ],
    )


async def apply_definitions(
    bootstrap: str,
    definitions: Definitions,
    delete: Collection[str] = (),
    *,
    namespace: str = "tidegate",
) -> Applied:
    """Publish what differs from what is defined, and return once it can be read back.

    Deletions come first, so a job that is both deleted and declared is created anew. What waits in rounds of a job that
    changes is mapped again (rule R6). A job that is created starts from now, which the audit log says, unless it asks
    for stored events (rule D7). Raises DefinitionError for ids that Kafka confuses, a job to delete that is not there,
    a topic name that is taken.
    """
    async with definitions_log(bootstrap) as log:
        installation = log.installed()
        partitions = installation.partitions
        jobs, assets = dict(log.of_kind("job")), log.of_kind("asset")
        for job in delete:
            if job not in jobs:
                raise DefinitionError(not_defined(job, jobs))
            del jobs[job]
        plan = planned(definitions, jobs, assets, installation)
        async with admin_client(bootstrap) as admin:
            created = await create_and_wait(admin, plan.topics, await replication_of(admin))
            odd = await check_topics(admin, plan.topics)
            logs = await found_topics(admin, [CONTRIBUTIONS])
        short = retention_warnings(
            logs, {}, longest_wait(definitions.jobs), timedelta(milliseconds=HORIZON_MS)
        )
        if plan.records or delete:
            await log.publish(plan.records, [f"job:{job}" for job in delete])
        new = [job for job in definitions.jobs if plan.what["job", job.id] is What.CREATED]
        told = [_registered(stored) for job in new if (stored := log.get("job", job.id)) is not None]
        if told:
            async with acknowledged_producer(bootstrap, "tidegate-apply") as producer:
                await send_all(producer, audit_records(told, partitions))
        return Applied(
            changes=(
                *(Change("job", job, What.DELETED) for job in delete if ("job", job) not in plan.what),
                *(_change(log, kind, id, what) for (kind, id), what in plan.what.items()),
            ),
            warnings=(*definitions.warnings, *plan.warnings, *short, *map(str, odd)),
            topics=tuple(created),
            replayed=tuple([await _replay(bootstrap, namespace, job) for job in new if job.replay_from]),
        )


def _registered(stored: Stored) -> AuditEntry:
    """What says from which place a job gets events; of one incarnation always with the same id."""
    record = stored.record
    return AuditEntry(
        id=audit_id(AuditKind.CONSUMER_REGISTERED, record.id, record.incarnation),
        kind=AuditKind.CONSUMER_REGISTERED,
        service="apply",
        at=int(time() * 1000),
        message=f"job {record.id!r} gets the events that are let in from offset {stored.revision} of `definitions` on",
        job=record.id,
        position=f"{DEFINITIONS}/0@{stored.revision}",
        details={"incarnation": record.incarnation},
    )


async def _replay(bootstrap: str, namespace: str, job: Job) -> Replayed:
    since = None if job.replay_from == "beginning" else job.replay_from
    return await replay(bootstrap, namespace, job.id, by=getpass.getuser(), since=since)


def _id(declared: Job | Asset) -> str:
    return declared.name if isinstance(declared, Asset) else declared.id


def _change(log: DefinitionsLog, kind: Kind, id: str, what: What) -> Change:
    stored = log.get(kind, id)
    return Change(kind, id, what, stored.revision if stored else None)


def _compared(declared: Job | Asset, stored: Stored | None) -> tuple[DefinitionRecord, What]:
    kind: Kind = "asset" if isinstance(declared, Asset) else "job"
    body: dict[str, Any] = plain(declared)
    if stored is None:
        record = DefinitionRecord(kind=kind, id=_id(declared), incarnation=secrets.token_hex(4), body=body)
        _written(record)
        return record, What.CREATED
    record = stored.record.model_copy(update={"body": body})
    # Through JSON, since tuples come back as lists and numbers may change their kind.
    if _written(record) == stored.record.to_bytes():
        return record, What.UNCHANGED
    created = stored.revision if record.created is None else record.created
    return record.model_copy(update={"created": created}), What.CHANGED


def _written(record: DefinitionRecord) -> bytes:
    """The record's bytes; raises DefinitionError where no service could read them, as when they nest too deeply."""
    try:
        raw = record.to_bytes()
        DefinitionRecord.from_bytes(raw)
    except ValueError as error:
        raise DefinitionError(
            f"{record.kind} {record.id!r} cannot be written and read back as JSON: {str(error)[:300]}"
        ) from error
    return raw


def _check_ids(declared: Sequence[Job], stored: Mapping[str, Stored]) -> None:
    new = {job.id for job in declared}
    check_together((*declared, *(Job(id=job) for job in stored if job not in new)))


def _check_effects(job: Job) -> None:
    """Raises DefinitionError for what a definition may say, but no service can follow, or none follows yet."""
    for name in _types(plain(job)):
        if type_registry[name].__module__ == FILE_MODULE:
            raise DefinitionError(
                f"job {job.id!r} uses {name}, which the definitions file defines itself, so that no service can import"
                " it: move it to an installed package that names it in an entry point, such as tidegate.mappers"
            )
    schedule = job.schedule
    if schedule is None:
        return
    if _is_by_time(schedule):
        raise DefinitionError(
            f"the schedule of job {job.id!r}, a {type(schedule).__name__}, has no effect yet, since no service starts"
            " runs by the clock: let assets start them, with PartitionedAssetTimetable or a list of assets, or leave it"
            " out"
        )


def _types(data: Any) -> Iterator[str]:
    """The types that plain data names."""
    if isinstance(data, dict):
        if (
            isinstance(name := data.get("type"), str) and name in type_registry
        ):  # an `extra` may hold anything
            yield name
        for value in data.values():
            yield from _types(value)
    elif isinstance(data, list):
        for value in data:
            yield from _types(value)


def _is_by_time(schedule: Timetable) -> bool:
    """Whether the clock starts runs; only schedules of Tidegate's own are known to leave that to assets."""
    if isinstance(schedule, AssetOrTimeSchedule):
        return _is_by_time(schedule.timetable)
    if isinstance(schedule, PartitionedAssetTimetable | AssetTriggeredTimetable):
        return False
    return schedule.can_be_scheduled


def _commands_topic(job: Job, partitions: int) -> Topic:
    topic = run_commands_topic(job.id, partitions, job.run_commands_topic)
    if topic.name in {each.name for each in declared_topics(partitions)}:
        raise DefinitionError(
            f"Job.run_commands_topic {topic.name!r} of job {job.id!r} is one of Tidegate's own topics: choose another"
        )
    return topic


def _warnings(
    job: Job, jobs: Collection[Job], assets: Collection[Asset], *, multi_team: bool
) -> Iterator[str]:
    """What a person should know of a job that works; `jobs` and `assets` are all that will be defined."""
    if job.team is not None and not multi_team:
        yield (
            f"job {job.id!r}: team {job.team!r} has no effect while teams are not filtered; `tidegate topics create"
            " --multi-team` switches that on"
        )
    routes = JobRoutes(job).routes
    for route in routes:
        yield from route.warnings()
        leaf, named = route.leaf, route.where
        if isinstance(leaf, AssetNameRef | AssetUriRef) and not any(leaf.same_asset(one) for one in assets):
            yield f"{named}: no definition names an asset of this {_MEANS[type(leaf)]} yet, only this reference does"
        if isinstance(leaf, AssetAlias) and not any(leaf in each.outlets for each in jobs):
            yield f"{named}: no job has this alias in its outlets, so only events from elsewhere can come through it"
    for inlet in job.inlets:
        if isinstance(inlet, AssetNameRef | AssetUriRef) and not any(inlet.same_asset(one) for one in assets):
            yield (
                f"job {job.id!r} reads the asset {label(inlet)!r}, of which no definition has the"
                f" {_MEANS[type(inlet)]} yet"
            )
    if len(keys := dict.fromkeys(key for route in routes for key in _fixed_keys(route.mapper))) > 1:
        yield (
            f"job {job.id!r}: its rollups bring assets to the different keys {', '.join(map(repr, keys))}, where they"
            " never meet in one round: give them one key"
        )


_MEANS: Final[Mapping[type, str]] = {AssetNameRef: "name", AssetUriRef: "URI"}


def _fixed_keys(mapper: PartitionMapper) -> Iterator[str]:
    """The one key that a rollup brings everything to, if it is such a one (D19)."""
    if isinstance(mapper, RollupMapper) and isinstance(fixed := mapper.upstream_mapper, FixedKeyMapper):
        yield fixed.downstream_key


def _readable(stored: Iterable[Stored]) -> Iterator[Any]:
    """The definitions among these that this process can read; others it leaves to those who have their plugins."""
    for each in stored:
        with contextlib.suppress(Exception):  # whatever a definition holds, it concerns nobody else
            yield from_plain(each.record.body)
