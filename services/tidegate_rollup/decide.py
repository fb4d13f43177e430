"""The rollup's decisions apart from Redis: contributions to script arguments, script replies to run requests."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from pydantic_core import to_json

from tidegate.contracts.audit import AuditEntry, AuditKind, audit_id
from tidegate.contracts.contributions import Contribution, ContributionBatch, JobRef, MemberEvent
from tidegate.contracts.message import from_ms
from tidegate.contracts.placement import shard_of
from tidegate.contracts.runs import RunRequest, TriggeringEvent, WindowProgress
from tidegate.contracts.topics import CONTRIBUTIONS, MAX_INTERNAL_BYTES
from tidegate.core.dates import ContributedDate, resolve_partition_date

SERVICE = "rollup"
ENTRIES_PER_CALL = 2_000
"""A call of the script holds up its Redis node, so a large batch is folded in several."""


class Entry(NamedTuple):
    """One contribution with where it stands on the input log."""

    offset: int
    index: int
    """Its place in the packed record."""
    at: int
    source: str
    job: JobRef
    event: MemberEvent
    contribution: Contribution


def entries_of(offset: int, at: int, batch: ContributionBatch) -> list[Entry]:
    """The contributions of one record, in order."""
    return [
        Entry(offset, index, at, batch.source, batch.jobs[each.job], batch.events[each.event], each)
        for index, each in enumerate(batch.entries)
    ]


def by_shard(entries: Iterable[Entry], shards: int) -> dict[int, list[Entry]]:
    """The entries of every shard that has any."""
    found: dict[int, list[Entry]] = {}
    for entry in entries:
        found.setdefault(shard_of(entry.job.id, entry.contribution.key, shards), []).append(entry)
    return found


def chunks(entries: Iterable[Entry], limit: int = ENTRIES_PER_CALL) -> Iterable[list[Entry]]:
    """`entries` in order, cut between records only, since a shard's offset is that of a record."""
    chunk: list[Entry] = []
    for _, record in groupby(entries, key=lambda entry: entry.offset):
        whole = list(record)
        if chunk and len(chunk) + len(whole) > limit:
            yield chunk
            chunk = []
        chunk += whole
    if chunk:
        yield chunk


def round_name(job: str, key: str) -> str:
    """How a round is named in Redis; job ids hold no slash."""
    return f"{job}/{key}"


@lru_cache(maxsize=4_096)
def _job_arguments(job: JobRef) -> tuple[str, str]:
    return to_json(job).decode(), ";".join(",".join(map(str, clause)) for clause in job.clauses)


def script_arguments(entries: Sequence[Entry]) -> tuple[list[str], list[str | int]]:
    """The rounds that `entries` touch, and the arguments of apply.lua after its six fixed ones."""
    rounds: dict[tuple[str, str], int] = {}
    jobs: dict[JobRef, int] = {}
    rest: list[str | int] = []
    for entry in entries:
        job, event, each = entry.job, entry.event, entry.contribution
        windowed = bool(job.rollups)
        key, identity = _json(event.key), f"{_json(event.id)},{_json(event.source)}"
        stored = f"[{key},{identity},{event.at},{_json(event.date)},{_json(each.carried)},{_json(event.extra)}]"
        rest += (
            entry.offset,
            entry.index,
            entry.at,
            entry.source,
            each.offset,
            each.ordinal,
            rounds.setdefault((job.id, each.key), len(rounds) + 1),
            jobs.setdefault(job, len(jobs) + 1),
            each.asset,
            each.member,
            each.size,
            each.needed,
            "" if each.decoded is None else each.decoded,
            int(not windowed or each.asset in job.rollups),
            int(windowed),
            f"{event.source} {event.id}",
            len(key.encode()) + 2,
            len(key.encode()) + len(identity.encode()) + 3,
            stored,
        )
    arguments: list[str | int] = [len(rounds), len(jobs), len(entries)]
    names = [round_name(*name) for name in rounds]
    for name, (_, downstream) in zip(names, rounds, strict=True):
        arguments += (name, _json(downstream))
    for job in jobs:
        arguments += _job_arguments(job)
    return names, arguments + rest


def _json(value: Any) -> str:
    # Every text goes the same way, so that equal texts have equal bytes and the script may compare prefixes.
    return "null" if value is None else to_json(value).decode()


class Pending(NamedTuple):
    """One thing in the outbox of (shard, partition): a run request or an audit entry that must still be sent."""

    offset: int
    index: int
    field: str
    """Its name in the outbox."""
    payload: Mapping[str, Any]


def pending(reply: Sequence[str]) -> list[Pending]:
    """What a reply of the script says is in the outbox, in the order of the log."""
    found = []
    for field, payload in zip(reply[::2], reply[1::2], strict=True):
        offset, index, *_ = field.split(".")
        found.append(Pending(int(offset), int(index), field, json.loads(payload)))
    return sorted(found, key=lambda each: (each.offset, each.index, each.field))


class StoredEvent(NamedTuple):
    """A member's event as the round keeps it."""

    key: str | None
    id: str
    source: str
    at: int
    date: int | None
    carried: int | None
    extra: dict[str, Any] | None


def run_request(each: Pending) -> tuple[RunRequest, AuditEntry | None]:
    """The request of a fired round, and the audit entry where its dates were in conflict."""
    payload = each.payload
    job, key = JobRef(*payload["job"]), payload["key"]
    stored = sorted((asset, member, StoredEvent(*event)) for asset, member, event in payload["events"])
    decoded = {asset: date for asset, date in payload["dates"]}
    dates = [ContributedDate(from_ms(date), True) for date in decoded.values()]
    dates += [ContributedDate(from_ms(event.carried), False) for _, _, event in stored if event.carried is not None]
    resolved = resolve_partition_date(dates)
    request = RunRequest(
        offset=each.offset,
        ordinal=each.index,
        run_id=run_id(job, key, payload["generation"], (event for _, _, event in stored)),
        job=job.id,
        incarnation=job.incarnation,
        revision=job.revision,
        partition_key=key,
        partition_date=resolved.at,
        generation=payload["generation"],
        completed_by=StoredEvent(*payload["completed_by"]).id,
        windows=[
            WindowProgress(asset=job.assets[asset], arrived=int(arrived), expected=int(size))
            for asset, arrived, size in sorted(payload["windows"])
        ],
        events=[
            TriggeringEvent(
                asset=job.assets[asset],
                id=event.id,
                source=event.source,
                member=member,
                partition_key=event.key,
                partition_date=None if event.date is None else from_ms(event.date),
                received_at=from_ms(event.at),
                extra=event.extra,
            )
            for asset, member, event in stored
        ],
    )
    size = len(request.to_bytes())
    if size > MAX_INTERNAL_BYTES // 2:
        request = request.model_copy(update={"events": (), "oversize": size})
    if not resolved.conflict:
        return request, None
    conflict = AuditEntry(
        id=audit_id(AuditKind.PARTITION_DATE_CONFLICT, request.run_id),
        kind=AuditKind.PARTITION_DATE_CONFLICT,
        service=SERVICE,
        at=payload["at"],
        message="the run has no partition date: its events give "
        + ", ".join(date.isoformat() for date in resolved.conflict),
        job=job.id,
        partition_key=key,
    )
    return request, conflict


def run_id(job: JobRef, key: str, generation: int, events: Iterable[StoredEvent]) -> str:
    """32 hexadecimal digits made from content: a replay gives the same id, another round another (protocol.md R7)."""
    parts = [job.id, job.incarnation, key, str(generation)]
    parts += sorted(f"{event.source} {event.id}" for event in events)
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


_MESSAGES: Mapping[AuditKind, Callable[[StoredEvent, StoredEvent | None], str]] = {
    AuditKind.DUPLICATE_EVENT: lambda event, other: f"event {event.id!r} is already part of this round or of one that fired",
    AuditKind.MEMBER_REPLACED: lambda event, other: (
        f"event {event.id!r} replaces {other.id if other else '?'!r}, an older one with the same key"
    ),
    AuditKind.MEMBER_RERUN: lambda event, other: (
        f"event {event.id!r} repeats a member of a round that has fired; it starts no run (rerun policy: ignore)"
    ),
    AuditKind.MEMBER_LATE: lambda event, other: f"event {event.id!r} came after its round had fired without it",
}


def audit_entry(each: Pending, partition: int) -> AuditEntry:
    """The audit entry that the script noted."""
    payload = each.payload
    kind, job, event = AuditKind(payload["audit"]), JobRef(*payload["job"]), StoredEvent(*payload["event"])
    other = None if payload["other"] is None else StoredEvent(*payload["other"])
    position = f"{CONTRIBUTIONS}/{partition}@{each.offset}"
    return AuditEntry(
        id=audit_id(kind, position, each.index),
        kind=kind,
        service=SERVICE,
        at=payload["at"],
        message=_MESSAGES[kind](event, other),
        job=job.id,
        asset=job.assets[payload["asset"]],
        partition_key=payload["key"],
        event_id=event.id,
        event_source=event.source,
        position=position,
        details={"event_key": event.key, **({"replaced_event_id": other.id} if other else {})},
    )
