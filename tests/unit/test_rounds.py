"""The round as a pure fold: what fires, when, how often, and what becomes of everything else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.rounds import Arrival, Event, Firing, Outcome, Round, Rules, fold

HORIZON = 1_000
Place = tuple[int, int]


@dataclass
class Story:
    """What a sequence of arrivals led to."""

    round: Round
    outcomes: list[Outcome]
    firings: list[Firing]


def tell(arrivals: Iterable[Arrival], rules: Rules, start: Round | None = None) -> Story:
    story = Story(start or Round(), [], [])
    for arrival in arrivals:
        step = fold(story.round, arrival, rules)
        story.round = step.round
        story.outcomes.append(step.outcome)
        story.firings += [step.firing] if step.firing else []
    return story


def one(
    member: int = 0, event_id: str = "", *, asset: int = 0, size: int = 3, at: int = 0, key: str = ""
) -> Arrival:
    event = Event(key or f"k{asset}.{member}", event_id or f"e{asset}.{member}", "s")
    return Arrival(event, asset, member, size, size, at)


def windowed(*sizes: int) -> Rules:
    """Every asset in a rollup, all of them needed."""
    return Rules((tuple(range(len(sizes))),), frozenset(range(len(sizes))), HORIZON)


def whole(*sizes: int) -> list[Arrival]:
    """One event for each member."""
    return [one(n, asset=asset, size=size) for asset, size in enumerate(sizes) for n in range(size)]


DAY = windowed(3)
PLAIN = Rules(((0,),), frozenset(), HORIZON)
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@given(sizes, st.data())
def test_a_window_fires_once_with_every_member_whatever_the_order(
    sizes: tuple[int, ...], data: st.DataObject
) -> None:
    arrivals = whole(*sizes)
    shuffled = data.draw(st.permutations(arrivals))
    story = tell(shuffled, windowed(*sizes))
    assert story.firings == [Firing(1, {(a.asset, a.member): (a.event,) for a in arrivals})]
    assert set(story.outcomes) == {Outcome.COUNTED}
    assert story.outcomes[-1] is Outcome.COUNTED
    assert not story.round.members


@given(sizes, st.data())
def test_repeats_and_replacements_never_change_which_members_fire(
    sizes: tuple[int, ...], data: st.DataObject
) -> None:
    arrivals = whole(*sizes)
    again = data.draw(st.lists(st.sampled_from(arrivals), max_size=6))
    newer = [replace(each, event=each.event._replace(id=each.event.id + "'")) for each in again]
    story = tell(data.draw(st.permutations([*arrivals, *again, *newer])), windowed(*sizes))
    (firing,) = story.firings
    assert set(firing.members) == {(a.asset, a.member) for a in arrivals}
    assert all(len(kept) == 1 for kept in firing.members.values())
    assert firing.generation == 1


@given(sizes, st.data())
def test_a_window_that_lacks_a_member_never_fires(sizes: tuple[int, ...], data: st.DataObject) -> None:
    arrivals = whole(*sizes)
    missing = data.draw(st.sampled_from(arrivals))
    rest = [each for each in arrivals if each is not missing]
    story = tell(data.draw(st.permutations(rest + rest)), windowed(*sizes))
    assert not story.firings
    assert set(story.round.members) == {(a.asset, a.member) for a in rest}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.sampled_from(["", "x"])), max_size=12)
)
def test_everything_that_arrives_is_in_the_round_or_replaced_or_said_to_be_something_else(
    drawn: list[tuple[int, str, str]],
) -> None:
    arrivals = [one(member, event_id, size=9, key=f"k{member}{rest}") for member, event_id, rest in drawn]
    story = tell(arrivals, windowed(9))
    held = {event.identity for kept in story.round.members.values() for event in kept} | story.round.replaced
    for arrival, outcome in zip(arrivals, story.outcomes, strict=True):
        assert arrival.event.identity in held
        assert outcome in (Outcome.COUNTED, Outcome.KEPT, Outcome.REPLACED, Outcome.DUPLICATE)
    for (_, member), kept in story.round.members.items():
        assert len({event.key for event in kept}) == len(kept)
        assert all(event.key in (f"k{member}", f"k{member}x") for event in kept)


@given(st.permutations(range(4)), st.integers(1, 4))
def test_a_round_fires_at_the_arrival_that_makes_enough_and_not_before(
    order: Sequence[int], needed: int
) -> None:
    arrivals = [replace(one(n, size=4), needed=needed) for n in order]
    story = tell(arrivals, windowed(4))
    assert [len(firing.members) for firing in story.firings] == [needed]
    assert story.outcomes == [Outcome.COUNTED] * needed + [Outcome.LATE] * (4 - needed)


# Several events for one member (D21, D23)


def test_an_event_with_the_same_key_replaces_the_older_one() -> None:
    story = tell([one(0, "old"), one(0, "new"), one(0, "old"), one(1), one(2)], DAY)
    assert story.outcomes[:3] == [Outcome.COUNTED, Outcome.REPLACED, Outcome.DUPLICATE]
    assert [event.id for event in story.firings[0].members[0, 0]] == ["new"]


def test_events_with_different_keys_are_all_kept_and_the_member_counts_once() -> None:
    story = tell(
        [one(0, "a", key="09:15"), one(0, "b", key="09:30"), one(0, "c", key="09:30"), one(1), one(2)], DAY
    )
    assert story.outcomes[:3] == [Outcome.COUNTED, Outcome.KEPT, Outcome.REPLACED]
    assert [event.id for event in story.firings[0].members[0, 0]] == ["a", "c"]


def test_an_asset_without_rollup_beside_one_counts_once_and_its_newest_event_stands() -> None:
    rules = Rules(((0, 1),), frozenset({0}), HORIZON)
    beside = [one(0, name, asset=1, size=1, key=f"key {name}") for name in ("first", "second", "third")]
    story = tell([*beside[:2], *whole(2)[:1], beside[2], *whole(2)[1:]], rules)
    assert story.outcomes[:4] == [Outcome.COUNTED, Outcome.REPLACED, Outcome.COUNTED, Outcome.REPLACED]
    assert [event.id for event in story.firings[0].members[1, 0]] == ["third"]


def test_in_a_job_without_rollups_events_with_other_keys_wait_beside_each_other() -> None:
    rules = Rules(((0, 1),), frozenset(), HORIZON)
    first, second, other = (
        one(0, "a", size=1, key="x"),
        one(0, "b", size=1, key="y"),
        one(0, "c", asset=1, size=1),
    )
    story = tell([first, second, other], rules)
    assert story.outcomes == [Outcome.COUNTED, Outcome.KEPT, Outcome.COUNTED]
    assert [event.id for event in story.firings[0].members[0, 0]] == ["a", "b"]


# After firing


@given(st.lists(st.sampled_from(whole(3)), max_size=8), st.integers(0, HORIZON))
def test_a_fired_window_never_fires_again_within_the_horizon(later: list[Arrival], after_ms: int) -> None:
    fired = tell(whole(3), DAY).round
    fresh = [
        replace(each, at=after_ms, event=each.event._replace(id=f"new {n}")) for n, each in enumerate(later)
    ]
    repeats = [replace(each, at=after_ms) for each in later]
    story = tell([*fresh, *repeats], DAY, fired)
    assert not story.firings
    assert story.round == fired
    assert story.outcomes == [Outcome.RERUN] * len(fresh) + [Outcome.DUPLICATE] * len(repeats)


def test_a_replaced_event_is_a_duplicate_after_the_firing_too() -> None:
    fired = tell([one(0, "old"), one(0, "new"), one(1), one(2)], DAY).round
    assert tell([one(0, "old")], DAY, fired).outcomes == [Outcome.DUPLICATE]


def test_a_member_that_was_missing_is_late_and_one_that_was_in_is_a_rerun() -> None:
    partial = [replace(each, needed=2) for each in whole(3)]
    fired = tell(partial[:2], DAY).round
    story = tell([one(0, "again"), one(2)], DAY, fired)
    assert story.outcomes == [Outcome.RERUN, Outcome.LATE]
    assert story.round == fired


def test_a_member_of_a_clause_that_was_not_needed_is_late() -> None:
    rules = Rules(((0, 1), (2,)), frozenset({0, 1, 2}), HORIZON)
    story = tell([one(0, asset=2, size=1), one(0, asset=0, size=1), one(0, "again", asset=2, size=1)], rules)
    assert story.outcomes == [Outcome.COUNTED, Outcome.LATE, Outcome.RERUN]


@given(st.integers(1, 6))
def test_a_job_on_one_asset_fires_on_every_new_event_with_rising_generations(count: int) -> None:
    arrivals = [one(0, f"e{n}", size=1, at=n) for n in range(count)]
    repeated = [each for arrival in arrivals for each in (arrival, arrival)]
    story = tell([*repeated, *arrivals], PLAIN)
    assert [firing.generation for firing in story.firings] == list(range(1, count + 1))
    assert [firing.members[0, 0][0].id for firing in story.firings] == [f"e{n}" for n in range(count)]
    assert story.outcomes.count(Outcome.DUPLICATE) == 2 * count


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from("abcd"), st.integers(0, HORIZON)).map(
            lambda drawn: one(0, drawn[1], asset=drawn[0], size=1, at=drawn[2])
        ),
        max_size=14,
    )
)
def test_no_event_is_in_two_firings_and_generations_count_up(arrivals: list[Arrival]) -> None:
    """Within the horizon, whatever comes twice and in whatever order."""
    story = tell(sorted(arrivals, key=lambda each: each.at), Rules(((0, 1),), frozenset(), HORIZON))
    assert [firing.generation for firing in story.firings] == list(range(1, len(story.firings) + 1))
    in_round = [
        {event.identity for kept in firing.members.values() for event in kept} for firing in story.firings
    ]
    for n, identities in enumerate(in_round):
        assert all(identities.isdisjoint(other) for other in in_round[n + 1 :])


# Expiry, by the time of the records alone (R5)


def test_a_mark_holds_for_the_whole_horizon_and_no_longer() -> None:
    fired = tell([one(0, "a", size=1, at=5)], PLAIN).round
    at_the_end = tell([one(0, "a", size=1, at=5 + HORIZON)], PLAIN, fired)
    assert at_the_end.outcomes == [Outcome.DUPLICATE]
    after = tell([one(0, "a", size=1, at=6 + HORIZON)], PLAIN, fired)
    assert [firing.generation for firing in after.firings] == [1]


def test_a_seen_event_expires_by_its_own_firing_though_the_mark_is_newer() -> None:
    story = tell([one(0, "a", size=1, at=0), one(0, "b", size=1, at=600)], PLAIN)
    again = tell(
        [one(0, "a", size=1, at=HORIZON + 1), one(0, "b", size=1, at=HORIZON + 1)], PLAIN, story.round
    )
    assert again.outcomes == [Outcome.COUNTED, Outcome.DUPLICATE]
    assert [firing.generation for firing in again.firings] == [3]


def test_a_window_opens_anew_once_its_mark_has_expired() -> None:
    fired = tell(whole(3), DAY).round
    story = tell([replace(each, at=HORIZON + 1) for each in whole(3)], DAY, fired)
    assert [firing.generation for firing in story.firings] == [1]


# Conditions


def subsets(assets: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sets(st.integers(0, assets - 1), min_size=1).map(lambda some: tuple(sorted(some)))


@given(st.lists(subsets(4), min_size=1, max_size=4).map(tuple), st.permutations(range(4)))
def test_a_round_fires_at_the_first_clause_that_is_satisfied(
    clauses: tuple[tuple[int, ...], ...], order: Sequence[int]
) -> None:
    story = tell(
        [one(0, asset=asset, size=1) for asset in order], Rules(clauses, frozenset(range(4)), HORIZON)
    )
    first = next((n for n in range(1, 5) if any(set(clause) <= set(order[:n]) for clause in clauses)), None)
    places: list[Place] = [(asset, 0) for asset in order[: first or 0]]
    assert [sorted(firing.members) for firing in story.firings] == ([sorted(places)] if first else [])
