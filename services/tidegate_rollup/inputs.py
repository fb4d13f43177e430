"""What goes into the rollup's script: records of `contributions` as inputs of shards, and those as its arguments."""

import json
from binascii import b2a_base64
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

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
    source, jobs, events, is_replayed = batch.source, batch.jobs, batch.events, batch.is_replayed
    is_older = batch.is_remapped or is_replayed
    shard_by: dict[tuple[int, str], int] = {}
    """By the index of the job and the key, which come many times."""
    for index, each in enumerate(batch.entries):
        _, _, job_index, event_index, key, asset, member, size, *_, also = each
        if (
            job_index < 0
            or event_index < 0
            or asset < 0
            or not 0 <= member < size
            or (also and min(also) < 0)
        ):
            raise IndexError(f"contribution {index} has an index out of range: {each}")
        job, event = jobs[job_index], events[event_index]
        if also:
            asset = max(asset, *also)
        if asset >= len(job.assets):
            raise IndexError(f"contribution {index} has asset {asset} of {len(job.assets)}")
        if (shard := shard_by.get((job_index, key))) is None:
            shard = shard_by[job_index, key] = shard_of(job.id, key, shards)
        if shard not in ours:
            raise IndexError(f"contribution {index} is for shard {shard}, which another partition feeds")
        # A named tuple's own way to be made takes twice as long.
        entries.append(
            _new(Entry, (offset, index, at, source, job, event, each, shard, is_older, is_replayed))
        )
    return entries


_new: Final = tuple.__new__


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
    name: bytes
    key: str
    job: int
    newest: int
    """Revision of its job that the batch had brought by then."""
    fields: list[str]
    is_remapped: bool
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """The places of the members that the entries are."""
    events: list[str] = field(default_factory=list)
    groups: list["_Group"] = field(default_factory=list)
    group: "_Group | None" = None
    """The last of them."""

    def written_out(self) -> tuple[Any, ...]:
        # Where no member comes twice, their places are those of the entries.
        order = self.order if len(self.order) > len(self.places) else False
        groups = [group.written_out() for group in self.groups]
        return (self.round, _json(self.key), self.job, self.fields, groups, order, self.is_remapped)

    def add_member(self, asset: int, member: int) -> None:
        """Put down the place of a member's field, from 1."""
        if (place := self.places.get((asset, member))) is None:
            self.fields.append(f"m:{asset}:{member}")
            place = self.places[asset, member] = len(self.fields)
        self.order.append(place)


@dataclass(slots=True)
class _Group:
    """Entries of a part that follow each other and differ only in where they stand within their record, and in the
    member and the event."""

    shared: tuple[Any, ...]
    at: int
    ordinals: list[int] = field(default_factory=list)
    coordinates: list[int] = field(default_factory=list)

    def written_out(self) -> tuple[Any, ...]:
        source, offset, asset, size, needed, decoded, due = self.shared
        return (
            source,
            offset,
            self.at,
            asset,
            -1 if needed > size else needed,
            f"{size} {needed}",
            False if decoded is None else str(decoded),  # the script would round a number
            self.ordinals,
            _json(self.coordinates),  # a text, since the script seldom has to read it
            *due,
        )


class Arguments(NamedTuple):
    """A batch as apply.lua takes it."""

    rounds: list[str]
    """Their names."""
    batch: str
    events: str
    """A line each; none can hold a line break."""


def script_arguments(entries: Sequence[Input]) -> Arguments:
    """`entries` for the script.

    What may change a job, since it brings a newer revision than the batch had before, ends the parts of its rounds.
    """
    rounds: dict[str, int] = {}
    jobs = _Jobs()
    events = _Events()
    sources: list[_Source] = []
    latest_of: dict[str, _Source] = {}
    """By name of the source."""
    parts: list[_Part | tuple[int | str, ...]] = []
    latest: dict[str, _Part] = {}
    """By name of the round."""
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
            latest.pop(name, None)
            parts.append(_control(rounds.setdefault(name, len(rounds) + 1), name, entry, record))
            continue
        offset, ordinal, at, source_name, job, _, each, _, is_remapped, is_replayed = entry
        _, _, _, _, key, asset, member, size, needed, decoded, *_ = each
        coordinates, replayed_at = each[:2], at if is_replayed else None
        source = latest_of.get(source_name)
        if source is None or source.at != replayed_at:
            source = _Source(source_name, len(sources) + 1, coordinates, coordinates, replayed_at)
            latest_of[source_name] = source
            sources.append(source)
        elif coordinates > source.highest:
            source.highest = coordinates
        else:
            repeats += 1
            continue
        number, prefix = jobs.known(job)
        name = prefix + key
        revision = newest.get(job.id, -1)
        if job.revision > revision:
            revision = newest[job.id] = job.revision
        part = latest.get(name)
        if (
            part is None
            or part.job != number
            or part.newest != revision
            or part.is_remapped != is_remapped
            or len(part.order) == ENTRIES_PER_PART
        ):
            place = rounds.setdefault(name, len(rounds) + 1)
            part = _Part(place, name.encode(), key, number, revision, _fields_of(job), is_remapped)
            latest[name] = part
            parts.append(part)
        part.add_member(asset, member)
        part.events.append(events.stored(part.name, entry))
        due = _due(entry) if job.deadlines else ()
        shared = (source.number, offset, asset, size, needed, decoded, due)
        group = part.group
        if group is None or group.shared != shared:
            group = part.group = _Group(shared, at)
            part.groups.append(group)
        group.ordinals.append(ordinal)
        group.coordinates += coordinates
    batch = {
        "repeats": repeats,
        "sources": [source.written_out() for source in sources],
        "jobs": [_json(job) for job in jobs.numbers],
        "parts": [part.written_out() if isinstance(part, _Part) else part for part in parts],
    }
    # One text for all, since the client takes its time over every argument, and JSON over every quote in a text.
    stored = "".join(text for part in parts if isinstance(part, _Part) for text in part.events)
    return Arguments(list(rounds), _json(batch), stored)


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


class _Jobs:
    """Jobs by number, from 1. Most are known by identity, since to hash a reference takes long."""

    def __init__(self) -> None:
        self.numbers: dict[JobRef, int] = {}
        self._known: dict[int, tuple[int, str]] = {}

    def known(self, job: JobRef) -> tuple[int, str]:
        """Its number, and how the names of its rounds begin."""
        if (known := self._known.get(id(job))) is None:
            number = self.numbers.setdefault(job, len(self.numbers) + 1)
            known = self._known[id(job)] = number, round_name(job.id, job.incarnation, "")
        return known


class _Events:
    """Events as rounds keep them. Those of one event differ in little, however many rounds it comes to."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, str, str, str, bool]] = {}

    def stored(self, name: bytes, entry: Entry) -> str:
        """The event as the round `name` keeps it, and a line break."""
        event, each = entry.event, entry.contribution
        if (known := self._known.get(id(event))) is None:
            known = self._known[id(event)] = (
                f"\n{event.source}\n{event.id}".encode(),
                _json((event.key, event.id, event.source, event.at, event.date))[1:-1],
                "null" if event.extra is None else _json(event.extra),
                event.asset,
                event.team is None and not event.aliases,
            )
        identity, before, extra, asset, is_plain = known
        # 16 characters that tell (round, event) apart; no part of it can hold a line break.
        digest = b2a_base64(blake2b(name + identity, digest_size=12).digest(), newline=False).decode()
        is_plain = is_plain and not each.also and asset == entry.job.assets[each.asset]
        more = "" if is_plain else _more(entry)
        carried = "false" if each.is_date_failed else "null" if each.carried is None else each.carried
        return f'"{digest}",{before},{carried},{extra}{more}\n'


def _more(entry: Entry) -> str:
    """What few events have: another name of the asset, a team, aliases, other ways into the round."""
    event, each = entry.event, entry.contribution
    is_named_otherwise = event.asset and event.asset != entry.job.assets[each.asset]
    more: tuple[Any, ...] = (
        event.asset if is_named_otherwise else None,
        event.team,
        event.aliases or None,
        each.also or None,
    )
    while more and more[-1] is None:
        more = more[:-1]
    return "," + _json(more)[1:-1] if more else ""


def _json(value: Any) -> str:
    # Every key goes this way, so that equal keys have equal bytes.
    return to_json(value).decode()
