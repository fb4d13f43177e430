"""`@asset` functions in a worker: what they are called with, and what becomes of what they yield."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_sdk_run import AT, command
from tidegate import Asset, AssetAlias, DefinitionError, DefinitionTypeError, Metadata, asset
from tidegate.cli.worker import find_worker
from tidegate.contracts.events import parse_event
from tidegate.contracts.runs import Outlet, RunState
from tidegate.sdk import Run, Worker
from tidegate.sdk.errors import WorkerError
from tidegate.sdk.execute import Outcome, execute

ORDERS = Asset("orders", "s3://bucket/orders")


async def outcome_of(worker: Worker, job: str, **changes: Any) -> Outcome:
    return await execute(command(job=job, **changes), worker._functions[job])


def new_worker(*definitions: Any) -> Worker:
    worker = Worker("127.0.0.1:1")
    worker.add(*definitions)
    return worker


async def test_a_function_is_called_with_its_asset_its_context_and_the_assets_that_it_names() -> None:
    seen: dict[str, Any] = {}

    @asset(schedule=ORDERS, uri="s3://bucket/sales")
    def sales(self: Asset, context: Any, orders: Asset, outlet_events: Any, limit: int = 5) -> None:
        seen.update(context, self=self, orders=orders, limit=limit)
        outlet_events[self].extra = {"rows": 3}

    outcome = await outcome_of(new_worker(sales), "sales", outlets=[Outlet(name="sales")])
    assert (outcome.state, outcome.error) == (RunState.SUCCEEDED, None)
    assert parse_event(outcome.outlet_events[0].value).data.extra == {"rows": 3}
    assert (seen["self"], seen["orders"], seen["limit"]) == (sales, ORDERS, 5)
    assert seen["self"].uri == "s3://bucket/sales"
    assert (seen["run_id"], seen["job"], seen["partition_key"], seen["partition_date"]) == (
        "run-1", "sales", "2026-03-10", AT,
    )  # fmt: skip
    assert isinstance(seen["run"], Run)
    assert seen["dag_run"] is seen["run"]
    assert seen["outlet_events"] is seen["run"].outlet_events
    assert [each.id for each in seen["triggering_asset_events"]["in"]] == ["e1", "e2"]


async def test_an_asset_that_another_function_of_the_worker_makes_comes_with_its_uri() -> None:
    seen: list[Asset] = []

    @asset(schedule=None)
    def report(*, sales: Asset, other: Asset) -> None:
        seen.extend((sales, other))

    @asset(schedule=None, uri="s3://bucket/sales")
    def sales() -> None: ...

    outcome = await outcome_of(new_worker(report, sales), "report", outlets=[])
    assert outcome.error is None
    assert [(each.name, each.uri) for each in seen] == [("sales", "s3://bucket/sales"), ("other", "other")]


@pytest.mark.parametrize("kind", ["plain", "async", "generator", "async generator"])
async def test_every_kind_of_function_works(kind: str) -> None:
    declared = {"schedule": None, "outlets": [Asset("a"), AssetAlias("x")], "dag_id": "split"}
    made: Any
    if kind == "plain":

        @asset.multi(**declared)
        def made(outlet_events: Any) -> None:
            outlet_events[Asset("a")].extra = {"rows": 1}
            outlet_events[AssetAlias("x")].add(Asset("b"), {"rows": 2})

    elif kind == "async":

        @asset.multi(**declared)
        async def made(outlet_events: Any) -> None:
            outlet_events[Asset("a")].extra = {"rows": 1}
            outlet_events[AssetAlias("x")].add(Asset("b"), {"rows": 2})

    elif kind == "generator":

        @asset.multi(**declared)
        def made() -> Any:
            yield Metadata(Asset("a"), {"rows": 1})
            yield Metadata(Asset("b"), {"rows": 2}, alias=AssetAlias("x"))

    else:

        @asset.multi(**declared)
        async def made() -> Any:
            yield Metadata(Asset("a"), {"rows": 1})
            yield Metadata(Asset("b"), {"rows": 2}, alias=AssetAlias("x"))

    outlets = [Outlet(name="a"), Outlet(name="x", kind="alias")]
    outcome = await outcome_of(new_worker(made), "split", outlets=outlets)
    assert outcome.error is None
    data = [parse_event(each.value).data for each in outcome.outlet_events]
    assert [(each.asset, each.aliases, each.extra) for each in data] == [
        ("a", None, {"rows": 1}),
        ("b", ("x",), {"rows": 2}),
    ]


async def test_what_a_function_raises_or_yields_wrongly_fails_the_run() -> None:
    @asset(schedule=None)
    def raising() -> None:
        raise ValueError("no data")

    @asset(schedule=None)
    def yielding() -> Any:
        yield {"rows": 3}

    worker = new_worker(raising, yielding)
    for job, words in (("raising", "ValueError: no data"), ("yielding", "may yield Metadata only")):
        outcome = await outcome_of(worker, job)
        assert outcome.state is RunState.FAILED
        assert words in (outcome.error or "")


def test_a_worker_takes_declared_functions_only_and_each_job_once() -> None:
    @asset(schedule=None, run_commands_topic="theirs")
    def sales() -> None: ...

    worker = new_worker(sales)
    assert worker.jobs == ("sales",)
    assert worker._topics == {"sales": "theirs"}
    with pytest.raises(DefinitionError, match="already"):
        worker.add(sales)
    for wrong in (ORDERS, sales.job, sales.function):
        with pytest.raises(DefinitionTypeError, match=r"Worker\.add takes what @asset"):
            worker.add(wrong)


def test_a_function_of_several_assets_has_no_self() -> None:
    with pytest.raises(DefinitionTypeError, match=r"split\(self\) makes several assets"):

        @asset.multi(schedule=None, outlets=[Asset("a"), Asset("b")])
        def split(self: Asset) -> None: ...


def test_a_parameter_with_a_default_is_no_inlet() -> None:
    @asset(schedule=None)
    def sales(orders: Asset, limit: int = 5) -> None: ...

    assert sales.job.inlets == (Asset.ref(name="orders"),)


def test_a_module_of_declared_functions_without_a_worker_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("TIDEGATE_NAMESPACE", "TIDEGATE_INSTANCE_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEGATE_KAFKA", "127.0.0.1:7")
    monkeypatch.setenv("TIDEGATE_GROUP", "theirs")
    declared = """
        from tidegate import Asset, asset
        from tidegate.sdk import Worker
        @asset(schedule=None)
        def one(): ...
        also = one
        @asset.multi(schedule=None, outlets=[Asset("x")])
        def two(): ...
    """
    path = tmp_path / "declared.py"
    path.write_text(textwrap.dedent(declared))
    worker = find_worker(str(path))
    assert worker.jobs == ("one", "two")
    options = worker._options
    assert (options.bootstrap, options.group, options.namespace) == ("127.0.0.1:7", "theirs", "tidegate")
    with pytest.raises(WorkerError, match="no Worker named 'one'"):
        find_worker(f"{path}:one")
    # A worker of the module's own says itself what it serves.
    path.write_text(textwrap.dedent(declared) + "worker = Worker('127.0.0.1:1')\nworker.add(two)\n")
    assert find_worker(str(path)).jobs == ("two",)
