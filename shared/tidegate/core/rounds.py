"""The round: one filling of a window, as a pure fold (rule R8).

The rollup's script does the same in Redis; a property test holds one against the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from tidegate.core.audit import AuditKind
from tidegate.core.errors import DefinitionError

HORIZON_MS: Final = 7 * 86_400_000
"""How long events and fired rounds are remembered unless a setting says otherwise (rule D5)."""


class Event(NamedTuple):
    """The event behind an arrival; (source, id) identifies it."""

    key: str | None
    id: str
    source: str
    at: int = 0
    """When the broker received it, milliseconds since 1970."""

    @property
    def identity(self) -> tuple[str, str]:
        return (self.source, self.id)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One contribution as the round sees it."""

    event: Event
    asset: int
    member: int
    size: int
    needed: int
    at: int
    """Time of the record, milliseconds since 1970."""
    dated: bool = True
    """Whether the asset's mapper reads a date from the round's key. Where no asset's does, the same members come again
    and again."""
    is_remapped: bool = False
    """Whether it waited under an older definition (rule R6). It is then no news that it is there already, and events
    that came to the broker after it are newer than it, though they were taken in before."""
    is_further_way: bool = False
    """Whether the event comes to this round by an asset of lower index too: a repeat is told of there alone (B060)."""

    def is_older_than(self, other: Event | None) -> bool:
        """Whether it comes too late to take the place of an event that is there."""
        return self.is_remapped and other is not None and other.at >= self.event.at


class RerunPolicy(StrEnum):
    """What an event does whose round has fired."""

    IGNORE = "ignore"
    """Nothing but an audit entry; the default for keys that stand for a date."""
    REFIRE = "refire"
    """Run again at once with the full set, this event in the place of the older one. A round that fired under another
    policy has not kept its events, so that it is not run again."""
    NEW_ROUND = "new_round"
    """Be the first of a new round; the default for keys without a date."""


def rerun_policy_named(value: object) -> RerunPolicy:
    """The rerun policy that a definition names; raises DefinitionError."""
    try:
        return RerunPolicy(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise DefinitionError(
            f"rerun_policy {value!r} is not known: use one of {', '.join(RerunPolicy)}, or None"
        ) from error


@dataclass(frozen=True, slots=True)
class Rules:
    """What a job's definition says about its rounds."""

    clauses: tuple[tuple[int, ...], ...]
    """Sets of asset indexes, each of which lets the round fire."""
    rollups: frozenset[int] = frozenset()
    """Assets that wait in a rollup. With any, the round is windowed: every asset is a member of it (D23)."""
    horizon_ms: int = HORIZON_MS
    rerun_policy: RerunPolicy | None = None
    """None for the default of the key."""

    def rerun_policy_for(self, *, dated: bool) -> RerunPolicy:
        return self.rerun_policy or (RerunPolicy.IGNORE if dated else RerunPolicy.NEW_ROUND)

    @property
    def windowed(self) -> bool:
        return bool(self.rollups)

    def keeps_other_keys(self, asset: int) -> bool:
        """Whether events with other keys in one member are kept beside each other (D21) or replaced (D23)."""
        return not self.windowed or asset in self.rollups


class Outcome(StrEnum):
    """What became of an arrival."""

    COUNTED = "counted"
    KEPT = "kept"
    """A further event of a member that is already there."""
    REPLACED = "member-replaced"
    DUPLICATE = "duplicate-event"
    RERUN = "member-rerun"
    """Its member was in the round that fired."""
    LATE = "member-late"
    """Its member was missing when the round fired."""


@dataclass(frozen=True, slots=True)
class Fired:
    """The mark that a fired round leaves."""

    generation: int
    at: int
    members: frozenset[tuple[int, int]]
    """(asset, member) pairs that were in."""
    events: "Members" = field(default_factory=dict)
    """The events of the round, where the job's rerun policy needs them."""
    dated: bool = False
    """Whether any event of the round brought a date of its key."""


Members = Mapping[tuple[int, int], tuple[Event, ...]]


@dataclass(frozen=True, slots=True)
class Round:
    """The state of one (job, downstream key): the open round, and the mark of the last fired one."""

    members: Members = field(default_factory=dict)
    windows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """(size, needed) per asset that has arrived."""
    replaced: frozenset[tuple[str, str]] = frozenset()
    dated: bool = False
    """Whether any event that the open round has taken brought a date of its key."""
    fired: Fired | None = None
    seen: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Events of fired rounds, the replaced ones included, with the time of firing."""

    @property
    def emptied(self) -> "Round":
        """The round once a change of its job has taken what waited in it, to be mapped again (rule R6).

        What fired stays known: a late event is late under the new definition too.
        """
        return Round(fired=self.fired, seen=self.seen)


class Firing(NamedTuple):
    """A satisfied round."""

    generation: int
    members: Members


class Note(NamedTuple):
    """Something about an arrival that belongs into the audit log."""

    kind: AuditKind
    event_id: str
    older_id: str | None = None
    """The event that this one replaces."""
    is_run: bool = False
    """Whether the event starts its round's run again."""
    window: tuple[int, int] | None = None
    """(size, needed) of a window that can never have enough members."""

    @property
    def message(self) -> str:
        event, older = f"event {self.event_id!r}", repr(self.older_id)
        match self.kind:
            case AuditKind.MEMBER_REPLACED:
                return f"{event} replaces {older}, an older one with the same key"
            case AuditKind.MEMBER_LATE:
                return f"{event} came after its round had fired without it"
            case AuditKind.MEMBER_RERUN if self.is_run:
                instead = f" in the place of {older}" if self.older_id is not None else ""
                return f"{event} repeats a member of a round that has fired; it starts the run again{instead}"
            case AuditKind.MEMBER_RERUN:
                return f"{event} repeats a member of a round that has fired; it starts no run"
            case AuditKind.WINDOW_UNSATISFIABLE if self.window:
                size, needed = self.window
                return f"the window has {size} members and its wait policy asks for {needed} at least: it never fires"
        return f"{event} is already part of this round or of one that fired"


class Step(NamedTuple):
    round: Round
    outcome: Outcome
    firing: Firing | None = None
    audit: tuple[Note, ...] = ()


def fold(state: Round, arrival: Arrival, rules: Rules) -> Step:
    """The round after one arrival, what became of it, the firing if there is one, and what has to be audited.

    Nothing here looks at a clock: marks expire by the times of the records themselves.
    """
    since = arrival.at - rules.horizon_ms
    mark = state.fired if state.fired is not None and state.fired.at >= since else None
    place, event = (arrival.asset, arrival.member), arrival.event
    if mark is not None:
        seen_at = state.seen.get(event.identity)
        if seen_at is not None and seen_at >= since:
            return _duplicate(state, arrival)
        policy = rules.rerun_policy_for(dated=arrival.dated or mark.dated)
        if rules.windowed and policy is not RerunPolicy.NEW_ROUND:
            if place not in mark.members:
                return _noted(state, Outcome.LATE, event)
            if policy is RerunPolicy.REFIRE and mark.events:
                return _refire(state, mark, arrival, rules)
            return _noted(state, Outcome.RERUN, event)
    if there := state.members.get(place, ()):
        return _another(state, arrival, there, rules)
    window, is_first = (arrival.size, arrival.needed), arrival.asset not in state.windows
    state = replace(
        state,
        members={**state.members, place: (event,)},
        windows={**state.windows, arrival.asset: window},
        dated=state.dated or arrival.dated,
    )
    if not any(all(_is_satisfied(state, asset) for asset in clause) for clause in rules.clauses):
        unsatisfiable = Note(AuditKind.WINDOW_UNSATISFIABLE, event.id, window=window)
        is_noted = is_first and arrival.needed > arrival.size
        return Step(state, Outcome.COUNTED, audit=(unsatisfiable,) if is_noted else ())
    after, firing = end(state, arrival.at, rules)
    return Step(after, Outcome.COUNTED, firing)


def end(state: Round, at: int, rules: Rules, *, is_run: bool = True) -> tuple[Round, Firing]:
    """The round once it is over with what is there, by a record of this time: satisfied, or by rule R4.

    The mark is that of a firing. Without a run, as when a deadline drops the round, no generation is used up, and its
    events are no use to a run later.
    """
    mark = state.fired if state.fired is not None and state.fired.at >= at - rules.horizon_ms else None
    generation = (mark.generation if mark else 0) + is_run
    fired = _fired(generation, at, state.members, rules, state.dated)
    if not is_run:
        fired = replace(fired, events={})
    seen = dict.fromkeys(_identities(state.members) | state.replaced, at)
    return Round(fired=fired, seen={**state.seen, **seen}), Firing(generation, state.members)


def withdraw(state: Round, event_id: str) -> tuple[Round, tuple[Event, ...]]:
    """The open round without the events of this id, and those events; they are as good as replaced ones (B043)."""
    kept = {
        place: tuple(each for each in there if each.id != event_id) for place, there in state.members.items()
    }
    members = {place: there for place, there in kept.items() if there}
    withdrawn = tuple(each for there in state.members.values() for each in there if each.id == event_id)
    if not members:
        return state.emptied, withdrawn
    assets = {asset for asset, _ in members}
    return (
        replace(
            state,
            members=members,
            windows={asset: window for asset, window in state.windows.items() if asset in assets},
            replaced=state.replaced | {each.identity for each in withdrawn},
        ),
        withdrawn,
    )


def _noted(state: Round, outcome: Outcome, event: Event, older: Event | None = None) -> Step:
    note = Note(AuditKind(outcome.value), event.id, older.id if older else None)
    return Step(state, outcome, audit=(note,))


def _duplicate(state: Round, arrival: Arrival) -> Step:
    if arrival.is_remapped or arrival.is_further_way:
        return Step(state, Outcome.DUPLICATE)
    return _noted(state, Outcome.DUPLICATE, arrival.event)


def _fired(generation: int, at: int, members: Members, rules: Rules, dated: bool) -> Fired:
    keeps = rules.windowed and rules.rerun_policy is RerunPolicy.REFIRE
    return Fired(generation, at, frozenset(members), members if keeps else {}, dated)


def _identities(members: Members) -> set[tuple[str, str]]:
    return {each.identity for kept in members.values() for each in kept}


def _refire(state: Round, mark: Fired, arrival: Arrival, rules: Rules) -> Step:
    event, place = arrival.event, (arrival.asset, arrival.member)
    there = mark.events[place]
    older = _older(there, arrival, rules)
    if arrival.is_older_than(older):
        return _noted(state, Outcome.RERUN, event)
    members = {**mark.events, place: _with(event, there, older)}
    fired = _fired(mark.generation + 1, arrival.at, members, rules, mark.dated or arrival.dated)
    after = replace(
        state, fired=fired, seen={**state.seen, **dict.fromkeys(_identities(members), arrival.at)}
    )
    note = Note(AuditKind.MEMBER_RERUN, event.id, older.id if older else None, is_run=True)
    return Step(after, Outcome.RERUN, Firing(fired.generation, members), (note,))


def _another(state: Round, arrival: Arrival, there: tuple[Event, ...], rules: Rules) -> Step:
    event, place = arrival.event, (arrival.asset, arrival.member)
    older = _older(there, arrival, rules)
    if event.identity in state.replaced or (older is not None and older.identity == event.identity):
        return _duplicate(state, arrival)
    if older is not None and arrival.is_older_than(older):
        after = replace(state, replaced=state.replaced | {event.identity})
        return _noted(after, Outcome.REPLACED, older, event)
    members = {**state.members, place: _with(event, there, older)}
    after = replace(state, members=members, dated=state.dated or arrival.dated)
    if older is None:
        return Step(after, Outcome.KEPT)
    after = replace(after, replaced=state.replaced | {older.identity})
    return _noted(after, Outcome.REPLACED, event, older)


def _older(there: tuple[Event, ...], arrival: Arrival, rules: Rules) -> Event | None:
    """The event of the member that gives way to this one."""
    keeps = rules.keeps_other_keys(arrival.asset)
    return next((each for each in there if each.key == arrival.event.key or not keeps), None)


def _with(event: Event, there: tuple[Event, ...], older: Event | None) -> tuple[Event, ...]:
    return (*there, event) if older is None else tuple(event if each is older else each for each in there)


def _is_satisfied(state: Round, asset: int) -> bool:
    arrived = sum(place[0] == asset for place in state.members)
    return asset in state.windows and arrived >= state.windows[asset][1]
