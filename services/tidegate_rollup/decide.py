"""The rollup's decisions apart from Redis: contributions to script arguments, script replies to run requests."""

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Any, Literal, NamedTuple

from pydantic_core import to_json

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import (
    Contribution,
    ContributionBatch,
    ContributionsRecord,
    DeadlineReached,
    DefinitionChange,
    JobRef,
    MemberEvent,
    OperatorAction,
)
from tidegate.contracts.placement import shard_of
from tidegate.contracts.redis_keys import round_name
from tidegate.contracts.runs import RunRequest, TriggeringEvent, WindowProgress
from tidegate.contracts.topics import CONTRIBUTIONS, MAX_INTERNAL_BYTES
from tidegate.core.audit import AuditKind
from tidegate.core.dates import ContributedDate, resolve_partition_date
from tidegate.core.instants import from_ms, from_us
from tidegate.core.rounds import Note

SERVICE = "rollup"
ENTRIES_PER_CALL = 2_000
"""A call of the script holds up its Redis node, so a large batch is folded in several."""

ENTRIES_PER_PART = 500
"""The script hands the fields of a part to one command, and Lua's stack holds some thousand."""


class Entry(NamedTuple):
    """One contribution with where it stands on the input log."""

    offset: int
    ordinal: int
    """Its place in the packed record."""
    at: int
    source: str
    job: JobRef
    event: MemberEvent
    contribution: Contribution
    shard: int = 0
    is_remapped: bool = False
    """Whether it has waited or been stored: newer events stay then, and that it is there already is no news."""
    is_replayed: bool = False


class Control(NamedTuple):
    """A record that changes rounds without a contribution, for one of the shards that it concerns."""

    offset: int
    at: int
    record: DefinitionChange | DeadlineReached | OperatorAction
    shard: int


Input = Entry | Control


def inputs_of(
    offset: int, at: int, record: ContributionsRecord, ours: Collection[int], shards: int
) -> Sequence[Input]:
    """What one record means to the shards of its partition, in order; raises IndexError as `entries_of` does."""
    if isinstance(record, ContributionBatch):
        return entries_of(offset, at, record, ours, shards)
    if isinstance(record, DefinitionChange):
        return [Control(offset, at, record, shard) for shard in ours]
    shard = shard_of(record.job, record.key, shards)
    if shard not in ours:
        raise IndexError(f"the {record.kind} is for shard {shard}, which another partition feeds")
    return [Control(offset, at, record, shard)]


def entries_of(
    offset: int, at: int, batch: ContributionBatch, ours: Collection[int], shards: int
) -> list[Entry]:
    """The contributions of one record, in order.

    Raises IndexError where they name what the record does not hold, or a shard that its partition does not feed.
    """
    entries = []
    for index, each in enumerate(batch.entries):
        if min(each.job, each.event, each.asset, each.member, *each.also) < 0 or each.member >= each.size:
            raise IndexError(f"contribution {index} has an index out of range: {each}")
        job, event = batch.jobs[each.job], batch.events[each.event]
        if (asset := max((each.asset, *each.also))) >= len(job.assets):
            raise IndexError(f"contribution {index} has asset {asset} of {len(job.assets)}")
        shard = shard_of(job.id, each.key, shards)
        if shard not in ours:
            raise IndexError(f"contribution {index} is for shard {shard}, which another partition feeds")
        is_older = batch.is_remapped or batch.is_replayed
        entries.append(
            Entry(offset, index, at, batch.source, job, event, each, shard, is_older, batch.is_replayed)
        )
    return entries


def by_shard(entries: Iterable[Input]) -> dict[int, list[Input]]:
    """The inputs of every shard that has any."""
    found: dict[int, list[Input]] = {}
    for entry in entries:
        found.setdefault(entry.shard, []).append(entry)
    return found


def chunks(entries: Iterable[Input], limit: int = ENTRIES_PER_CALL) -> Iterable[list[Input]]:
    """`entries` in order, cut between records only, since a shard's offset is that of a record."""
    chunk: list[Input] = []
    for _, record in groupby(entries, key=lambda entry: entry.offset):
        whole = list(record)
        if chunk and len(chunk) + len(whole) > limit:
            yield chunk
            chunk = []
        chunk += whole
    if chunk:
        yield chunk


@dataclass(slots=True)
class _Source:
    """The coordinates of one source in a batch, and of a replay's those in records of one time."""

    name: str
    number: int
    lowest: tuple[int, int]
    highest: tuple[int, int]
    at: int | None

    def written_out(self) -> tuple[str | int, ...]:
        what = (self.name, *self.lowest, *self.highest)
        return what if self.at is None else (*what, self.at)


@dataclass(slots=True)
class _Part:
    """Contributions of one job revision to one round, all mapped for the first time or all again."""

    round: int
    job: int
    key: str
    fields: list[str]
    is_remapped: bool
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    entries: list[tuple[str | int, ...]] = field(default_factory=list)

    def takes(self, job: int, entry: Entry) -> bool:
        return self.job == job and self.is_remapped == entry.is_remapped

    def written_out(self, name: str) -> tuple[Any, ...]:
        return (self.round, name, _json(self.key), self.job, self.fields, self.entries, self.is_remapped)

    def place_of(self, asset: int, member: int) -> int:
        """The place of a member's field, from 1."""
        if (place := self.places.get((asset, member))) is None:
            self.fields.append(f"m:{asset}:{member}")
            place = self.places[asset, member] = len(self.fields)
        return place


def script_arguments(entries: Sequence[Input]) -> tuple[list[str], str]:
    """The names of the rounds that `entries` touch, and the batch as apply.lua takes it.

    What may change a job, since it brings a newer revision than the batch had before, ends the parts of its rounds.
    """
    rounds: dict[str, int] = {}
    jobs: dict[JobRef, int] = {}
    sources: list[_Source] = []
    latest_of: dict[str, _Source] = {}
    """By name of the source."""
    parts: list[_Part | tuple[int | str, ...]] = []
    latest: dict[tuple[str, int], _Part] = {}
    newest: dict[str, int] = {}
    repeats = 0
    for entry in entries:
        if isinstance(entry, Control):
            record = entry.record
            if isinstance(record, DefinitionChange):
                newest[record.job] = max(newest.get(record.job, -1), record.revision)
                change = (record.revision, record.routing, entry.offset, 0, entry.at, record.is_deleted)
                parts.append((0, record.job, *change))
                continue
            name = round_name(record.job, record.incarnation, record.key)
            latest.pop((name, newest.get(record.job, -1)), None)
            parts.append(_control(rounds.setdefault(name, len(rounds) + 1), name, entry, record))
            continue
        job, each = entry.job, entry.contribution
        coordinates, at = (each.offset, each.ordinal), entry.at if entry.is_replayed else None
        source = latest_of.get(entry.source)
        if source is None or source.at != at:
            source = _Source(entry.source, len(sources) + 1, coordinates, coordinates, at)
            latest_of[entry.source] = source
            sources.append(source)
        elif coordinates > source.highest:
            source.highest = coordinates
        else:
            repeats += 1
            continue
        name = round_name(job.id, job.incarnation, each.key)
        number = jobs.setdefault(job, len(jobs) + 1)
        place = (name, max(newest.get(job.id, -1), job.revision))
        newest[job.id] = place[1]
        part = latest.get(place)
        if part is None or len(part.entries) == ENTRIES_PER_PART or not part.takes(number, entry):
            part = latest[place] = _Part(
                rounds.setdefault(name, len(rounds) + 1),
                number,
                each.key,
                _fields_of(job),
                entry.is_remapped,
            )
            parts.append(part)
        event, key_end = _stored(name, entry)
        part.entries.append(
            (
                source.number,
                each.offset,
                each.ordinal,
                entry.offset,
                entry.ordinal,
                entry.at,
                each.asset,
                2 + 2 * each.asset,
                part.place_of(each.asset, each.member),
                -1 if each.needed > each.size else each.needed,
                f"{each.size} {each.needed}",
                False if each.decoded is None else str(each.decoded),  # the script would round a number
                event,
                key_end,
                *_due(entry),
            )
        )
    names = list(rounds)
    batch = {
        "repeats": repeats,
        "sources": [source.written_out() for source in sources],
        "jobs": [_json(job) for job in jobs],
        "parts": [
            part.written_out(names[part.round - 1]) if isinstance(part, _Part) else part for part in parts
        ],
    }
    return names, _json(batch)


def _control(
    number: int, name: str, entry: Control, record: DeadlineReached | OperatorAction
) -> tuple[int | str, ...]:
    """A control of one round, as controls.lua takes it."""
    is_action = isinstance(record, OperatorAction)
    what = record.kind if isinstance(record, OperatorAction) else record.then
    said = {"control": json.loads(record.to_bytes())}
    event_id = record.event_id if isinstance(record, OperatorAction) else None
    place = (what, record.opened, event_id or "", is_action, entry.offset, entry.at)
    return (-1, number, name, _json(record.key), *place, _json(said)[1:-1])


def _due(entry: Entry) -> tuple[int | str, ...]:
    """The earliest deadline that a contribution brings to its round, in ms since 1970, and what happens then (R4).

    An event that was mapped again has waited since it came to the broker. One that is replayed waits from now on, also
    where its window ended long ago, so that the others of its window have the time to follow.
    """
    has_waited = entry.is_remapped and not entry.is_replayed
    start, found = entry.event.at if has_waited else entry.at, []
    for asset, deadline in enumerate(entry.job.deadlines):
        if deadline is None:
            continue
        after, then, since = deadline
        is_own, ends = asset == entry.contribution.asset, entry.contribution.ends
        if since == "first_member" or (is_own and ends is None):
            found.append((start + after, then))
        elif is_own and ends is not None:
            found.append((max(ends, start) + after if entry.is_replayed else ends + after, then))
    return min(found, default=())


def _fields_of(job: JobRef) -> list[str]:
    return ["opened", *(f"{kind}:{asset}" for asset in range(len(job.assets)) for kind in ("count", "need"))]


def _stored(name: str, entry: Entry) -> tuple[str, int]:
    """The event as its round keeps it, and the length in bytes of its part up to the key."""
    event, each = entry.event, entry.contribution
    start = f'"{_digest(name, event)}",{_json(event.key)}'
    carried = False if each.is_date_failed else each.carried
    is_named_otherwise = event.asset and event.asset != entry.job.assets[each.asset]
    more: tuple[Any, ...] = (
        event.asset if is_named_otherwise else None,
        event.team,
        event.aliases or None,
        each.also or None,
    )
    while more and more[-1] is None:
        more = more[:-1]
    rest = (event.id, event.source, event.at, event.date, carried, event.extra, *more)
    return f"{start},{_json(rest)[1:-1]}", len(start.encode())


def _digest(name: str, event: MemberEvent) -> str:
    """16 characters that tell (round, event) apart; no part of it can hold a line break."""
    text = f"{name}\n{event.source}\n{event.id}"
    return b64encode(blake2b(text.encode(), digest_size=12).digest()).decode()


def _json(value: Any) -> str:
    # Every key goes this way, so that equal keys have equal bytes and the script may compare prefixes.
    return to_json(value).decode()


class Pending(NamedTuple):
    """One thing in the outbox of (shard, partition) that must still be sent: a run request, an audit entry, or what
    waited under an older definition of its job (again.py)."""

    offset: int
    ordinal: int
    field: str
    """Its name in the outbox."""
    payload: Mapping[str, Any]
    lines: Sequence[str] = ()
    """Fields and values in turn of the round that fired, or the name of the round that moved."""

    @property
    def is_audit(self) -> bool:
        return "audit" in self.payload

    @property
    def control(self) -> DeadlineReached | OperatorAction | None:
        """The record that had this happen to its round."""
        said = self.payload.get("control")
        if said is None:
            return None
        return (DeadlineReached if said["kind"] == "deadline" else OperatorAction).model_validate(said)

    @property
    def revision(self) -> int | None:
        """By which definition of its job this is mapped again, None where it is not."""
        return self.payload.get("revision")

    @property
    def moved_round(self) -> str | None:
        """The name of the round whose events are all mapped again, None where it is something else."""
        return self.lines[0] if self.revision is not None and self.lines else None

    @property
    def job_id(self) -> str:
        """The job that this is about."""
        if self.moved_round is not None:
            return self.moved_round.partition("/")[0]
        return str(self.payload["job"][0])

    @property
    def place(self) -> tuple[int, ...]:
        return tuple(map(int, self.field.split(".")))


def pending(reply: Sequence[str]) -> list[Pending]:
    """What a reply of the script says is in the outbox, in the order of the log."""
    found = []
    for name, payload in zip(reply[::2], reply[1::2], strict=True):
        offset, ordinal, *_ = name.split(".")
        head, *lines = payload.split("\n")
        found.append(Pending(int(offset), int(ordinal), name, json.loads(head), lines))
    return sorted(found, key=lambda each: each.place)


class StoredEvent(NamedTuple):
    """A member's event as the round keeps it."""

    key: str | None
    id: str
    source: str
    at: int
    date: int | None
    carried: int | Literal[False] | None
    """False where the mapper failed to read a date of the downstream key, which leaves the run without one."""
    extra: dict[str, Any] | None
    asset: str | None = None
    """Its asset's name, where the schedule names the asset otherwise."""
    team: str | None = None
    aliases: Sequence[str] | None = None
    also: Sequence[int] | None = None
    """The other assets by which it counts for this round (B060)."""

    def routes(self, job: JobRef, asset: int) -> tuple[str, ...] | None:
        """How the schedule names the ways by which it came, in order; None where its asset's name says it all."""
        named = tuple(job.assets[each] for each in sorted((asset, *(self.also or ()))))
        return None if named == (self.asset or job.assets[asset],) else named

    @property
    def contributed_date(self) -> ContributedDate:
        if self.carried is False:
            return ContributedDate(None, True, is_failed=True)
        return ContributedDate(None if self.carried is None else from_us(self.carried), False)


def stored_event(values: Sequence[Any]) -> StoredEvent:
    """The event that was kept as these values."""
    return StoredEvent(*values[1:])  # the digest is for the script alone


def events_in(fields: Sequence[str]) -> list[tuple[int, int, StoredEvent]]:
    """(asset, member, event) of a round's fields and values, in that order, several of one member by key."""
    events = []
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name.startswith(("m:", "x:")):
            _, asset, member, *_ = name.split(":", 3)
            events.append((int(asset), int(member), stored_event(json.loads(f"[{value}]"))))
    return sorted(events, key=lambda one: (one[0], one[1], one[2].key or ""))


class _FiredRound(NamedTuple):
    events: list[tuple[int, int, StoredEvent]]
    """(asset, member, event), in that order, several of one member by key."""
    windows: list[tuple[int, int, int]]
    """(asset, arrived, expected), by asset."""
    dates: list[int]


def _fired_round(fields: Sequence[str]) -> _FiredRound:
    """The round that was a hash of these fields and values."""
    arrived: dict[int, int] = {}
    expected: dict[int, int] = {}
    dates: list[int] = []
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        kind, _, rest = name.partition(":")
        if kind == "count":
            arrived[int(rest)] = int(value)
        elif kind == "need":
            expected[int(rest)] = int(value.split()[0])
        elif kind == "date":
            dates.append(int(value))
    events = events_in(fields)
    return _FiredRound(events, [(asset, arrived[asset], expected[asset]) for asset in sorted(arrived)], dates)


def run_request(each: Pending) -> tuple[RunRequest, AuditEntry | None]:
    """The request of a fired round, and the audit entry where its dates were in conflict."""
    payload = each.payload
    job, key = JobRef(*payload["job"]), payload["key"]
    fired = _fired_round(each.lines)
    stored = fired.events
    control = each.control
    dates = [ContributedDate(from_us(date), True) for date in fired.dates]
    resolved = resolve_partition_date([*dates, *(event.contributed_date for _, _, event in stored)])
    request = RunRequest(
        offset=each.offset,
        ordinal=each.ordinal,
        run_id=run_id(job, key, payload["generation"], (event for _, _, event in stored)),
        job=job.id,
        incarnation=job.incarnation,
        revision=job.revision,
        partition_key=key or None,
        partition_date=resolved.at,
        generation=payload["generation"],
        cause="assets" if control is None else "deadline" if control.kind == "deadline" else "manual",
        is_partial=control is not None,
        completed_by=stored_event(payload["event"]).id if control is None else None,
        failed=_failure(fired) if isinstance(control, DeadlineReached) and control.then == "fail" else None,
        windows=tuple(
            WindowProgress(asset=job.assets[asset], arrived=arrived, expected=expected)
            for asset, arrived, expected in fired.windows
        ),
        events=tuple(
            TriggeringEvent(
                asset=event.asset or job.assets[asset],
                id=event.id,
                source=event.source,
                member=member,
                partition_key=event.key,
                partition_date=None if event.date is None else from_us(event.date),
                received_at=from_ms(event.at),
                extra=event.extra,
                routes=event.routes(job, asset),
            )
            for asset, member, event in stored
        ),
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
        message=resolved.message,
        job=job.id,
        partition_key=key or None,
    )
    return request, conflict


def _failure(fired: _FiredRound) -> str:
    arrived, expected = (sum(window[n] for window in fired.windows) for n in (1, 2))
    return f"the deadline of the round passed with {arrived} of {expected} members"


def run_id(job: JobRef, key: str, generation: int, events: Iterable[StoredEvent]) -> str:
    """32 hexadecimal digits made from content: a replay gives the same id, another round another (rule R7)."""
    parts = [job.id, job.incarnation, key, str(generation)]
    parts += sorted(f"{event.source}\n{event.id}" for event in events)
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def audit_entry(each: Pending, partition: int) -> AuditEntry:
    """The audit entry that the script noted."""
    payload = each.payload
    kind, job, event = AuditKind(payload["audit"]), JobRef(*payload["job"]), stored_event(payload["event"])
    older = stored_event(payload["other"]).id if payload.get("other") else None
    window = tuple(payload["window"]) if "window" in payload else None
    note = Note(kind, event.id, older, payload.get("runs", False), window)
    position = f"{CONTRIBUTIONS}/{partition}@{each.offset}"
    details: dict[str, Any] = {"event_key": event.key}
    if older is not None:
        details["replaced_event_id"] = older
    if window is not None:
        details |= {"size": window[0], "needed": window[1]}
    return AuditEntry(
        id=audit_id(kind, position, each.ordinal),
        kind=kind,
        service=SERVICE,
        at=payload["at"],
        message=note.message,
        job=job.id,
        asset=event.asset or job.assets[payload["asset"]],
        partition_key=payload["key"] or None,
        event_id=event.id,
        event_source=event.source,
        position=position,
        details=details,
    )
