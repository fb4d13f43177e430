"""What the rounds of one (job, key) must have done, given what is known to have come out.

Written for the chaos driver: shares nothing with `tidegate.core` or the rollup's script.

Events of one asset that stand in one partition of `asset-events` reach a round in that order; between partitions and
between assets any order is legal, and so is any moment for a deadline or a person. So there is no one right answer, but
a set of them, and it is met exactly: from the outcome follows what must have come before what (`must_precede`: members
before what ended their round, one round before the next, the replaced before its replacement, the late after the
firing). Together with the order of the logs that must be free of circles, or no legal order explains the outcome. If it
is, one such order is taken and the rules are applied to it, by hand: what comes out must be the outcome, no more and no
less. Every order that satisfies the constraints gives the same, since they fix which events fill which round and what
ends it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Literal, NamedTuple

from tests.chaos.jobs import Facts

Identity = tuple[str, str]
"""(source, id) of an event."""

How = Literal["run", "failed", "dropped", "discarded"]


class Arrival(NamedTuple):
    """One event as a round sees it."""

    event: Identity
    key: str
    """The event's own key."""
    asset: int
    member: int


class Ended(NamedTuple):
    """How a round ended: with a run command, or with the audit entry of a deadline or a person."""

    generation: int
    """Of the run; 0 where there was none."""
    members: frozenset[tuple[int, int, Identity]]
    """(asset, member, event)."""
    completed_by: str | None
    """Id of an event; None where a deadline or a person ended it."""
    how: How = "run"


class Cut(NamedTuple):
    """A deadline or a person ends the open round."""

    how: How


class Withdrawal(NamedTuple):
    """A person takes an event out of the open round."""

    event: Identity


@dataclass(slots=True)
class Outcome:
    """What came out for one (job, key); audit entries by the event that they are about."""

    ended: list[Ended] = field(default_factory=list)
    """Those without a run in the order in which they happened."""
    replaced: list[tuple[Identity, str]] = field(default_factory=list)
    """(the new event, the id of the replaced one)."""
    late: set[Identity] = field(default_factory=set)
    rerun: set[Identity] = field(default_factory=set)
    withdrawn: list[Identity] = field(default_factory=list)
    """Events; in a job that has such, no round is discarded."""
    open: frozenset[tuple[int, int, Identity]] | None = None
    """What waits in the open round; None where nobody looked."""


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
    # A discarded round leaves nothing behind, and after one that ended otherwise none is discarded (see jobs.py).
    ended = sorted(outcome.ended, key=lambda each: (each.how != "discarded", each.generation))
    generations = [each.generation for each in ended if each.how == "run"]
    if generations != list(range(1, len(generations) + 1)):
        judged.faults.append(f"generations are {generations}")
    used: set[Identity] = set()
    for each in ended:
        events = {event for _, _, event in each.members}
        is_again = facts.after == "refire" and each.generation > 1
        new = {event for event in events if event[1] == each.completed_by} if is_again else events
        if again := used & new:
            judged.doubled += 1
            judged.faults.append(f"{each.how} {each.generation} starts again from {sorted(again)[:3]}")
        used |= events
        if each.completed_by is not None and each.completed_by not in {event[1] for event in events}:
            judged.faults.append(
                f"run {each.generation} was completed by {each.completed_by!r}, no event of it"
            )
        if strangers := events - arrivals.keys():
            judged.faults.append(
                f"{each.how} {each.generation} names {sorted(strangers)[:3]}, which never came for it"
            )
    if strangers := set(outcome.withdrawn) - arrivals.keys():
        judged.faults.append(f"withdrawn were {sorted(strangers)[:3]}, which never came for it")
    if judged.faults:
        # No order can be told from such an outcome; count at least what any order must give.
        judged.lost = max(_fewest(facts, arrivals, outcome), *generations, 0) - len(set(generations))
        return judged
    before, cuts, doomed = _must_precede(facts, arrivals, streams, ended, outcome)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        around = [event[1] for event in error.args[1]]
        judged.faults.append(f"no order of the events explains the runs and audit entries: {around[:6]}")
        judged.lost = max(0, _fewest(facts, arrivals, outcome) - len(ended))
        return judged
    steps = [cuts[each] if each in cuts else arrivals[each] for each in order]
    expected = fold(facts, steps, doomed, frozenset(outcome.withdrawn))
    # What waits under a deadline when nothing is left to do waits for ever.
    judged.lost = max(0, len(expected.ended) - len(ended)) + (
        facts.deadline is not None and bool(expected.open)
    )
    _compare("runs", ended, expected.ended, judged)
    _compare("member-replaced", outcome.replaced, expected.replaced, judged)
    _compare("member-late", outcome.late, expected.late, judged)
    _compare("member-rerun", outcome.rerun, expected.rerun, judged)
    _compare("member-withdrawn", outcome.withdrawn, expected.withdrawn, judged)
    if outcome.open is not None:
        _compare("open", outcome.open, expected.open or (), judged)
    return judged


def _compare(what: str, found: Iterable[object], right: Iterable[object], judged: Judged) -> None:
    missing, extra = set(right) - set(found), set(found) - set(right)
    if missing or extra:
        judged.faults.append(f"{what}: {list(missing)[:2]} missing, {list(extra)[:2]} unexpected")


def _must_precede(
    facts: Facts,
    arrivals: Mapping[Identity, Arrival],
    streams: Iterable[Sequence[Identity]],
    ended: Sequence[Ended],
    outcome: Outcome,
) -> tuple[dict[Identity, set[Identity]], dict[Identity, Cut], frozenset[Identity]]:
    """By event and cut, what must have come before it; the cuts; and the events that left a round before it ended.

    Those are what was withdrawn, and what was replaced by it. When that was, nobody can tell.
    """
    cuts: dict[Identity, Cut] = {}
    before: dict[Identity, set[Identity]] = {event: set() for event in arrivals}
    for stream in streams:
        for first, second in pairwise(stream):
            before[second].add(first)
    by_id = {event[1]: event for event in arrivals}  # cousins are only among events that nothing replaces
    round_of: dict[Identity, int] = {}
    ending: list[Identity] = []
    for number, each in enumerate(ended):
        events = {event for _, _, event in each.members}
        if each.completed_by is None:
            ending.append(("/cut", str(number)))
            before[ending[-1]], cuts[ending[-1]] = set(), Cut(each.how)
        else:
            ending.append(next(event for event in events if event[1] == each.completed_by))
        if number:
            before[ending[-1]].add(ending[-2])
        for event in events:
            round_of.setdefault(event, number)
    if ended:
        round_of.update(dict.fromkeys(outcome.withdrawn, 0))
    replaced_by = {
        old: new
        for new, old_id in outcome.replaced
        if new in arrivals and (old := by_id.get(old_id)) is not None and old != new
    }
    doomed = set(outcome.withdrawn)
    for old, new in replaced_by.items():
        before[new].add(old)
        end, hops = new, 0
        while end in replaced_by and end not in round_of and hops <= len(replaced_by):
            end, hops = replaced_by[end], hops + 1
        if end in round_of:
            round_of.setdefault(old, round_of[end])
        if end in outcome.withdrawn:
            doomed.add(old)
    for event in outcome.withdrawn:
        for other in arrivals.keys() - doomed:  # it neither replaced nor was replaced, so it came later
            if arrivals[other][1:] == arrivals[event][1:]:
                before[other].add(event)
    ignored = outcome.late | outcome.rerun
    marked = next((end for end, each in zip(ending, ended, strict=True) if each.how != "discarded"), None)
    for event in arrivals:
        if event in round_of:
            number = round_of[event]
            if event != ending[number]:
                before[ending[number]].add(event)
            if number:
                before[event].add(ending[number - 1])
        elif event in ignored:
            if marked is not None:
                before[event].add(marked)
        elif ending:
            before[event].add(ending[-1])
    return before, cuts, frozenset(doomed)


def _fewest(facts: Facts, arrivals: Mapping[Identity, Arrival], outcome: Outcome) -> int:
    """How many runs there are in every order, at least: the rounds that the rarest member allows."""
    if facts.deadline or outcome.withdrawn or any(each.how != "run" for each in outcome.ended):
        return 0
    members: dict[int, set[int]] = defaultdict(set)
    for arrival in arrivals.values():
        members[arrival.asset].add(arrival.member)
    if any(len(members[asset]) < facts.needed for asset in range(len(facts.assets))):
        return 0
    return len(arrivals) if facts.size == 1 and len(facts.assets) == 1 else 1


_Present = dict[tuple[int, int], dict[str, Identity]]


def fold(
    facts: Facts,
    steps: Iterable[Arrival | Cut | Withdrawal],
    doomed: frozenset[Identity] = frozenset(),
    withdrawn: frozenset[Identity] = frozenset(),
) -> Outcome:
    """The rules of rounds applied to events in an order: one round after the other is filled and ends.

    Where it is only known that events left their round sometime before it ended, they are `doomed`, and do not count;
    those of them that are `withdrawn` are so at once.
    """
    out = Outcome()
    present: _Present = {}
    leaving: dict[tuple[int, int, str], Identity] = {}
    fired: _Present | None = None
    for step in steps:
        if isinstance(step, Cut):
            if present:
                generation = _runs(out) + 1 if step.how == "run" else 0
                out.ended.append(Ended(generation, _members(present), None, step.how))
                fired, present = (fired if step.how == "discarded" else present), {}
            continue
        if isinstance(step, Withdrawal):
            for place, by_key in list(present.items()):
                for key, event in list(by_key.items()):
                    if event == step.event:
                        out.withdrawn.append(event)
                        del by_key[key]
                if not by_key:
                    del present[place]
            continue
        event, key, asset, member = step
        place = (asset, member)
        if event in doomed:
            if old := leaving.pop((*place, key), None):
                out.replaced.append((event, old[1]))
            if event in withdrawn:
                out.withdrawn.append(event)
            else:
                leaving[*place, key] = event
            continue
        if fired is not None and facts.after != "new_round":
            if place not in fired:
                out.late.add(event)
                continue
            out.rerun.add(event)
            if facts.after == "refire":
                fired[place][key] = event
                out.ended.append(Ended(_runs(out) + 1, _members(fired), event[1]))
            continue
        if place in present:
            if old := present[place].get(key):
                out.replaced.append((event, old[1]))
            present[place][key] = event
            continue
        present[place] = {key: event}
        arrived = [sum(one == index for one, _ in present) for index in range(len(facts.assets))]
        if min(arrived) >= facts.needed:
            out.ended.append(Ended(_runs(out) + 1, _members(present), event[1]))
            fired, present = present, {}
    out.open = _members(present)
    return out


def _runs(out: Outcome) -> int:
    return sum(each.how == "run" for each in out.ended)


def _members(present: _Present) -> frozenset[tuple[int, int, Identity]]:
    return frozenset((*place, event) for place, by_key in present.items() for event in by_key.values())
