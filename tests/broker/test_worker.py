"""The worker on a broker: what a reader that reads committed sees of its runs, whatever happens to the worker."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import Install, Installed, read_all, send, until_async
from tests.servers.command_line import tidegate
from tidegate import Asset, AssetAlias, Metadata, asset
from tidegate.contracts.events import AssetEvent, parse_event
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import Outlet, RunCommand, RunEvent, RunState, TriggeringEvent, WindowProgress
from tidegate.contracts.topics import ASSET_EVENTS, RUN_EVENTS, run_commands_topic
from tidegate.runtime.transactions import PartitionTransactions
from tidegate.sdk import AssetEventProducer, Run, Worker
from tidegate.sdk.errors import TopicMissingError
from tidegate.sdk.outlets import OutletEvents

JOB, TOPIC = "daily", "run-commands.daily"
AT = datetime(2010, 3, 14, 8, tzinfo=UTC)

pytestmark = pytest.mark.timeout(120)


def command(key: str, partitions: int = 2, **changes: object) -> RunCommand:
    fields: dict[str, object] = {
        "run_id": f"run-{key}",
        "job": JOB,
        "partition_key": key,
        "partition_date": AT,
        "generation": 1,
        "cause": "assets",
        "completed_by": "e1",
        "definition_revision": 0,
        "windows": [WindowProgress(asset="hourly", arrived=1, expected=1)],
        "triggering_asset_events": [
            TriggeringEvent(
                asset="hourly", id="e1", source="/s", partition_key=key, received_at=AT, extra={"c": 7.5}
            )
        ],
        "outlets": [Outlet(name="daily_out")],
        "run_events_partition": partition_of(JOB, partitions),
    }
    return RunCommand.model_validate({**fields, **changes})


def key_of(run: Run) -> str:
    assert run.partition_key is not None
    return run.partition_key


@pytest.fixture
def installed(install: Install) -> Installed:
    return install(partitions=2, more=(run_commands_topic(JOB, 2),))


async def give(installed: Installed, *commands: RunCommand | bytes, partition: int | None = None) -> None:
    """Write commands as the dispatcher would, spread over the partitions unless one is named."""
    await send(
        installed.kafka,
        [
            (
                TOPIC,
                n % 2 if partition is None else partition,
                b"k",
                each if isinstance(each, bytes) else each.to_bytes(),
            )
            for n, each in enumerate(commands)
        ],
    )


async def reports(installed: Installed) -> list[RunEvent]:
    return [RunEvent.from_bytes(record.value) for record in await read_all(installed.kafka, RUN_EVENTS)]


async def ended(installed: Installed) -> Counter[tuple[str, str]]:
    """(run id, final state) with how often it was reported."""
    return Counter(
        (each.run_id, each.state.value)
        for each in await reports(installed)
        if each.state is not RunState.RUNNING
    )


async def published(installed: Installed) -> list[AssetEvent]:
    records = await read_all(installed.kafka, ASSET_EVENTS)
    assert all(record.partition == partition_of(record.key.decode(), 2) for record in records)
    return [parse_event(record.value, record.headers) for record in records]


async def until_ended(installed: Installed, count: int) -> Counter[tuple[str, str]]:
    async def enough() -> bool:
        return len(await ended(installed)) >= count

    await until_async(enough, f"{count} runs to end", 60)
    return await ended(installed)


def new_worker(installed: Installed, **options: object) -> Worker:
    return Worker(installed.kafka, group=installed.namespace, namespace=installed.namespace, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def test_each_run_has_one_status_and_its_outlet_events_once(installed: Installed) -> None:
    worker = new_worker(installed)
    seen: dict[str, Run] = {}

    @worker.job(JOB)
    def daily(run: Run) -> None:
        seen[key_of(run)] = run
        if run.partition_key == "day-7":
            run.outlet_events["daily_out"].extra = {"never": "published"}
            raise ValueError("no data")
        if run.partition_key == "day-8":
            run.outlet_events["daily_out"].add_partitions(["us", "eu", "us"], extra={"rows": 3})
        (event,) = run.triggering_asset_events["hourly"]
        run.outlet_events["daily_out"].extra = {"mean": event.extra["c"]}

    commands = [command(f"day-{n}") for n in range(250)]
    await give(installed, *commands)
    async with running(worker):
        counts = await until_ended(installed, 250)
    assert counts == {(f"run-day-{n}", "failed" if n == 7 else "succeeded"): 1 for n in range(250)}
    failed = next(each for each in await reports(installed) if each.state is RunState.FAILED)
    assert failed.error is not None
    assert failed.error.startswith("ValueError: no data (test_worker.py:")
    started = Counter(each.run_id for each in await reports(installed) if each.state is RunState.RUNNING)
    assert started == {f"run-day-{n}": 1 for n in range(250)}
    events = await published(installed)
    expected = [f"day-{n}" for n in range(250) if n not in (7, 8)] + ["us", "eu"]
    assert sorted(event.data.partition_key or "" for event in events) == sorted(expected)
    assert len({event.id for event in events}) == len(events)
    by_key = {event.data.partition_key: event for event in events}
    assert by_key["day-0"].data.extra == {"mean": 7.5}
    assert by_key["day-0"].data.partition_date == AT
    assert by_key["day-0"].source == "/tidegate/jobs/daily"
    assert by_key["us"].data.extra == {"mean": 7.5, "rows": 3}
    assert by_key["us"].data.partition_date is None
    assert seen["day-0"].partition_date == AT


async def test_assets_that_an_alias_stood_for_get_events_that_name_it(installed: Installed) -> None:
    worker = new_worker(installed)
    made = AssetAlias("made")

    @worker.job(JOB)
    def daily(run: Run) -> Iterator[Metadata]:
        if run.partition_key == "lost":
            run.outlet_events[made].add_partitions("us")
            return
        run.outlet_events[made].add(Asset("a"), extra={"rows": 3})
        yield Metadata(Asset("b", "s3://bucket/b"), {"rows": 4}, alias=AssetAlias("also"))
        yield Metadata(Asset("daily_out"), {"mean": 7.5})
        if run.partition_key == "keyed":
            run.outlet_events[made].add_partitions(["us", "eu"])

    outlets = [
        Outlet(name="daily_out"),
        Outlet(name="made", kind="alias"),
        Outlet(name="also", kind="alias"),
    ]
    commands = [command(key, outlets=outlets) for key in ("plain", "keyed", "lost")]
    await give(installed, *commands)
    async with running(worker):
        counts = await until_ended(installed, 3)
    assert counts == {("run-plain", "succeeded"): 1, ("run-keyed", "succeeded"): 1, ("run-lost", "failed"): 1}
    failed = next(each for each in await reports(installed) if each.state is RunState.FAILED)
    assert "alias 'made' was given the partition keys 'us'" in (failed.error or "")
    found = [each.data for each in await published(installed)]
    assert Counter((each.asset, each.aliases, each.partition_key) for each in found) == {
        ("daily_out", None, "plain"): 1,
        ("a", ("made",), "plain"): 1,
        ("b", ("also",), "plain"): 1,
        ("daily_out", None, "keyed"): 1,
        ("a", ("made",), "us"): 1,
        ("a", ("made",), "eu"): 1,
        ("b", ("also",), "keyed"): 1,
    }
    assert {(each.asset, json.dumps(each.extra)) for each in found} == {
        ("daily_out", '{"mean": 7.5}'),
        ("a", '{"rows": 3}'),
        ("b", '{"rows": 4}'),
    }


async def test_a_run_without_a_key_reports_the_one_that_it_gave_itself(installed: Installed) -> None:
    worker = new_worker(installed)
    keys = {
        "run-none": [],
        "run-one": ["us"],
        "run-two": ["us", "eu"],
        "run-fails": ["us"],
        "run-own": ["eu"],
    }

    @asset(schedule=None, name="daily_out", dag_id=JOB)
    async def daily(self: Asset, context: Mapping[str, Any], outlet_events: OutletEvents) -> None:
        assert context["partition_key"] == ("own" if context["run_id"] == "run-own" else None)
        outlet_events[self].add_partitions(keys[context["run_id"]])
        if context["run_id"] == "run-fails":
            raise ValueError

    worker.add(daily)
    await give(
        installed,
        *(command("", run_id=run_id, partition_key=None) for run_id in keys if run_id != "run-own"),
        command("own"),
    )
    async with running(worker):
        counts = await until_ended(installed, 5)
    assert counts == {(each, "failed" if each == "run-fails" else "succeeded"): 1 for each in keys}
    found = [each.data for each in await published(installed)]
    assert Counter((each.asset, each.partition_key) for each in found) == {
        ("daily_out", None): 1,
        ("daily_out", "us"): 2,
        ("daily_out", "eu"): 2,
    }
    ends = [each for each in await reports(installed) if each.state is not RunState.RUNNING]
    assert {each.run_id: each.partition_key for each in ends} == {
        "run-none": None,
        "run-one": "us",
        "run-two": None,
        "run-fails": None,
        "run-own": None,
    }


DECLARED = """
from tidegate import Asset, AssetAlias, Metadata, asset

@asset.multi(schedule=Asset("hourly", "s3://bucket/hourly"), dag_id="daily", outlets=[Asset("a"), AssetAlias("x")])
def split(hourly, context):
    yield Metadata(Asset("a"), {"from": hourly.uri, "for": context["partition_key"]})
    yield Metadata(Asset("b"), {"events": len(context["triggering_asset_events"][hourly])}, alias=AssetAlias("x"))
"""


async def test_a_file_of_declared_functions_is_a_worker(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "declared.py").write_text(DECLARED)
    outlets = [Outlet(name="a"), Outlet(name="x", kind="alias")]
    await give(installed, command("k", outlets=outlets), command("", partition_key=None, outlets=outlets))
    program = [sys.executable, "-m", "tidegate.cli", "worker", str(tmp_path / "declared.py")]
    settings = {"TIDEGATE_GROUP": installed.namespace, "TIDEGATE_NAMESPACE": installed.namespace}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting is quick
            [*program, "--kafka", installed.kafka], stderr=log, env={**os.environ, **settings}
        )
        try:
            counts = await until_ended(installed, 2)
            process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(process.wait, 30)
        finally:
            process.kill()
            process.wait()
    assert (counts, code) == ({("run-k", "succeeded"): 1, ("run-", "succeeded"): 1}, 0)
    found = [each.data for each in await published(installed)]
    assert sorted(
        (each.asset, each.partition_key or "", each.aliases, json.dumps(each.extra)) for each in found
    ) == [
        ("a", "", None, '{"from": "s3://bucket/hourly", "for": null}'),
        ("a", "k", None, '{"from": "s3://bucket/hourly", "for": "k"}'),
        ("b", "", ("x",), '{"events": 1}'),
        ("b", "k", ("x",), '{"events": 1}'),
    ]


async def test_what_was_done_is_not_done_again_by_the_next_worker(installed: Installed) -> None:
    calls: list[str] = []

    async def note(run: Run) -> None:
        calls.append(key_of(run))

    for day in ("mon", "tue"):
        worker = new_worker(installed)
        worker.job(JOB)(note)
        await give(installed, command(day))
        async with running(worker):
            await until_ended(installed, len(calls) + 1)
    assert calls == ["mon", "tue"]


async def test_unreadable_commands_are_skipped(installed: Installed) -> None:
    worker = new_worker(installed)

    @worker.job(JOB)
    async def daily(run: Run) -> None:
        pass

    wrong_partition = command("x", run_events_partition=9)
    strange = command("y", job="another")
    await give(installed, b"not json", b"{}", wrong_partition, strange, command("good"), partition=1)
    async with running(worker):
        assert await until_ended(installed, 1) == {("run-good", "succeeded"): 1}


async def test_a_long_run_does_not_hold_up_the_results_before_it(installed: Installed) -> None:
    worker = new_worker(installed)
    release = asyncio.Event()

    @worker.job(JOB)
    async def daily(run: Run) -> None:
        if run.partition_key == "long":
            await release.wait()

    await give(installed, command("one"), command("two"), command("long"), command("after"), partition=0)
    await give(installed, command("beside"), partition=1)
    async with running(worker):
        assert {run for run, _ in await until_ended(installed, 3)} == {"run-one", "run-two", "run-beside"}
        release.set()
        assert set((await until_ended(installed, 5)).values()) == {1}


async def test_runs_end_once_when_workers_join_and_leave(installed: Installed) -> None:
    workers = [new_worker(installed), new_worker(installed)]
    held, release = asyncio.Event(), asyncio.Event()
    by_worker: list[Counter[str]] = [Counter(), Counter()]

    def serve(number: int) -> None:
        @workers[number].job(JOB)
        async def daily(run: Run) -> None:
            by_worker[number][key_of(run)] += 1
            if key_of(run).startswith("held") and not release.is_set():
                held.set()
                await release.wait()

    serve(0)
    serve(1)
    await give(installed, *(command(f"a{n}") for n in range(20)), command("held-0"), command("held-1"))
    async with running(workers[0]):
        await held.wait()
        async with running(workers[1]):
            await give(installed, *(command(f"b{n}") for n in range(20)))

            async def joined() -> bool:
                return bool(by_worker[1])

            await until_async(joined, "the second worker to get a partition")
            release.set()
            await until_ended(installed, 42)
    assert await ended(installed) == {
        (f"run-{key}", "succeeded"): 1
        for key in [f"{x}{n}" for x in "ab" for n in range(20)] + ["held-0", "held-1"]
    }
    assert len(await published(installed)) == 42
    # one of the two held runs stayed where it was and was not started again
    assert (
        min(by_worker[0]["held-0"] + by_worker[1]["held-0"], by_worker[0]["held-1"] + by_worker[1]["held-1"])
        == 1
    )


async def test_a_fenced_worker_starts_its_partition_again(installed: Installed) -> None:
    worker = new_worker(installed)
    held, release = asyncio.Event(), asyncio.Event()
    calls: Counter[str] = Counter()

    @worker.job(JOB)
    async def daily(run: Run) -> None:
        calls[key_of(run)] += 1
        held.set()
        await release.wait()

    await give(installed, command("one"), command("two"), partition=0)
    async with running(worker):
        await held.wait()
        other = PartitionTransactions(
            installed.kafka, f"{installed.namespace}-{installed.namespace}-{TOPIC}-0"
        )
        await other.start()  # as a second owner of the partition would
        await other.stop()
        release.set()
        await until_ended(installed, 2)
    assert await ended(installed) == {("run-one", "succeeded"): 1, ("run-two", "succeeded"): 1}
    assert sorted(event.data.partition_key or "" for event in await published(installed)) == ["one", "two"]
    assert calls["one"] == 2


PROGRAM = """
import sys, time
from pathlib import Path
from tidegate.sdk import Run, Worker

kafka, group, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
worker = Worker(kafka, group=group, namespace=group, instance_id=group, session_timeout_ms=6000)

@worker.job("daily")
def daily(run: Run) -> None:
    with (folder / "calls").open("a") as calls:
        calls.write(run.partition_key + "\\n")
    run.outlet_events["daily_out"].add_partitions([run.partition_key + "-x", run.partition_key + "-y"])
    while run.partition_key == "held" and (folder / "hold").exists():
        time.sleep(0.02)

worker.main()
"""


async def test_a_worker_killed_in_mid_run_leaves_no_trace_and_no_gap(
    installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "hold").touch()
    calls = tmp_path / "calls"
    program = [sys.executable, "-c", PROGRAM, installed.kafka, installed.namespace, str(tmp_path)]

    async def is_held() -> bool:
        return calls.exists() and "held" in calls.read_text()

    await give(installed, *(command(f"a{n}") for n in range(30)), partition=0)
    await give(installed, command("held"), *(command(f"b{n}") for n in range(30)), partition=0)
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(program, stderr=log)  # noqa: ASYNC220 - starting is quick
        try:
            await until_async(is_held, "the run that holds")
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait()
        (tmp_path / "hold").unlink()
        second = subprocess.Popen(program, stderr=log)  # noqa: ASYNC220
        try:
            counts = await until_ended(installed, 61)
            os.kill(second.pid, signal.SIGTERM)

            async def is_over() -> bool:
                return second.poll() is not None

            await until_async(is_over, "the worker to end after SIGTERM")
        finally:
            second.kill()
            second.wait()
    keys = ["held", *(f"{x}{n}" for x in "ab" for n in range(30))]
    assert second.returncode == 0
    assert counts == {(f"run-{key}", "succeeded"): 1 for key in keys}
    events = [event.data.partition_key for event in await published(installed)]
    assert Counter(events) == Counter(f"{key}-{part}" for key in keys for part in "xy")
    assert Counter(calls.read_text().split())["held"] == 2


async def test_the_producer_batches_and_counts_acknowledgements(installed: Installed) -> None:
    async with AssetEventProducer(installed.kafka, "/sensors", deterministic_ids=True) as producer:
        sent = [await producer.send("hourly", partition_key=f"k{n}", extra={"n": n}) for n in range(500)]
        await producer.flush()
        assert producer.acknowledged == 500
        last = await sent[-1]
        assert (last.id, last.topic) == (sent[-1].id, ASSET_EVENTS)
        again = await producer.send("hourly", partition_key="k0", extra={"n": 0})
        assert again.id == sent[0].id
        aliases: list[list[AssetAlias | str]] = [["x", AssetAlias("y")], ["y", "x"], ["x"]]
        through = [
            await producer.send("hourly", aliases=each, partition_key="k0", extra={"n": 0})
            for each in aliases
        ]
        assert len({each.id for each in through}) == 2
        assert again.id not in {each.id for each in through}
    events = await published(installed)
    assert [event.data.partition_key for event in events[:500]] == [f"k{n}" for n in range(500)]
    assert [event.data.aliases for event in events[500:]] == [None, ("x", "y"), ("y", "x"), ("x",)]


async def test_emit_names_aliases_and_assets_by_uri(installed: Installed, tmp_path: Path) -> None:
    lines = tmp_path / "events.jsonl"
    lines.write_text('{"asset_uri": "s3://bucket/a", "partition_key": "k"}\n{"aliases": ["x"]}\n')
    for arguments in (
        ["a", "--alias", "x", "--alias", "y", "--key", "k"],
        ["--uri", "s3://bucket/a"],
        ["b", "--file", str(lines)],
    ):
        assert (await tidegate(installed, "emit", *arguments)).done
    records = await read_all(installed.kafka, ASSET_EVENTS)
    found = [(record.key.decode(), parse_event(record.value, record.headers).data) for record in records]
    assert Counter(
        (key, each.asset, each.asset_uri, each.aliases, each.partition_key) for key, each in found
    ) == {
        ("a", "a", None, ("x", "y"), "k"): 1,
        ("s3://bucket/a", None, "s3://bucket/a", None, None): 1,
        ("s3://bucket/a", None, "s3://bucket/a", None, "k"): 1,
        ("b", "b", None, ("x",), None): 1,
    }


async def test_a_producer_for_a_missing_topic_says_so(installed: Installed) -> None:
    with pytest.raises(TopicMissingError, match=r"asset-events\.none"):
        async with AssetEventProducer(installed.kafka, "/s", topic="asset-events.none"):
            pass


async def test_a_worker_waits_for_its_topic(installed: Installed) -> None:
    from tidegate.runtime.topic_admin import admin_client, create_topics

    worker = new_worker(installed)

    @worker.job("later")
    async def later(run: Run) -> None:
        pass

    async with running(worker), admin_client(installed.kafka) as admin:
        await create_topics(admin, [run_commands_topic("later", 2)])
        await send(installed.kafka, [("run-commands.later", 1, b"k", command("x", job="later").to_bytes())])
        assert await until_ended(installed, 1) == {("run-x", "succeeded"): 1}
