"""Conditions over assets and their clauses (rule R8)."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.conditions import AssetAll, AssetAny, Condition
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import from_plain, plain
from tidegate.definitions import Asset

A, B, C, D = (Asset(name) for name in "abcd")
leaves = st.sampled_from([A, B, C, D])
conditions: st.SearchStrategy[Condition] = st.recursive(
    leaves,
    lambda parts: st.builds(
        lambda kind, some: kind(*some),
        st.sampled_from([AssetAll, AssetAny]),
        st.lists(parts, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


def holds(condition: Condition, present: frozenset[Condition]) -> bool:
    """What the tree says, read directly."""
    if isinstance(condition, AssetAll):
        return all(holds(part, present) for part in condition.conditions)
    if isinstance(condition, AssetAny):
        return any(holds(part, present) for part in condition.conditions)
    return condition in present


@given(conditions)
def test_the_clauses_hold_exactly_where_the_tree_does(condition: Condition) -> None:
    assets, clauses = condition.clauses()
    for some in chain.from_iterable(combinations(range(len(assets)), n) for n in range(len(assets) + 1)):
        present = frozenset(assets[n] for n in some)
        assert any(set(clause) <= set(some) for clause in clauses) == holds(condition, present)


@given(conditions)
def test_no_clause_holds_another_and_all_are_sorted(condition: Condition) -> None:
    assets, clauses = condition.clauses()
    assert list(clauses) == sorted(clauses)
    for clause in clauses:
        assert list(clause) == sorted(set(clause))
        assert set(clause) <= set(range(len(assets)))
        assert not any(set(other) < set(clause) for other in clauses)


@given(conditions)
def test_the_assets_are_the_distinct_leaves_in_reading_order(condition: Condition) -> None:
    assets, _ = condition.clauses()
    assert assets == tuple(dict.fromkeys(condition.leaves()))


@given(conditions)
def test_a_condition_survives_the_way_to_plain_data_and_back(condition: Condition) -> None:
    again = from_plain(plain(condition))
    assert again == condition
    assert again.clauses() == condition.clauses()


def test_and_binds_before_or_as_python_reads_it() -> None:
    either, both = A & B | C, A & (B | C)
    assert either.clauses() == ((A, B, C), ((0, 1), (2,)))
    assert both.clauses() == ((A, B, C), ((0, 1), (0, 2)))


def test_a_chain_of_one_kind_is_flat() -> None:
    every, some, mixed = A & B & C, A | B | C, A & B | C
    assert every == AssetAll(A, B, C)
    assert some == AssetAny(A, B, C)
    assert mixed == AssetAny(AssetAll(A, B), C)


def test_an_asset_that_no_clause_needs_keeps_its_place() -> None:
    assert (A | A & B).clauses() == ((A, B), ((0,),))


def test_what_is_no_condition_is_a_type_error() -> None:
    for build in (lambda: A & "b", lambda: A | None, lambda: AssetAll(A, 3)):
        with pytest.raises(DefinitionTypeError):
            build()


def test_an_empty_condition_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least one asset"):
        AssetAll()


def any_of(size: int, prefix: str) -> Condition:
    return AssetAny(*(Asset(f"{prefix}{n}") for n in range(size)))


def test_64_clauses_are_allowed_and_more_are_refused_with_the_way_out() -> None:
    assert len((any_of(8, "a") & any_of(8, "b")).clauses()[1]) == 64
    with pytest.raises(DefinitionError, match="nest fewer"):
        (any_of(8, "a") & any_of(9, "b")).clauses()


def test_a_condition_with_millions_of_alternatives_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError):
        AssetAll(*(any_of(10, f"{n}.") for n in range(12))).clauses()


def test_alternatives_that_hold_others_do_not_count_however_many_they_are() -> None:
    either = A | B
    assert AssetAll(*[either] * 20, C | D).clauses()[1] == ((0, 2), (0, 3), (1, 2), (1, 3))
