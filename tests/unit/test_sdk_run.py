"""Runs as functions see them, and what a run publishes about its outlets."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tidegate.contracts.events import parse_event
from tidegate.contracts.runs import Outlet, RunCommand, RunState, TriggeringEvent, WindowProgress
from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.definitions import Asset, AssetAlias, Job
from tidegate.sdk import JobFailed, Run, Worker
from tidegate.sdk.errors import OutletTypeError, UndeclaredOutletError, WorkerError
from tidegate.sdk.execute import Outcome, describe, execute
from tidegate.sdk.outlets import OutletEvents

AT = datetime(2026, 3, 10, 7, tzinfo=UTC)
A, B = Asset("a"), Asset("b")


def command(**changes: Any) -> RunCommand:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "job": "daily",
        "partition_key": "2026-03-10",
        "partition_date": AT,
        "generation": 2,
        "attempt": 3,
        "cause": "assets",
        "completed_by": "e2",
        "definition_revision": 0,
        "windows": [WindowProgress(asset="in", arrived=2, expected=24)],
        "triggering_asset_events": [
            TriggeringEvent(asset="in", id="e1", source="/s", member=4, received_at=AT, extra={"c": 1.5}),
            TriggeringEvent(asset="in", id="e2", source="/s", member=5, partition_date=AT, received_at=AT),
        ],
        "outlets": [Outlet(name="a"), Outlet(name="b")],
        "run_events_partition": 0,
    }
    return RunCommand(**{**fields, **changes})


async def outcome_of(function: Any, **changes: Any) -> Outcome:
    return await execute(command(**changes), function)


async def published(function: Any, **changes: Any) -> list[tuple[str, str | None, datetime | None, Any]]:
    outcome = await outcome_of(function, **changes)
    assert outcome.error is None
    events = [parse_event(each.value).data for each in outcome.outlet_events]
    return [(each.asset or "", each.partition_key, each.partition_date, each.extra) for each in events]


def test_a_run_says_what_its_command_says() -> None:
    run = Run.from_command(RunCommand.from_bytes(command().to_bytes()))
    assert (run.run_id, run.job, run.partition_key, run.generation, run.attempt) == (
        "run-1", "daily", "2026-03-10", 2, 3,
    )  # fmt: skip
    assert run.partition_date == AT
    assert run.partition_date is not None
    assert run.partition_date.in_timezone("America/Los_Angeles").to_date_string() == "2026-03-10"
    assert (run.windows["in"].arrived, run.windows["in"].expected) == (2, 24)
    first, second = run.triggering_asset_events[Asset("in")]
    assert (first.asset, first.id, first.member, first.extra, first.partition_date) == (
        "in",
        "e1",
        4,
        {"c": 1.5},
        None,
    )
    assert (second.extra, second.partition_date) == ({}, AT)
    assert run.triggering_asset_events["other"] == ()
    assert list(run.triggering_asset_events) == ["in"]
    assert "in" in run.triggering_asset_events
    assert "other" not in run.triggering_asset_events


async def test_each_outlet_inherits_key_and_date_of_the_run() -> None:
    assert await published(lambda run: None) == [("a", "2026-03-10", AT, None), ("b", "2026-03-10", AT, None)]


async def test_an_extra_keeps_the_key_of_the_run() -> None:
    def work(run: Run) -> None:
        run.extra["by"] = "run"
        run.outlet_events[A].extra = {"row_count": 3}
        run.outlet_events["a"].extra["by"] = "outlet"

    assert await published(work) == [
        ("a", "2026-03-10", AT, {"by": "outlet", "row_count": 3}),
        ("b", "2026-03-10", AT, {"by": "run"}),
    ]


async def test_added_partitions_replace_the_run_s_own_key() -> None:
    def work(run: Run) -> None:
        run.outlet_events[A].extra = {"n": 0, "of": "a"}
        run.outlet_events[A].add_partitions(["us", "eu", "us"])
        run.outlet_events[A].add_partitions("2026-03-10", extra={"n": 1})

    assert await published(work) == [
        ("a", "us", None, {"n": 0, "of": "a"}),
        ("a", "eu", None, {"n": 0, "of": "a"}),
        ("a", "2026-03-10", AT, {"n": 1, "of": "a"}),
        ("b", "2026-03-10", AT, None),
    ]


async def test_an_empty_list_of_partitions_adds_nothing() -> None:
    assert len(await published(lambda run: run.outlet_events[A].add_partitions([]))) == 2


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("", InvalidPartitionKeyError),
        (" ", InvalidPartitionKeyError),
        ("\t", InvalidPartitionKeyError),
        ("x" * 251, InvalidPartitionKeyError),
        (["us", ""], InvalidPartitionKeyError),
        (None, OutletTypeError),
        (5, OutletTypeError),
        (b"us", OutletTypeError),
        ([None], OutletTypeError),
        ({"us": 1}, OutletTypeError),
    ],
)
def test_partitions_that_are_no_keys_are_refused_and_nothing_is_added(
    keys: Any, error: type[Exception]
) -> None:
    run = Run.from_command(command())
    run.outlet_events[A].add_partitions("first")
    with pytest.raises(error):
        run.outlet_events[A].add_partitions(keys)
    assert list(run.outlet_events[A].partitions) == ["first"]


def test_an_outlet_that_is_not_declared_is_refused_with_those_that_are() -> None:
    run = Run.from_command(command())
    undeclared: Any = Asset("c")
    with pytest.raises(
        UndeclaredOutletError, match=r"'c' is no outlet of job 'daily' \(declared: 'a', 'b'\)"
    ):
        run.outlet_events[undeclared]
    assert list(run.outlet_events) == ["a", "b"]
    assert undeclared not in run.outlet_events


def test_an_alias_that_is_taken_for_an_asset_is_named_as_one() -> None:
    outlets = OutletEvents("daily", ["a"], ["found"])
    for mistaken in ("found", Asset("found")):
        with pytest.raises(UndeclaredOutletError, match=r"write outlet_events\[AssetAlias\('found'\)\]"):
            outlets[mistaken]
    with pytest.raises(UndeclaredOutletError, match="add it to the job's outlets"):
        outlets[AssetAlias("a")]
    several: Any = ["found"]
    with pytest.raises(UndeclaredOutletError, match=r"\['found'\] is no outlet"):
        outlets[several]


def test_what_a_run_has_can_be_printed() -> None:
    run = Run.from_command(command())
    assert repr(run.outlet_events) == "<OutletEvents of 'a', 'b'>"
    assert repr(OutletEvents("daily", [], ["found"])) == "<OutletEvents of AssetAlias('found')>"
    counts = ", ".join(f"{len(events)} of {name!r}" for name, events in run.triggering_asset_events.items())
    assert counts
    assert repr(run.triggering_asset_events) == f"<TriggeringAssetEvents: {counts}>"


async def test_outlet_event_ids_come_from_the_run_and_not_from_the_attempt() -> None:
    first = (await outcome_of(lambda run: None, attempt=1)).outlet_events
    again = (await outcome_of(lambda run: None, attempt=2)).outlet_events
    other = (await outcome_of(lambda run: None, run_id="run-2")).outlet_events
    assert [each.id for each in first] == [each.id for each in again]
    assert len({each.id for each in (*first, *other)}) == 4
    assert json.loads(first[0].value)["source"] == "/tidegate/jobs/daily"


@pytest.mark.parametrize("blocking", [True, False])
async def test_whatever_a_function_raises_fails_the_run_and_publishes_nothing(blocking: bool) -> None:
    for error in (
        ValueError("no\ud800data"),
        SystemExit(3),
        KeyError(),
        StopIteration(),
        asyncio.CancelledError(),
    ):
        if blocking:
            outcome = await outcome_of(_raising(error))
        elif isinstance(error, StopIteration):
            continue  # Python itself makes a RuntimeError of it
        else:
            outcome = await outcome_of(_raising_later(error))
        assert outcome.state is RunState.FAILED
        assert outcome.outlet_events == []
        assert outcome.error is not None
        assert outcome.error.startswith(type(error).__name__)
        outcome.error.encode()


def _raising(error: BaseException) -> Any:
    def work(run: Run) -> None:
        raise error

    return work


def _raising_later(error: BaseException) -> Any:
    async def work(run: Run) -> None:
        await asyncio.sleep(0)
        raise error

    return work


async def test_an_extra_that_is_no_json_fails_the_run() -> None:
    def work(run: Run) -> None:
        run.outlet_events[A].extra["at"] = AT

    outcome = await outcome_of(work)
    assert outcome.state is RunState.FAILED
    assert "extra.at" in (outcome.error or "")


async def test_a_blocking_function_does_not_hold_up_the_loop() -> None:
    import threading

    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(run: Run) -> None:
        loop.call_soon_threadsafe(started.set)
        assert release.wait(10)

    running = asyncio.create_task(outcome_of(work))
    await started.wait()  # answers while the function blocks
    release.set()
    assert (await running).state is RunState.SUCCEEDED


async def test_cancelling_the_caller_is_passed_on() -> None:
    started = asyncio.Event()

    async def work(run: Run) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(outcome_of(work))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_errors_are_told_in_at_most_4096_characters() -> None:
    assert len(describe(ValueError("x" * 10_000))) <= 4096
    assert describe(JobFailed("disk full")) == "disk full"


def test_registration_is_checked() -> None:
    worker = Worker("127.0.0.1:1")

    @worker.job("daily")
    def daily(run: Run) -> None: ...

    worker.job(Job("other", run_commands_topic="theirs"))(daily)
    assert worker.jobs == ("daily", "other")
    assert worker._topics == {"daily": "run-commands.daily", "other": "theirs"}
    with pytest.raises(DefinitionError, match="already"):
        worker.job("daily")(daily)
    with pytest.raises(DefinitionTypeError, match=r"worker\.job"):
        worker.job(daily)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="group"):
        Worker("127.0.0.1:1", group="a b")


async def test_a_worker_without_jobs_says_so() -> None:
    with pytest.raises(WorkerError, match="no job"):
        await Worker("127.0.0.1:1").run()
