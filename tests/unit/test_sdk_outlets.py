"""Events of a run's outlets: through aliases, with keys or without, under ids that a second attempt gives again."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_sdk_run import AT, command, outcome_of
from tidegate import Asset, AssetAlias, Metadata
from tidegate.contracts.events import AssetUpdate, parse_event
from tidegate.contracts.runs import Outlet, RunState
from tidegate.sdk import Run
from tidegate.sdk.errors import OutletTypeError, UndeclaredOutletError
from tidegate.sdk.outlets import OutletEvent, OutletEvents, encode_outlets

A, B = Asset("a"), Asset("b", "s3://bucket/b")
X, Y = AssetAlias("x"), AssetAlias("y")
ALIASES = [Outlet(name="x", kind="alias"), Outlet(name="y", kind="alias")]


async def updates(function: Any, **changes: Any) -> list[AssetUpdate]:
    outcome = await outcome_of(function, **{"outlets": ALIASES, **changes})
    assert outcome.error is None
    return [parse_event(each.value).data for each in outcome.outlet_events]


def told(updates: list[AssetUpdate]) -> list[tuple[str | None, tuple[str, ...], str | None, Any]]:
    return [(each.asset, each.aliases or (), each.partition_key, each.extra) for each in updates]


# ---- aliases ----


async def test_an_alias_gives_an_event_of_each_asset_that_it_stood_for_with_key_and_date_of_the_run() -> None:
    def work(run: Run) -> None:
        run.extra["by"] = "run"
        run.outlet_events[X].add(A, extra={"rows": 3})
        run.outlet_events[X].add(B)

    found = await updates(work)
    assert told(found) == [
        ("a", ("x",), "2026-03-10", {"by": "run", "rows": 3}),
        ("b", ("x",), "2026-03-10", {"by": "run"}),
    ]
    assert {each.partition_date for each in found} == {AT}


async def test_an_alias_that_stood_for_nothing_publishes_nothing() -> None:
    assert await updates(lambda run: None) == []


async def test_the_same_extra_through_several_aliases_is_one_event_and_another_extra_a_second() -> None:
    def work(run: Run) -> None:
        run.outlet_events[X].add(A, {"n": 1, "m": 2})
        run.outlet_events[Y].add(A, {"m": 2, "n": 1})
        run.outlet_events[Y].add(A, {"n": 2})
        run.outlet_events[X].add(A, {"n": 1, "m": 2})

    assert told(await updates(work)) == [
        ("a", ("x", "y"), "2026-03-10", {"n": 1, "m": 2}),
        ("a", ("y",), "2026-03-10", {"n": 2}),
    ]


async def test_keys_on_an_alias_go_to_every_asset_that_it_stood_for() -> None:
    def work(run: Run) -> None:
        run.outlet_events[X].add_partitions(["us", "eu", "us"])
        run.outlet_events[X].add_partitions("2026-03-10", {"own": True})
        run.outlet_events[X].add(A, {"rows": 3})
        run.outlet_events[X].add(B)

    found = await updates(work)
    assert told(found) == [
        ("a", ("x",), "us", {"rows": 3}),
        ("a", ("x",), "eu", {"rows": 3}),
        ("a", ("x",), "2026-03-10", {"rows": 3, "own": True}),
        ("b", ("x",), "us", None),
        ("b", ("x",), "eu", None),
        ("b", ("x",), "2026-03-10", {"own": True}),
    ]
    assert [each.partition_date for each in found] == [None, None, AT] * 2


async def test_keys_of_one_alias_are_not_keys_of_another() -> None:
    def work(run: Run) -> None:
        run.outlet_events[X].add(A)
        run.outlet_events[Y].add(A)
        run.outlet_events[Y].add_partitions(["us", "2026-03-10"])

    assert told(await updates(work)) == [
        ("a", ("x", "y"), "2026-03-10", None),
        ("a", ("y",), "us", None),
    ]


async def test_b058_keys_on_an_alias_that_stood_for_nothing_fail_the_run() -> None:
    def work(run: Run) -> None:
        run.outlet_events[Y].add(A)
        run.outlet_events[X].add_partitions(["us", "eu"])

    outcome = await outcome_of(work, outlets=ALIASES)
    assert (outcome.state, outcome.outlet_events) == (RunState.FAILED, [])
    assert (outcome.error or "").startswith(
        "UnresolvedAliasError: alias 'x' was given the partition keys 'us', 'eu' but stands for no asset"
    )


async def test_an_outlet_s_own_event_and_one_through_an_alias_are_one_where_they_say_the_same() -> None:
    outlets = [Outlet(name="a"), Outlet(name="b"), *ALIASES]

    def work(run: Run) -> None:
        run.outlet_events[A].extra = {"rows": 3}
        run.outlet_events[X].add(A, {"rows": 3})
        run.outlet_events[X].add(B, {"rows": 4})

    assert told(await updates(work, outlets=outlets)) == [
        ("a", ("x",), "2026-03-10", {"rows": 3}),
        ("b", (), "2026-03-10", None),
        ("b", ("x",), "2026-03-10", {"rows": 4}),
    ]


async def test_an_asset_and_an_alias_of_one_name_are_two_outlets() -> None:
    outlets = [Outlet(name="x"), Outlet(name="x", kind="alias")]

    def work(run: Run) -> None:
        run.outlet_events["x"].extra = {"of": "asset"}
        run.outlet_events[X].add(A, {"of": "alias"})
        assert list(run.outlet_events) == ["x"]
        assert list(run.outlet_events.aliases) == ["x"]

    assert told(await updates(work, outlets=outlets)) == [
        ("x", (), "2026-03-10", {"of": "asset"}),
        ("a", ("x",), "2026-03-10", {"of": "alias"}),
    ]


def test_an_alias_that_is_not_declared_is_refused_with_the_outlets_that_are() -> None:
    run = Run.from_command(command(outlets=[Outlet(name="a"), ALIASES[0]]))
    with pytest.raises(
        UndeclaredOutletError, match=r"AssetAlias\('y'\) is no outlet .* \(declared: 'a', AssetAlias\('x'\)\)"
    ):
        run.outlet_events[Y]
    with pytest.raises(UndeclaredOutletError, match="'x' is no outlet"):
        run.outlet_events["x"]
    assert [each in run.outlet_events for each in (A, "a", X, Y, B, "x", 5)] == [True] * 3 + [False] * 4


def test_an_alias_takes_assets_and_json_data_only() -> None:
    alias = OutletEvents("job", [], ["x"])[X]
    for asset, extra in [("a", {}), (Y, {}), (A, [1]), (A, {1: 2})]:
        with pytest.raises(OutletTypeError, match=r"outlet_events\[AssetAlias\('x'\)\]\.add"):
            alias.add(asset, extra)
    assert alias.added == ()


# ---- keys ----


async def test_a_run_without_partitions_gives_events_without_keys() -> None:
    def work(run: Run) -> None:
        assert (run.partition_key, run.partition_date) == (None, None)
        run.outlet_events[X].add(B)

    outlets = [Outlet(name="a"), *ALIASES]
    outcome = await outcome_of(work, partition_key=None, partition_date=None, outlets=outlets)
    assert outcome.added_key is None
    assert [json.loads(each.value)["data"] for each in outcome.outlet_events] == [
        {"asset": "a"},
        {"asset": "b", "aliases": ["x"]},
    ]


@pytest.mark.parametrize(
    ("own", "on_asset", "on_alias", "key"),
    [
        (None, ["us", "us"], [], "us"),
        (None, [], ["us"], "us"),
        (None, ["us"], ["us"], "us"),
        (None, ["us"], ["eu"], None),
        (None, ["us", "eu"], [], None),
        (None, [], [], None),
        ("2026-03-10", ["us"], [], None),
        ("2026-03-10", ["2026-03-10"], [], None),
    ],
)
async def test_a_run_without_a_key_that_added_one_says_so(
    own: str | None, on_asset: list[str], on_alias: list[str], key: str | None
) -> None:
    def work(run: Run) -> None:
        run.outlet_events[A].add_partitions(on_asset)
        run.outlet_events[X].add(B)
        run.outlet_events[X].add_partitions(on_alias)

    outcome = await outcome_of(work, partition_key=own, outlets=[Outlet(name="a"), *ALIASES])
    assert (outcome.state, outcome.added_key) == (RunState.SUCCEEDED, key)


async def test_a_run_that_failed_gave_itself_no_key() -> None:
    def work(run: Run) -> None:
        run.outlet_events[A].add_partitions("us")
        raise ValueError

    assert (await outcome_of(work, partition_key=None)).added_key is None


# ---- what functions yield ----


async def yielded(function: Any) -> list[tuple[str | None, tuple[str, ...], str | None, Any]]:
    return told(await updates(function, outlets=[Outlet(name="a"), *ALIASES]))


async def test_metadata_that_a_generator_yields_goes_to_the_events_of_its_asset_or_alias() -> None:
    closed: list[str] = []

    def blocking(run: Run) -> Any:
        try:
            run.outlet_events[A].extra = {"rows": 1, "of": "a"}
            yield Metadata(A, {"rows": 2})
            yield Metadata(B, {"rows": 3}, alias=X)
        finally:
            closed.append("blocking")

    async def waiting(run: Run) -> Any:
        for each in blocking(run):
            yield each
        closed.append("waiting")

    expected = [
        ("a", (), "2026-03-10", {"rows": 2, "of": "a"}),
        ("b", ("x",), "2026-03-10", {"rows": 3}),
    ]
    assert await yielded(blocking) == expected
    assert await yielded(waiting) == expected
    assert closed == ["blocking", "blocking", "waiting"]


@pytest.mark.parametrize("value", [5, None, {"rows": 3}, A])
async def test_anything_else_that_is_yielded_fails_the_run(value: object) -> None:
    went_on: list[bool] = []

    def blocking(run: Run) -> Any:
        yield value
        went_on.append(True)

    async def waiting(run: Run) -> Any:
        yield value
        went_on.append(True)

    for function in (blocking, waiting):
        outcome = await outcome_of(function)
        assert outcome.state is RunState.FAILED
        assert f"may yield Metadata only, not {value!r}" in (outcome.error or "")
    assert went_on == []


async def test_metadata_for_an_asset_or_alias_that_is_no_outlet_fails_the_run() -> None:
    for metadata in (Metadata(Asset("c")), Metadata(A, alias=AssetAlias("z"))):
        outcome = await outcome_of(lambda run, metadata=metadata: (each for each in [metadata]))
        assert "UndeclaredOutletError" in (outcome.error or "")


# ---- ids ----

keys = st.sampled_from(["us", "eu", "2026-03-10"])
extras = st.dictionaries(st.sampled_from("mn"), st.sampled_from([1, 2]), max_size=2)
Step = Callable[[OutletEvents], None]


def _own(key: str, extra: dict[str, Any]) -> Step:
    return lambda outlets: outlets["a"].add_partitions(key, extra)


def _add(alias: str, asset: str, extra: dict[str, Any]) -> Step:
    return lambda outlets: outlets[AssetAlias(alias)].add(Asset(asset), extra)


def _keyed(alias: str, key: str, extra: dict[str, Any]) -> Step:
    def step(outlets: OutletEvents) -> None:
        if outlets.aliases[alias].added:
            outlets.aliases[alias].add_partitions(key, extra)

    return step


steps = st.lists(
    st.builds(_own, keys, extras)
    | st.builds(_add, st.sampled_from("xy"), st.sampled_from("ab"), extras)
    | st.builds(_keyed, st.sampled_from("xy"), keys, extras),
    max_size=8,
)


def events_of(done: list[Step], partition_key: str | None, run_id: str = "run-1") -> list[OutletEvent]:
    outlets = OutletEvents("daily", ["a"], ["x", "y"])
    for step in done:
        step(outlets)
    return encode_outlets(
        outlets,
        job="daily",
        run_id=run_id,
        partition_key=partition_key,
        partition_date=None,
        extra={},
        time=datetime.now(UTC),
    )


def content(event: OutletEvent) -> tuple[str | None, str | None, str]:
    data = parse_event(event.value).data
    return data.asset, data.partition_key, json.dumps(data.extra or {}, sort_keys=True)


@given(steps, st.none() | keys)
def test_a_run_done_again_gives_the_same_ids_and_distinct_events_have_distinct_ones(
    done: list[Step], partition_key: str | None
) -> None:
    events = events_of(done, partition_key)
    assert [(each.id, content(each)) for each in events_of(done, partition_key)] == [
        (each.id, content(each)) for each in events
    ]
    assert len({content(each) for each in events}) == len(events)
    assert len({each.id for each in events}) == len(events)
    assert not {each.id for each in events} & {each.id for each in events_of(done, partition_key, "run-2")}


@given(
    st.lists(st.builds(_add, st.sampled_from("xy"), st.sampled_from("ab"), extras), max_size=8), st.randoms()
)
def test_the_order_of_what_is_added_changes_no_id(done: list[Step], random: Any) -> None:
    shuffled = list(done)
    random.shuffle(shuffled)
    assert Counter((each.id, content(each)) for each in events_of(shuffled, "k")) == Counter(
        (each.id, content(each)) for each in events_of(done, "k")
    )


def test_an_event_that_is_alone_with_its_key_has_an_id_that_its_extra_does_not_change() -> None:
    # What a run counts may differ between attempts; the event is the same one (rule T9).
    (first, second), (again, _) = (events_of([_own("us", {"n": n}), _own("eu", {})], None) for n in (1, 2))
    assert first.id == again.id != second.id
