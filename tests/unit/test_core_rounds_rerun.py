"""What an event does whose round has fired (docs/rules.md, Meaning, rerun policy)."""

import pytest

from tidegate.core.rounds import Arrival, Event, Firing, Outcome, RerunPolicy, Round, Rules, Step, fold


def arrival(member: int, id: str, *, dated: bool = True, at: int = 0, needed: int = 2) -> Arrival:
    return Arrival(Event(f"key-{member}", id, "/test"), 0, member, 3, needed, at, dated)


def run(rules: Rules, *arrivals: Arrival) -> tuple[list[Firing], list[Outcome], Round]:
    state, firings, outcomes = Round(), [], []
    for each in arrivals:
        step: Step = fold(state, each, rules)
        state = step.round
        outcomes.append(step.outcome)
        if step.firing is not None:
            firings.append(step.firing)
    return firings, outcomes, state


def rules(policy: RerunPolicy | None = None) -> Rules:
    return Rules(((0,),), frozenset({0}), rerun_policy=policy)


@pytest.mark.parametrize("policy", [None, RerunPolicy.IGNORE])
def test_a_dated_round_ignores_what_comes_after_it(policy: RerunPolicy | None) -> None:
    firings, outcomes, state = run(
        rules(policy), arrival(0, "a"), arrival(1, "b"), arrival(1, "c"), arrival(2, "d")
    )
    assert len(firings) == 1
    assert outcomes[2:] == [Outcome.RERUN, Outcome.LATE]
    assert state.members == {}


def test_a_round_without_a_date_begins_again() -> None:
    firings, _, state = run(
        rules(),
        *(
            arrival(member, id, dated=False)
            for member, id in ((0, "a"), (1, "b"), (2, "c"), (0, "d"), (1, "e"))
        ),
    )
    assert [firing.generation for firing in firings] == [1, 2]
    assert [sorted(firing.members) for firing in firings] == [[(0, 0), (0, 1)], [(0, 0), (0, 2)]]
    assert list(state.members) == [(0, 1)]


def test_a_round_without_a_date_is_not_begun_by_an_event_that_it_had() -> None:
    firings, outcomes, state = run(
        rules(), *(arrival(member, id, dated=False) for member, id in ((0, "a"), (1, "b"), (0, "a")))
    )
    assert len(firings) == 1
    assert outcomes[-1] is Outcome.DUPLICATE
    assert state.members == {}


def test_refire_runs_at_once_with_the_newest_events() -> None:
    firings, outcomes, _ = run(
        rules(RerunPolicy.REFIRE),
        arrival(0, "a"),
        arrival(1, "b"),
        arrival(0, "c"),
        arrival(2, "d"),
        arrival(0, "e"),
    )
    assert [firing.generation for firing in firings] == [1, 2, 3]
    assert [each.id for each in firings[1].members[0, 0]] == ["c"]
    assert [each.id for each in firings[2].members[0, 0]] == ["e"]
    assert [each.id for each in firings[2].members[0, 1]] == ["b"]
    assert outcomes[3] is Outcome.LATE


def test_refire_knows_the_events_that_it_has_used() -> None:
    firings, outcomes, _ = run(
        rules(RerunPolicy.REFIRE),
        arrival(0, "a"),
        arrival(1, "b"),
        arrival(0, "c"),
        arrival(0, "c"),
        arrival(0, "a"),
    )
    assert len(firings) == 2
    assert outcomes[3:] == [Outcome.DUPLICATE, Outcome.DUPLICATE]


def test_a_dated_job_may_ask_for_new_rounds() -> None:
    firings, _, _ = run(
        rules(RerunPolicy.NEW_ROUND), arrival(0, "a"), arrival(1, "b"), arrival(0, "c"), arrival(1, "d")
    )
    assert [firing.generation for firing in firings] == [1, 2]
