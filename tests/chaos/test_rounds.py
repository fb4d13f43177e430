"""The oracle's rounds accept every legal outcome and nothing else."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.jobs import FACTS, Facts
from tests.chaos.rounds import Arrival, Fired, Identity, Outcome, fold, judge

PAIR, MOST = FACTS["pair"], Facts(("only",), "day", 4, 2, "ignore")
BUCKETS = Facts(("only",), "segments", 3, 2)


def _id(name: str) -> Identity:
    return ("/s", name)


def _arrival(name: str, asset: int = 0, member: int = 0, key: str = "k") -> Arrival:
    return Arrival(_id(name), key, asset, member)


def _fired(generation: int, completed_by: str, *members: tuple[int, int, str]) -> Fired:
    found = frozenset((asset, member, _id(name)) for asset, member, name in members)
    return Fired(generation, found, completed_by)


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


@st.composite
def _histories(draw: st.DrawFn) -> tuple[Facts, list[Arrival], list[list[Identity]]]:
    """Streams of events, mixed in one legal order."""
    facts = draw(st.sampled_from([PAIR, MOST, BUCKETS, Facts(("a", "b"), "day", 3, 2, "ignore")]))
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
    return facts, order, list(streams.values())


@settings(max_examples=150, deadline=None)
@given(_histories())
def test_what_comes_out_of_any_legal_order_is_accepted(
    history: tuple[Facts, list[Arrival], list[list[Identity]]],
) -> None:
    facts, order, streams = history
    judged = judge(facts, {each.event: each for each in order}, streams, fold(facts, order))
    assert (judged.lost, judged.doubled, judged.faults) == (0, 0, [])


@settings(max_examples=150, deadline=None)
@given(_histories(), st.data())
def test_an_outcome_that_lacks_anything_is_refused(
    history: tuple[Facts, list[Arrival], list[list[Identity]]], data: st.DataObject
) -> None:
    facts, order, _ = history
    outcome = fold(facts, order)
    ways = [
        *(replace(outcome, fired=[one for one in outcome.fired if one != each]) for each in outcome.fired),
        *(
            replace(outcome, replaced=[one for one in outcome.replaced if one != each])
            for each in outcome.replaced
        ),
        *(replace(outcome, late=outcome.late - {each}) for each in sorted(outcome.late)),
        *(replace(outcome, rerun=outcome.rerun - {each}) for each in sorted(outcome.rerun)),
    ]
    if ways:
        poorer = data.draw(st.sampled_from(ways))
        whole_order = [[each.event for each in order]]  # with several streams another order may explain less
        judged = judge(facts, {each.event: each for each in order}, whole_order, poorer)
        assert judged.lost + len(judged.faults) > 0
