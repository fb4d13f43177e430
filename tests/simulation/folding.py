"""What must become of the records on `contributions`, folded in their order by code that is not the core's.

Rounds are those of tests/simulation/jobs.py: the key of an event tells its member.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from zlib import crc32

from aiokafka import ConsumerRecord

from tests.simulation.jobs import Meaning, meaning_of

HORIZON_MS: Final = 60_000

Identity = tuple[str, str]
"""(source, id) of an event."""
Place = tuple[str, str]
"""(asset, key of the event): one member of a round."""
Coordinates = tuple[str, int, int]
"""(source, offset, ordinal) of the record that another was made from."""


class Happened(NamedTuple):
    """An event as contributions carry it."""

    identity: Identity
    at: int


class Firing(NamedTuple):
    """A run that has to be started, or failed."""

    job: str
    incarnation: str
    key: str
    generation: int
    events: frozenset[Identity]
    revision: int
    cause: str
    is_failed: bool
    log: str
    offset: int
    ordinal: int


class Note(NamedTuple):
    """An entry that the audit log must have."""

    kind: str
    job: str
    about: str | None
    """Id of the event, or who acted."""
    position: str | None
    """None for what a person did, since the record may be there twice."""
    events: frozenset[Identity] = frozenset()


class Mapped(NamedTuple):
    """A contribution of an event that was mapped again."""

    log: str
    offset: int
    job: str
    revision: int
    key: str
    asset: str
    identity: Identity


class Defined(NamedTuple):
    """One record of a job on `definitions`."""

    incarnation: str
    variant: str
    meaning: Meaning


class Definitions:
    """Every definition of every job, by the offset of its record."""

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self.of: dict[str, dict[int, Defined | None]] = defaultdict(dict)
        for record in records:
            kind, _, name = record.key.decode().partition(":")
            if kind == "job":
                self.of[name][record.offset] = _defined(record.value)

    def at(self, job: str, stamp: int) -> Defined | None:
        """What applied by the records below `stamp`."""
        offsets = [offset for offset in self.of[job] if offset < stamp]
        return self.of[job][max(offsets)] if offsets else None

    def newest(self, job: str) -> int:
        return max(self.of[job])

    def is_alike(self, job: str, one: int, other: int) -> bool:
        """Whether events count by one revision where they count by the other."""
        first, second = self.of[job].get(one), self.of[job].get(other)
        return first is not None and second is not None and first[:2] == second[:2]


def _defined(value: bytes | None) -> Defined | None:
    if value is None:
        return None
    record = json.loads(value)
    return Defined(record["incarnation"], *meaning_of(record["body"]["description"]))


@dataclass(slots=True)
class Mark:
    """What is left of a round that is over."""

    at: int
    generation: int
    members: frozenset[Place]
    kept: Mapping[Place, Happened]
    """Its events, where the policy has it run again."""
    revision: int
    """The newest of its job when it ended: events that were kept are of no use to one that counts otherwise (R6)."""


@dataclass(slots=True)
class Round:
    """One (job, incarnation, key): what is waiting, and what is remembered of the rounds before."""

    waiting: dict[Place, Happened] = field(default_factory=dict)
    replaced: set[Identity] = field(default_factory=set)
    opened: str = ""
    meaning: Meaning | None = None
    due: int | None = None
    mark: Mark | None = None
    seen: dict[Identity, int] = field(default_factory=dict)

    def empty(self) -> dict[Place, Happened]:
        """Take what is waiting."""
        waiting = self.waiting
        self.waiting, self.replaced, self.opened, self.meaning, self.due = {}, set(), "", None, None
        return waiting


Name = tuple[str, str, str]
"""(job, incarnation, key)."""


class Folding:
    """The fold of every partition, and all that must follow from it."""

    def __init__(self, definitions: Definitions, partitions: int, shards: int, early_ms: int) -> None:
        self._definitions, self._partitions, self._shards = definitions, partitions, shards
        self._early_ms = early_ms
        """By how much a clock may have been fast."""
        self.rounds: dict[Name, Round] = defaultdict(Round)
        self.folded: dict[tuple[int, str], int] = {}
        """By (shard, job) the newest revision."""
        self.firings: list[Firing] = []
        self.notes: Counter[Note] = Counter()
        self.mapped: Counter[Mapped] = Counter()
        self.problems: list[str] = []
        self._taken: set[Coordinates] = set()

    def take(self, record: ConsumerRecord) -> None:
        """Fold one record; those of one partition in their order."""
        message = json.loads(record.value)
        kind = message["kind"]
        if kind == "contributions":
            for ordinal, each in enumerate(entries(message)):
                if each.coordinates not in self._taken:
                    self._taken.add(each.coordinates)
                    self._contribute(record, ordinal, each, message["is_remapped"])
        elif kind == "definition":
            for shard in range(record.partition, self._shards, self._partitions):
                self._change(shard, message["job"], message["revision"], record)
        else:
            self._control(record, message)

    def open_rounds(self) -> dict[Name, Round]:
        return {name: each for name, each in self.rounds.items() if each.waiting}

    # Contributions

    def _contribute(self, record: ConsumerRecord, ordinal: int, each: "Entry", is_remapped: bool) -> None:
        shard = self._shard(each.job, each.key)
        self._change(shard, each.job, each.revision, record)
        newest = self.folded[shard, each.job]
        if newest != each.revision and not self._definitions.is_alike(each.job, newest, each.revision):
            name = (each.job, each.incarnation, each.key)
            self._map_again(name, {each.place: each.event}, newest, record)
            return
        defined = self._definitions.of[each.job][each.revision]
        if defined is None or defined.incarnation != each.incarnation:
            self.problems.append(f"a contribution names a revision that is none: {each}")
            return
        state, at = self.rounds[each.job, each.incarnation, each.key], record.timestamp
        meaning, event = defined.meaning, each.event
        if state.mark and state.mark.at >= at - HORIZON_MS:
            if state.seen.get(event.identity, -1) >= at - HORIZON_MS:
                if not is_remapped:
                    self._note("duplicate-event", each, record)
                return
            if meaning.rerun_policy != "new_round":
                self._past(record, ordinal, each, state, state.mark, meaning, is_remapped)
                return
        if (there := state.waiting.get(each.place)) is not None:
            self._replace(record, each, state, there, is_remapped)
            return
        if not state.waiting:
            state.opened = f"{record.offset}.{ordinal}"
            state.meaning = meaning
        state.waiting[each.place] = event
        if meaning.deadline:
            due = (event.at if is_remapped else at) + 1000 * meaning.deadline[0]
            state.due = due if state.due is None else min(state.due, due)
        if meaning.is_satisfied(set(state.waiting)):
            self._end(each.job, each.incarnation, each.key, record, ordinal, "assets")

    def _replace(
        self, record: ConsumerRecord, each: "Entry", state: Round, there: Happened, is_remapped: bool
    ) -> None:
        event = each.event
        if event.identity == there.identity or event.identity in state.replaced:
            if not is_remapped:
                self._note("duplicate-event", each, record)
        elif is_remapped and there.at >= event.at:
            state.replaced.add(event.identity)
            self._note("member-replaced", each._replace(event=there), record)
        else:
            state.replaced.add(there.identity)
            state.waiting[each.place] = event
            self._note("member-replaced", each, record)

    def _past(
        self,
        record: ConsumerRecord,
        ordinal: int,
        each: "Entry",
        state: Round,
        mark: Mark,
        meaning: Meaning,
        is_remapped: bool,
    ) -> None:
        """A member of a round that is over."""
        if each.place not in mark.members:
            self._note("member-late", each, record)
            return
        self._note("member-rerun", each, record)
        newest = self.folded[self._shard(each.job, each.key), each.job]
        is_alike = mark.revision == newest or self._definitions.is_alike(each.job, mark.revision, newest)
        kept = mark.kept if meaning.rerun_policy == "refire" and is_alike else {}
        if not kept or (is_remapped and kept[each.place].at >= each.event.at):
            return
        events, at = {**kept, each.place: each.event}, record.timestamp
        state.mark = Mark(at, mark.generation + 1, mark.members, events, newest)
        state.seen |= {event.identity: at for event in events.values()}
        self._fire(each.job, each.incarnation, each.key, state.mark, events, record, ordinal, "assets")

    # The end of a round

    def _end(
        self, job: str, incarnation: str, key: str, record: ConsumerRecord, ordinal: int, cause: str
    ) -> dict[Place, Happened]:
        state, at = self.rounds[job, incarnation, key], record.timestamp
        before = state.mark.generation if state.mark and state.mark.at >= at - HORIZON_MS else 0
        meaning = state.meaning
        assert meaning is not None
        state.seen |= dict.fromkeys(state.replaced, at)
        events = state.empty()
        state.seen |= {event.identity: at for event in events.values()}
        is_run = cause != "drop"
        keeps = is_run and meaning.is_windowed and meaning.policy == "refire"
        newest = self.folded[self._shard(job, key), job]
        state.mark = Mark(at, before + is_run, frozenset(events), events if keeps else {}, newest)
        if is_run:
            self._fire(job, incarnation, key, state.mark, events, record, ordinal, cause)
        return events

    def _fire(
        self,
        job: str,
        incarnation: str,
        key: str,
        mark: Mark,
        events: Mapping[Place, Happened],
        record: ConsumerRecord,
        ordinal: int,
        cause: str,
    ) -> None:
        self.firings.append(
            Firing(
                job,
                incarnation,
                key,
                mark.generation,
                identities(events),
                self.folded[self._shard(job, key), job],
                "deadline" if cause == "fail" else cause,
                cause == "fail",
                f"contributions/{record.partition}",
                record.offset,
                ordinal,
            )
        )

    # Definitions

    def _change(self, shard: int, job: str, revision: int, record: ConsumerRecord) -> None:
        before = self.folded.get((shard, job), -1)
        if revision <= before:
            return
        self.folded[shard, job] = revision
        if self._definitions.is_alike(job, before, revision):
            return
        for name in [name for name in self.open_rounds() if name[0] == job]:
            if self._shard(job, name[2]) == shard:
                self._map_again(name, self.rounds[name].empty(), revision, record)

    def _map_again(
        self, name: Name, events: Mapping[Place, Happened], revision: int, record: ConsumerRecord
    ) -> None:
        job, incarnation, _ = name
        log, defined = f"contributions/{record.partition}", self._definitions.of[job][revision]
        for (asset, event_key), event in events.items():
            placed = None
            if defined and defined.incarnation == incarnation and asset in defined.meaning.assets:
                placed = defined.meaning.place(event_key or None)
            if placed is None:
                position = f"{log}@{record.offset}"
                self.notes[Note("round-closed", job, event.identity[1], position)] += 1
            else:
                self.mapped[Mapped(log, record.offset, job, revision, placed, asset, event.identity)] += 1

    # Deadlines and people

    def _control(self, record: ConsumerRecord, message: dict[str, Any]) -> None:
        job, incarnation, key = message["job"], message["incarnation"], message["key"]
        kind, by = message["kind"], message.get("by")
        position = f"contributions/{record.partition}@{record.offset}"
        state = self.rounds[job, incarnation, key]
        if not state.waiting or state.opened != message["opened"]:
            if by:
                self.notes[Note("action-without-effect", job, by, None)] += 1
            return
        if kind == "deadline":
            if state.due is None or record.timestamp < state.due - self._early_ms:
                self.problems.append(f"{position} ends a round before its time: {state}")
            then = message["then"]
            cause = {"fire": "deadline", "fail": "fail", "drop": "drop"}[then]
            events = self._end(job, incarnation, key, record, 0, cause)
            if then != "fire":
                said = {"fail": "deadline-failed", "drop": "deadline-dropped"}[then]
                self.notes[Note(said, job, None, position, identities(events))] += 1
        elif kind == "fire":
            events = self._end(job, incarnation, key, record, 0, "manual")
            self.notes[Note("round-fired", job, by, None, identities(events))] += 1
        elif kind == "discard":
            self.notes[Note("round-discarded", job, by, None, identities(state.empty()))] += 1
        else:
            out = {
                place: event
                for place, event in state.waiting.items()
                if event.identity[1] == message["event_id"]
            }
            for place, event in out.items():
                del state.waiting[place]
                state.replaced.add(event.identity)
            if not state.waiting:
                state.empty()
            said = "member-withdrawn" if out else "action-without-effect"
            self.notes[Note(said, job, by, None, identities(out))] += 1

    def _note(self, kind: str, each: "Entry", record: ConsumerRecord) -> None:
        position = f"contributions/{record.partition}@{record.offset}"
        self.notes[Note(kind, each.job, each.event.identity[1], position)] += 1

    def _shard(self, job: str, key: str) -> int:
        return crc32(f"{job}\0{key}".encode()) % self._shards


class Entry(NamedTuple):
    """One contribution."""

    coordinates: Coordinates
    job: str
    incarnation: str
    revision: int
    key: str
    place: Place
    event: Happened


def entries(message: dict[str, Any]) -> Iterator[Entry]:
    """Every contribution of a record."""
    for offset, ordinal, job_number, event_number, key, asset, *_ in message["entries"]:
        event_key, event_id, source, at = message["events"][event_number][:4]
        job, incarnation, revision, _rollups, assets = message["jobs"][job_number][:5]
        yield Entry(
            (message["source"], offset, ordinal),
            job,
            incarnation,
            revision,
            key,
            (assets[asset], event_key or ""),
            Happened((source, event_id), at),
        )


def identities(events: Mapping[Place, Happened]) -> frozenset[Identity]:
    return frozenset(event.identity for event in events.values())
