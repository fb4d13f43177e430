"""The oracle's rounds accept every legal outcome and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.jobs import FACTS, Facts
from tests.chaos.rounds import Arrival, Cut, Ended, How, Identity, Outcome, Withdrawal, fold, judge

PAIR, MOST = FACTS["pair"], Facts(("only",), "day", 4, 2, "ignore")
BUCKETS = Facts(("only",), "segments", 3, 2)


def _id(name: str) -> Identity:
    return ("/s", name)


def _arrival(name: str, asset: int = 0, member: int = 0, key: str = "k") -> Arrival:
    return Arrival(_id(name), key, asset, member)


def _fired(generation: int, completed_by: str, *members: tuple[int, int, str]) -> Ended:
    found = frozenset((asset, member, _id(name)) for asset, member, name in members)
    return Ended(generation, found, completed_by)


def _faults(facts: Facts, arrivals: Sequence[Arrival], streams: Sequence[str], outcome: Outcome) -> list[str]:
    by_id = {each.event: each for each in arrivals}
    return judge(facts, by_id, [[_id(name) for name in each.split()] for each in streams], outcome).faults


A1, A2, B1 = _arrival("a1"), _arrival("a2"), _arrival("b1", asset=1)


@pytest.mark.parametrize(
    ("outcome", "is_legal"),
    [
        # a1 b1 a2, a1 a2 b1 and b1 a1 a2 are the legal orders
        (Outcome([_fired(1, "b1", (0, 0, "a1"), (1, 0, "b1"))]), True),
        (Outcome([_fired(1, "a1", (0, 0, "a1"), (1, 0, "b1"))]), True),
        (Outcome([_fired(1, "b1", (0, 0, "a2"), (1, 0, "b1"))], [(_id("a2"), "a1")]), True),
        (Outcome([_fired(1, "a2", (0, 0, "a2"), (1, 0, "b1"))], [(_id("a2"), "a1")]), False),
        (Outcome([_fired(1, "b1", (0, 0, "a2"), (1, 0, "b1"))]), False),
        (Outcome(), False),
    ],
)
def test_events_of_two_assets_may_come_in_any_order_but_each_asset_keeps_its_own(
    outcome: Outcome, is_legal: bool
) -> None:
    assert (_faults(PAIR, [A1, A2, B1], ["a1 a2", "b1"], outcome) == []) is is_legal


def test_an_event_without_run_and_audit_entry_is_noticed() -> None:
    arrivals = [_arrival("a", member=0), _arrival("b", member=1), _arrival("c", member=2)]
    outcome = Outcome([_fired(1, "b", (0, 0, "a"), (0, 1, "b"))])
    assert "late" in _faults(MOST, arrivals, ["a b c"], outcome)[0]
    assert _faults(MOST, arrivals, ["a b c"], replace(outcome, late={_id("c")})) == []
    assert _faults(MOST, arrivals, ["a b c"], replace(outcome, rerun={_id("c")})) != []


def test_a_run_that_never_came_is_lost() -> None:
    by_id = {each.event: each for each in (A1, B1)}
    assert judge(PAIR, by_id, [], Outcome()).lost == 1


def test_a_run_that_came_under_two_generations_is_doubled() -> None:
    by_id = {each.event: each for each in (A1, B1)}
    twice = [_fired(number, "b1", (0, 0, "a1"), (1, 0, "b1")) for number in (1, 2)]
    assert judge(PAIR, by_id, [], Outcome(twice)).doubled == 1


def _cut(generation: int, how: How, *members: tuple[int, int, str]) -> Ended:
    return Ended(generation, _fired(generation, "", *members).members, None, how)


DAY = Facts(("only",), "day", 4, 4, "ignore")
M1, M2, M2B, M3 = (_arrival(name, member=int(name[1])) for name in ("m1", "m2", "m2b", "m3"))
OPEN = frozenset({(0, 1, _id("m1")), (0, 2, _id("m2"))})


@pytest.mark.parametrize(
    ("outcome", "is_legal"),
    [
        # m1 m2 m3 in this order; what ended the round came at any moment, and only there
        (Outcome([_cut(1, "run", (0, 1, "m1"), (0, 2, "m2"))], late={_id("m3")}), True),
        (Outcome([_cut(1, "run", (0, 1, "m1"))], late={_id("m2"), _id("m3")}), True),
        (Outcome([_cut(1, "run", (0, 1, "m1"))], late={_id("m2")}), False),
        (Outcome([_cut(1, "run", (0, 1, "m1"), (0, 3, "m3"))], late={_id("m2")}), False),
        (Outcome([_cut(0, "dropped", (0, 1, "m1"))], late={_id("m2"), _id("m3")}), True),
        (
            Outcome(
                [_cut(0, "discarded", (0, 1, "m1"))], open=frozenset({(0, 2, _id("m2")), (0, 3, _id("m3"))})
            ),
            True,
        ),
        (Outcome([_cut(0, "discarded", (0, 1, "m1"))], late={_id("m2"), _id("m3")}), False),
        (Outcome(withdrawn=[_id("m3")], open=OPEN), True),
        (Outcome(open=OPEN), False),
    ],
)
def test_a_deadline_or_a_person_may_come_at_any_moment_but_every_event_has_its_fate(
    outcome: Outcome, is_legal: bool
) -> None:
    assert (_faults(DAY, [M1, M2, M3], ["m1 m2 m3"], outcome) == []) is is_legal


def test_what_is_withdrawn_comes_no_more_and_what_follows_under_its_key_counts() -> None:
    both = [M2, M2B]
    found = Outcome(withdrawn=[_id("m2")], open=frozenset({(0, 2, _id("m2b"))}))
    assert _faults(DAY, both, ["m2 m2b"], found) == []
    assert _faults(DAY, both, ["m2b m2"], found) != []


def test_a_round_that_refires_names_the_newest_event_of_each_key_every_time() -> None:
    again = Facts(("only",), "day", 2, 2, "refire")
    a, b, c = _arrival("a", member=0), _arrival("b", member=1), _arrival("c", member=1)
    first, second = _fired(1, "b", (0, 0, "a"), (0, 1, "b")), _fired(2, "c", (0, 0, "a"), (0, 1, "c"))
    stale = _fired(2, "c", (0, 0, "a"), (0, 1, "b"), (0, 1, "c"))
    rerun = {_id("c")}
    assert _faults(again, [a, b, c], ["a b c"], Outcome([first, second], rerun=rerun)) == []
    assert _faults(again, [a, b, c], ["a b c"], Outcome([first, stale], rerun=rerun)) != []
    assert _faults(again, [a, b, c], ["a b c"], Outcome([first], rerun=rerun)) != []
    twice = Outcome([first, second, _fired(3, "c", (0, 0, "a"), (0, 1, "c"))], rerun=rerun)
    assert judge(again, {each.event: each for each in (a, b, c)}, [], twice).doubled == 1


Step = Arrival | Cut | Withdrawal


@st.composite
def _histories(draw: st.DrawFn) -> tuple[Facts, list[Arrival], list[list[Identity]], list[Step]]:
    """Streams of events, mixed in one legal order, with what else happened to their rounds."""
    cases: list[tuple[Facts, tuple[How | Literal["withdrawn"], ...]]] = [
        (PAIR, ("run",)),
        (MOST, ("run", "discarded")),
        (MOST, ("withdrawn", "run")),
        (MOST, ("dropped",)),
        (DAY, ("failed",)),
        (BUCKETS, ("run",)),
        (Facts(("a", "b"), "day", 3, 2, "ignore"), ("discarded",)),
        (Facts(("only",), "day", 3, 2, "refire"), ("run",)),
    ]
    facts, hows = draw(st.sampled_from(cases))
    number = draw(st.integers(1, 3))
    chosen = draw(
        st.lists(
            st.tuples(
                st.integers(0, number - 1),
                st.integers(0, len(facts.assets) - 1),
                st.integers(0, facts.size - 1),
                st.sampled_from("xy") if facts.kind == "day" else st.just("x"),
            ),
            max_size=14,
        )
    )
    order = [
        Arrival(_id(f"e{n}"), f"{member}{key}", asset, member)
        for n, (_, asset, member, key) in enumerate(chosen)
    ]
    streams: dict[tuple[int, int], list[Identity]] = {}
    for (partition, asset, *_), arrival in zip(chosen, order, strict=True):
        streams.setdefault((partition, asset), []).append(arrival.event)
    steps: list[Step] = []
    for n, arrival in enumerate(order):
        steps.append(arrival)
        if draw(st.integers(0, 3)) == 0:
            how = draw(st.sampled_from(hows))
            event = order[draw(st.integers(0, n))].event
            steps.append(Withdrawal(event) if how == "withdrawn" else Cut(how))
    return facts, order, list(streams.values()), steps


@settings(max_examples=200)
@given(_histories())
def test_what_comes_out_of_any_legal_order_is_accepted(
    history: tuple[Facts, list[Arrival], list[list[Identity]], list[Step]],
) -> None:
    facts, order, streams, steps = history
    judged = judge(facts, {each.event: each for each in order}, streams, fold(facts, steps))
    assert (judged.lost, judged.doubled, judged.faults) == (0, 0, [])


@settings(max_examples=200)
@given(_histories(), st.data())
def test_an_outcome_that_lacks_anything_is_refused(
    history: tuple[Facts, list[Arrival], list[list[Identity]], list[Step]], data: st.DataObject
) -> None:
    facts, order, _, steps = history
    outcome = fold(facts, steps)
    waiting = outcome.open or frozenset()
    ways = [
        *(replace(outcome, ended=[one for one in outcome.ended if one != each]) for each in outcome.ended),
        *(
            replace(outcome, replaced=[one for one in outcome.replaced if one != each])
            for each in outcome.replaced
        ),
        *(replace(outcome, late=outcome.late - {each}) for each in sorted(outcome.late)),
        *(replace(outcome, rerun=outcome.rerun - {each}) for each in sorted(outcome.rerun)),
        *(
            replace(outcome, withdrawn=[one for one in outcome.withdrawn if one != each])
            for each in outcome.withdrawn
        ),
        *(replace(outcome, open=waiting - {each}) for each in sorted(waiting)),
    ]
    if ways:
        poorer = data.draw(st.sampled_from(ways))
        whole_order = [[each.event for each in order]]  # with several streams another order may explain less
        judged = judge(facts, {each.event: each for each in order}, whole_order, poorer)
        assert judged.lost + len(judged.faults) > 0
