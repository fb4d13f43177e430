"""What an event does whose round has fired (docs/rules.md, Meaning, rerun policy)."""

from dataclasses import replace

import pytest

from tidegate.core.audit import AuditKind
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


def test_refire_knows_every_event_of_the_set_as_long_as_the_newest_mark() -> None:
    """So that no set of events fires twice, however often the round was run again."""
    horizon = Rules(((0,),), frozenset({0})).horizon_ms
    firings, outcomes, _ = run(
        rules(RerunPolicy.REFIRE),
        arrival(0, "a"),
        arrival(1, "b"),
        arrival(0, "c", at=horizon),
        arrival(1, "b", at=2 * horizon),
        arrival(0, "c", at=2 * horizon),
    )
    assert len(firings) == 2
    assert outcomes[3:] == [Outcome.DUPLICATE, Outcome.DUPLICATE]


def test_refire_keeps_events_with_other_keys_of_the_member() -> None:
    finer = [
        replace(arrival(0, id), event=Event(key, id, "/test")) for id, key in (("c", "fine"), ("d", "fine"))
    ]
    firings, _, _ = run(rules(RerunPolicy.REFIRE), arrival(0, "a"), arrival(1, "b"), *finer)
    assert [[each.id for each in firing.members[0, 0]] for firing in firings] == [
        ["a"],
        ["a", "c"],
        ["a", "d"],
    ]


def test_a_round_that_fired_under_another_policy_is_not_run_again_without_its_events() -> None:
    _, _, fired = run(rules(), arrival(0, "a"), arrival(1, "b"))
    step = fold(fired, arrival(0, "c"), rules(RerunPolicy.REFIRE))
    assert (step.round, step.outcome, step.firing) == (fired, Outcome.RERUN, None)
    assert "starts no run" in step.audit[0].message


def test_an_asset_whose_mapper_reads_no_date_opens_no_round_beside_dated_ones() -> None:
    """Hourly events in a day and a daily asset by its own key: the day's key is a date, whoever reads it."""
    beside = Rules(((0, 1),), frozenset({0}))
    daily = [replace(arrival(0, id, dated=False), asset=1, size=1, needed=1) for id in ("x", "y")]
    firings, outcomes, state = run(beside, daily[0], arrival(0, "a"), arrival(1, "b"), daily[1])
    assert [firing.generation for firing in firings] == [1]
    assert outcomes[-1] is Outcome.RERUN
    assert state.members == {}


# What the audit log is told


def test_every_outcome_but_progress_is_noted_with_the_event_that_gave_way() -> None:
    state = Round()
    notes = []
    for each in (
        arrival(0, "a"),
        arrival(0, "b"),
        arrival(0, "b"),
        arrival(1, "c"),
        arrival(1, "d"),
        arrival(2, "e"),
    ):
        step = fold(state, each, rules(RerunPolicy.REFIRE))
        state, told = step.round, step.audit
        notes.append([(note.kind.value, note.event_id, note.older_id, note.is_run) for note in told])
    assert notes == [
        [],
        [("member-replaced", "b", "a", False)],
        [("duplicate-event", "b", None, False)],
        [],
        [("member-rerun", "d", "c", True)],
        [("member-late", "e", None, False)],
    ]


def test_a_window_with_too_few_members_is_noted_at_its_first_and_only_then() -> None:
    """28 days under a policy that asks for 30, beside an asset that can come in full."""
    both = Rules(((0,), (1,)), frozenset({0, 1}))
    february = [Arrival(Event(f"d{n}", f"e{n}", "/test"), 0, n, 28, 30, 0) for n in range(28)]
    other = Arrival(Event("x", "x", "/test"), 1, 0, 2, 2, 0)
    state, noted = Round(), []
    for each in (other, *february):
        step = fold(state, each, both)
        state = step.round
        assert step.firing is None
        noted += [(note.kind, each.event.id, note.window) for note in step.audit]
    assert noted == [(AuditKind.WINDOW_UNSATISFIABLE, "e0", (28, 30))]


def test_every_round_of_a_window_with_too_few_members_is_noted() -> None:
    either = Rules(((0,), (1,)), frozenset({0, 1}), rerun_policy=RerunPolicy.NEW_ROUND)
    few = [Arrival(Event("d", f"e{n}", "/test"), 0, 0, 2, 5, 0) for n in range(2)]
    other = Arrival(Event("x", "x", "/test"), 1, 0, 1, 1, 0)
    state, noted = Round(), []
    for each in (few[0], other, few[1]):
        step = fold(state, each, either)
        state = step.round
        noted += [note.event_id for note in step.audit]
    assert noted == ["e0", "e1"]


def test_a_dated_job_may_ask_for_new_rounds() -> None:
    firings, _, _ = run(
        rules(RerunPolicy.NEW_ROUND), arrival(0, "a"), arrival(1, "b"), arrival(0, "c"), arrival(1, "d")
    )
    assert [firing.generation for firing in firings] == [1, 2]
