"""What goes into the rollup's script: records of `contributions` as inputs of shards, and those as its arguments."""

import json
from base64 import b64encode
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
    is_older = batch.is_remapped or batch.is_replayed
    for index, each in enumerate(batch.entries):
        if (
            min(each.job, each.event, each.asset, each.member) < 0
            or each.member >= each.size
            or (each.also and min(each.also) < 0)
        ):
            raise IndexError(f"contribution {index} has an index out of range: {each}")
        job, event = batch.jobs[each.job], batch.events[each.event]
        if (asset := max(each.asset, *each.also) if each.also else each.asset) >= len(job.assets):
            raise IndexError(f"contribution {index} has asset {asset} of {len(job.assets)}")
        shard = shard_of(job.id, each.key, shards)
        if shard not in ours:
            raise IndexError(f"contribution {index} is for shard {shard}, which another partition feeds")
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
    jobs = _Jobs()
    events = _Events()
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
        number = jobs.number_of(job)
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
        event, key_end = events.stored(name, entry)
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
                *(_due(entry) if job.deadlines else ()),
            )
        )
    names = list(rounds)
    batch = {
        "repeats": repeats,
        "sources": [source.written_out() for source in sources],
        "jobs": [_json(job) for job in jobs.numbers],
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


class _Jobs:
    """Jobs by number, from 1. Most are known by identity, since to hash a reference takes long."""

    def __init__(self) -> None:
        self.numbers: dict[JobRef, int] = {}
        self._known: dict[int, int] = {}

    def number_of(self, job: JobRef) -> int:
        if (number := self._known.get(id(job))) is None:
            number = self._known[id(job)] = self.numbers.setdefault(job, len(self.numbers) + 1)
        return number


class _Events:
    """Events as rounds keep them. Those of one event differ in little, however many rounds it comes to."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, str, int, str, str]] = {}

    def stored(self, name: str, entry: Entry) -> tuple[str, int]:
        """The event as the round `name` keeps it, and the length in bytes of its part up to the key."""
        event, each = entry.event, entry.contribution
        if (known := self._known.get(id(event))) is None:
            identity, key = f"\n{event.source}\n{event.id}".encode(), _json(event.key)
            known = (
                identity,
                key,
                _DIGEST_END + len(key.encode()),
                _json((event.id, event.source, event.at, event.date))[1:-1],
                "null" if event.extra is None else _json(event.extra),
            )
            self._known[id(event)] = known
        identity, key, key_end, before, extra = known
        # 16 characters that tell (round, event) apart; no part of it can hold a line break.
        digest = b64encode(blake2b(name.encode() + identity, digest_size=12).digest()).decode()
        carried = "false" if each.is_date_failed else "null" if each.carried is None else each.carried
        return f'"{digest}",{key},{before},{carried},{extra}{_more(entry)}', key_end


_DIGEST_END: Final = len('"0123456789abcdef",')


def _more(entry: Entry) -> str:
    """What few events have: another name of the asset, a team, aliases, other ways into the round."""
    event, each = entry.event, entry.contribution
    is_named_otherwise = event.asset and event.asset != entry.job.assets[each.asset]
    if not (is_named_otherwise or event.team is not None or event.aliases or each.also):
        return ""
    more: tuple[Any, ...] = (
        event.asset if is_named_otherwise else None,
        event.team,
        event.aliases or None,
        each.also or None,
    )
    while more[-1] is None:
        more = more[:-1]
    return "," + _json(more)[1:-1]


def _json(value: Any) -> str:
    # Every key goes this way, so that equal keys have equal bytes and the script may compare prefixes.
    return to_json(value).decode()
