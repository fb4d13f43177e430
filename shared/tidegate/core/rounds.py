"""The round: one filling of a window, as a pure fold (rule R8).

The rollup's script does the same in Redis; a property test holds one against the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from tidegate.core.errors import DefinitionError


class Event(NamedTuple):
    """The event behind an arrival; (source, id) identifies it."""

    key: str | None
    id: str
    source: str

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
    """Whether the round's key stands for a date; where it does not, the same members come again and again."""


class RerunPolicy(StrEnum):
    """What an event does whose round has fired."""

    IGNORE = "ignore"
    """Nothing but an audit entry; the default for keys that stand for a date."""
    REFIRE = "refire"
    """Run again at once with the full set, this event in the place of the older one."""
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
    horizon_ms: int = 7 * 86_400_000
    rerun_policy: RerunPolicy | None = None
    """None for the default of the key."""

    def rerun_policy_of(self, arrival: Arrival) -> RerunPolicy:
        return self.rerun_policy or (RerunPolicy.IGNORE if arrival.dated else RerunPolicy.NEW_ROUND)

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


Members = Mapping[tuple[int, int], tuple[Event, ...]]


@dataclass(frozen=True, slots=True)
class Round:
    """The state of one (job, downstream key): the open round, and the mark of the last fired one."""

    members: Members = field(default_factory=dict)
    windows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """(size, needed) per asset that has arrived."""
    replaced: frozenset[tuple[str, str]] = frozenset()
    fired: Fired | None = None
    seen: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Events of fired rounds, the replaced ones included, with the time of firing."""


class Firing(NamedTuple):
    """A satisfied round."""

    generation: int
    members: Members


class Step(NamedTuple):
    round: Round
    outcome: Outcome
    firing: Firing | None = None


def fold(state: Round, arrival: Arrival, rules: Rules) -> Step:
    """The round after one arrival, what became of it, and the firing if it completed the round.

    Nothing here looks at a clock: marks expire by the times of the records themselves.
    """
    since = arrival.at - rules.horizon_ms
    mark = state.fired if state.fired is not None and state.fired.at >= since else None
    place, event = (arrival.asset, arrival.member), arrival.event
    if mark is not None:
        seen_at = state.seen.get(event.identity)
        if seen_at is not None and seen_at >= since:
            return Step(state, Outcome.DUPLICATE)
        policy = rules.rerun_policy_of(arrival)
        if rules.windowed and policy is not RerunPolicy.NEW_ROUND:
            if place not in mark.members:
                return Step(state, Outcome.LATE)
            if policy is RerunPolicy.REFIRE:
                return _refire(state, mark, arrival, rules)
            return Step(state, Outcome.RERUN)
    there = state.members.get(place, ())
    if there:
        return _another(state, arrival, there, rules)
    state = replace(
        state,
        members={**state.members, place: (event,)},
        windows={**state.windows, arrival.asset: (arrival.size, arrival.needed)},
    )
    if not any(all(_is_satisfied(state, asset) for asset in clause) for clause in rules.clauses):
        return Step(state, Outcome.COUNTED)
    generation = (mark.generation if mark else 0) + 1
    events = {each.identity for kept in state.members.values() for each in kept} | state.replaced
    return Step(
        Round(
            fired=_fired(generation, arrival, state.members, rules),
            seen={**state.seen, **dict.fromkeys(events, arrival.at)},
        ),
        Outcome.COUNTED,
        Firing(generation, state.members),
    )


def _fired(generation: int, arrival: Arrival, members: Members, rules: Rules) -> Fired:
    keeps = rules.rerun_policy_of(arrival) is RerunPolicy.REFIRE
    return Fired(generation, arrival.at, frozenset(members), members if keeps else {})


def _refire(state: Round, mark: Fired, arrival: Arrival, rules: Rules) -> Step:
    place, event = (arrival.asset, arrival.member), arrival.event
    there = mark.events.get(place, ())
    kept = tuple(each for each in there if each.key != event.key and rules.keeps_other_keys(arrival.asset))
    members = {**mark.events, place: (*kept, event)}
    generation = mark.generation + 1
    after = replace(
        state,
        fired=_fired(generation, arrival, members, rules),
        seen={**state.seen, event.identity: arrival.at},
    )
    return Step(after, Outcome.RERUN, Firing(generation, members))


def _another(state: Round, arrival: Arrival, there: tuple[Event, ...], rules: Rules) -> Step:
    event, place = arrival.event, (arrival.asset, arrival.member)
    keeps = rules.keeps_other_keys(arrival.asset)
    older = next((each for each in there if each.key == event.key or not keeps), None)
    if event.identity in state.replaced or (older is not None and older.identity == event.identity):
        return Step(state, Outcome.DUPLICATE)
    kept = tuple(event if each is older else each for each in there)
    if older is None:
        kept, outcome = (*there, event), Outcome.KEPT
    else:
        outcome = Outcome.REPLACED
        state = replace(state, replaced=state.replaced | {older.identity})
    return Step(replace(state, members={**state.members, place: kept}), outcome)


def _is_satisfied(state: Round, asset: int) -> bool:
    arrived = sum(place[0] == asset for place in state.members)
    return asset in state.windows and arrived >= state.windows[asset][1]
