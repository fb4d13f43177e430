"""What the rounds of one (job, key) must have done, given what is known to have come out.

Written for the chaos driver: shares nothing with `tidegate.core` or the rollup's script.

Events of one asset that stand in one partition of `asset-events` reach a round in that order; between partitions and
between assets any order is legal. So there is no one right answer, but a set of them, and it is met exactly: from the
outcome follows which event must have come before which (`must_precede`: members before the one that completed them,
one round before the next, the replaced before its replacement, the late after the firing). Together with the order of
the logs that must be free of circles, or no legal order explains the outcome. If it is, one such order is taken and the
rules are applied to it, by hand: what comes out must be the outcome, no more and no less. Every order that satisfies
the constraints gives the same, since they fix which events fill which round and which of them completes it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.jobs import Facts

Identity = tuple[str, str]
"""(source, id) of an event."""


class Arrival(NamedTuple):
    """One event as a round sees it."""

    event: Identity
    key: str
    """The event's own key."""
    asset: int
    member: int


class Fired(NamedTuple):
    """One run command."""

    generation: int
    members: frozenset[tuple[int, int, Identity]]
    """(asset, member, event)."""
    completed_by: str
    """Id of an event."""


@dataclass(slots=True)
class Outcome:
    """What came out for one (job, key); audit entries by the event that they are about."""

    fired: list[Fired] = field(default_factory=list)
    replaced: list[tuple[Identity, str]] = field(default_factory=list)
    """(the new event, the id of the replaced one)."""
    late: set[Identity] = field(default_factory=set)
    rerun: set[Identity] = field(default_factory=set)


@dataclass(slots=True)
class Judged:
    """How an outcome differs from every legal one."""

    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)


def judge(
    facts: Facts,
    arrivals: Mapping[Identity, Arrival],
    streams: Iterable[Sequence[Identity]],
    outcome: Outcome,
) -> Judged:
    """Hold an outcome against the legal ones; `streams` give the events whose order is fixed, in that order."""
    judged = Judged()
    fired = sorted(outcome.fired, key=lambda each: each.generation)
    if [each.generation for each in fired] != list(range(1, len(fired) + 1)):
        judged.faults.append(f"generations are {[each.generation for each in fired]}")
    used: set[Identity] = set()
    for each in fired:
        events = {event for _, _, event in each.members}
        if again := used & events:
            judged.doubled += 1
            judged.faults.append(f"run {each.generation} starts again from {sorted(again)[:3]}")
        used |= events
        if each.completed_by not in {event[1] for event in events}:
            judged.faults.append(
                f"run {each.generation} was completed by {each.completed_by!r}, no event of it"
            )
        if strangers := events - arrivals.keys():
            judged.faults.append(
                f"run {each.generation} names {sorted(strangers)[:3]}, which never came for it"
            )
    if judged.faults:
        # No order can be told from such an outcome; count at least what any order must give.
        generations = {each.generation for each in fired}
        judged.lost = max(_fewest(facts, arrivals), *generations, 0) - len(generations)
        return judged
    before = _must_precede(facts, arrivals, streams, fired, outcome)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        around = [event[1] for event in error.args[1]]
        judged.faults.append(f"no order of the events explains the runs and audit entries: {around[:6]}")
        order = sorted(arrivals)
        judged.lost = max(0, _fewest(facts, arrivals) - len(fired))
        return judged
    expected = fold(facts, [arrivals[event] for event in order])
    judged.lost = max(0, len(expected.fired) - len(fired))
    _compare("runs", fired, expected.fired, judged)
    _compare("member-replaced", outcome.replaced, expected.replaced, judged)
    _compare("member-late", outcome.late, expected.late, judged)
    _compare("member-rerun", outcome.rerun, expected.rerun, judged)
    return judged


def _compare(what: str, found: Iterable[object], right: Iterable[object], judged: Judged) -> None:
    missing, extra = set(right) - set(found), set(found) - set(right)
    if missing or extra:
        judged.faults.append(f"{what}: {list(missing)[:2]} missing, {list(extra)[:2]} unexpected")


def _must_precede(
    facts: Facts,
    arrivals: Mapping[Identity, Arrival],
    streams: Iterable[Sequence[Identity]],
    fired: Sequence[Fired],
    outcome: Outcome,
) -> dict[Identity, set[Identity]]:
    """By event, those that must have come before it."""
    before: dict[Identity, set[Identity]] = {event: set() for event in arrivals}
    for stream in streams:
        for first, second in pairwise(stream):
            before[second].add(first)
    by_id = {event[1]: event for event in arrivals}  # cousins are only among events that nothing replaces
    round_of: dict[Identity, int] = {}
    completing: list[Identity] = []
    for number, each in enumerate(fired):
        events = {event for _, _, event in each.members}
        completing.append(next(event for event in events if event[1] == each.completed_by))
        for event in events:
            round_of[event] = number
    replaced_by = {
        old: new
        for new, old_id in outcome.replaced
        if new in arrivals and (old := by_id.get(old_id)) is not None and old != new
    }
    for old, new in replaced_by.items():
        before[new].add(old)
        end, steps = new, 0
        while end in replaced_by and end not in round_of and steps <= len(replaced_by):
            end, steps = replaced_by[end], steps + 1
        if end in round_of:
            round_of.setdefault(old, round_of[end])
    ignored = outcome.late | outcome.rerun
    for event in arrivals:
        if event in ignored:
            if completing:
                before[event].add(completing[0])
        elif event in round_of:
            number = round_of[event]
            if event != completing[number]:
                before[completing[number]].add(event)
            if number:
                before[event].add(completing[number - 1])
        elif completing:
            before[event].add(completing[-1])
    return before


def _fewest(facts: Facts, arrivals: Mapping[Identity, Arrival]) -> int:
    """How many runs there are in every order, at least: the rounds that the rarest member allows."""
    members: dict[int, set[int]] = defaultdict(set)
    for arrival in arrivals.values():
        members[arrival.asset].add(arrival.member)
    if any(len(members[asset]) < facts.needed for asset in range(len(facts.assets))):
        return 0
    return len(arrivals) if facts.size == 1 and len(facts.assets) == 1 else 1


def fold(facts: Facts, arrivals: Iterable[Arrival]) -> Outcome:
    """The rules of rounds applied to events in an order: one round after the other is filled and fires."""
    out = Outcome()
    present: dict[tuple[int, int], dict[str, Identity]] = {}
    was_in: set[tuple[int, int]] | None = None
    for event, key, asset, member in arrivals:
        place = (asset, member)
        if was_in is not None and facts.after == "ignore":
            (out.rerun if place in was_in else out.late).add(event)
            continue
        if place in present:
            if (old := present[place].get(key)) is not None:
                out.replaced.append((event, old[1]))
            present[place][key] = event
            continue
        present[place] = {key: event}
        arrived = [sum(one == index for one, _ in present) for index in range(len(facts.assets))]
        if min(arrived) >= facts.needed:
            members = frozenset((*at, one) for at, by_key in present.items() for one in by_key.values())
            out.fired.append(Fired(len(out.fired) + 1, members, event[1]))
            was_in, present = set(present), {}
    return out
