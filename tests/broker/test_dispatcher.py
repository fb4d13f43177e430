"""dispatcher as a process: one command for every run, whatever comes twice, is lost, or is not dead (T1 to T9)."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import time

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from redis.asyncio import Redis

from tests.broker.conftest import Install, Installed, define, delete_topics, read_all, send, until_async
from tests.broker.copies import copy_keys, put_back
from tests.broker.runs import (
    AT,
    JOB,
    MINE,
    PARTITIONS,
    SOURCE,
    TOPIC,
    ask,
    audit_counts,
    commands,
    report,
    request,
    said,
    states,
    stored_runs,
    until_dispatched,
    until_state,
)
from tests.servers.command_line import tidegate
from tests.servers.services import ServiceProcess
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.events import parse_event
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import Run, RunCommand, RunRequestBatch, RunState
from tidegate.contracts.topics import (
    ASSET_EVENTS,
    AUDIT,
    CONTRIBUTIONS,
    RUN_EVENTS,
    RUN_REQUESTS,
    RUNS,
    declared_topics,
    run_commands_topic,
)
from tidegate.core.audit import AuditKind
from tidegate.definitions import Asset, AssetAlias, Job
from tidegate.runtime.positions import Position
from tidegate.runtime.topic_admin import admin_client, create_topics
from tidegate.sdk import Run as WorkerRun
from tidegate.sdk import Worker
from tidegate.sdk.template import render
from tidegate_dispatcher.decide import forgettable

pytestmark = pytest.mark.timeout(180)

STATIC = {"TIDEGATE_INSTANCE_ID": "one"}
"""A member that is killed and comes back takes over at once, also where the broker keeps no session timeouts."""

on_real_servers = pytest.mark.parametrize("backend", ["real"], indirect=True)


@pytest.fixture
async def at(install: Install) -> Installed:
    """Topics with a job that is defined and has a topic for its commands."""
    installed = install(partitions=PARTITIONS, more=(run_commands_topic(JOB, PARTITIONS),))
    await define(installed.kafka, Job(JOB, schedule=None, outlets=[Asset("daily_out")]))
    return installed


async def test_requests_that_come_again_by_their_coordinates_give_one_command(at: Installed) -> None:
    with at.service("dispatcher", **STATIC) as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(5), request(6), request(6, run_id="run-6b", ordinal=1))
        await ask(at, request(5), request(6), request(6, run_id="run-6b", ordinal=1), request(7))
        await ask(at, request(5))
        await until_dispatched(at, 5, 6, 7)
        dispatcher.kill()
        # What was seen is part of the committed offset, so that a repeat is one for the next process too.
        await ask(at, request(7), request(8))
        dispatcher.start().wait_ready()
        await until_dispatched(at, 8)
    found = await commands(at)
    assert sorted(each.run_id for each in found) == ["run-5", "run-6", "run-6b", "run-7", "run-8"]
    first = next(each for each in found if each.run_id == "run-5")
    assert (first.partition_key, first.partition_date, first.attempt) == ("day-5", AT, 1)
    assert first.run_events_partition == MINE
    assert [each.name for each in first.outlets] == ["daily_out"]
    assert first.triggering_asset_events[0].extra == {"n": 5}
    assert await audit_counts(at) == {}


async def test_runs_without_partitions_are_dispatched_worked_off_and_get_the_key_that_they_gave_themselves(
    at: Installed,
) -> None:
    await define(at.kafka, Job(JOB, schedule=None, outlets=[Asset("daily_out"), AssetAlias("made")]))
    worker = Worker(at.kafka, group=at.namespace, namespace=at.namespace)
    said_by_templates: dict[str, str] = {}

    @worker.job(JOB)
    def daily(run: WorkerRun) -> None:
        text = "[{{ partition_key }}] [{% if partition_date %}{{ partition_date | ds }}{% endif %}]"
        said_by_templates[run.run_id] = render(text, run.context())
        if run.run_id == "run-6":
            run.outlet_events["daily_out"].add_partitions("us")
            run.outlet_events[AssetAlias("made")].add(Asset("a"))
        if run.run_id == "run-7":
            run.outlet_events["daily_out"].add_partitions(["us", "eu"])

    async with working(worker):
        with at.service("dispatcher") as dispatcher:
            dispatcher.wait_ready()
            await ask(
                at,
                request(5, partition_key=None, revision=2, partition_date=None),
                request(6, partition_key=None, revision=2),
                request(7, partition_key=None, revision=2),
                request(8, revision=2),
            )
            found = [await until_state(at, f"run-{n}", RunState.SUCCEEDED) for n in (5, 6, 7, 8)]
    assert [each.partition_key for each in found] == [None, "us", None, "day-8"]
    records = await read_all(at.kafka, TOPIC)
    assert Counter(record.key for record in records) == {JOB.encode(): 3, b"day-8": 1}
    assert said_by_templates == {
        "run-5": "[] []",
        "run-6": "[] [2010-03-14]",
        "run-7": "[] [2010-03-14]",
        "run-8": "[day-8] [2010-03-14]",
    }
    events = [
        parse_event(record.value, record.headers).data for record in await read_all(at.kafka, ASSET_EVENTS)
    ]
    assert Counter((each.asset, each.aliases, each.partition_key) for each in events) == {
        ("daily_out", None, None): 1,
        ("daily_out", None, "us"): 2,
        ("daily_out", None, "eu"): 1,
        ("daily_out", None, "day-8"): 1,
        ("a", ("made",), None): 1,
    }
    assert await audit_counts(at) == {}


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


async def test_a_run_id_from_elsewhere_is_audited_and_sends_nothing(at: Installed) -> None:
    with at.service("dispatcher") as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(5))
        await ask(at, request(9, run_id="run-5"))
        await ask(at, request(2, run_id="run-5"), source="contributions/1#1")
        await ask(at, request(10))
        await until_dispatched(at, 5, 10)
    assert await audit_counts(at) == {("run-id-mismatch", "day-9"): 1, ("run-id-mismatch", "day-2"): 1}
    assert len(await commands(at)) == 2


@on_real_servers
async def test_an_owner_that_was_taken_for_dead_does_no_harm_when_it_wakes(at: Installed) -> None:
    short = {"TIDEGATE_SESSION_TIMEOUT_MS": "2000"}
    both = [at.service("dispatcher", name, **short) for name in ("one", "two")]
    stop, asked, turn = asyncio.Event(), [0], asyncio.Lock()

    async def ask_for(records: int) -> None:
        async with turn:
            first = asked[0] + 1
            asked[0] += 10 * records
            batches = [
                RunRequestBatch(source=SOURCE, requests=tuple(request(start + n) for n in range(10)))
                for start in range(first, asked[0], 10)
            ]
            await send(at.kafka, [(RUN_REQUESTS, MINE, None, batch.to_bytes()) for batch in batches])

    async def keep_asking() -> None:
        while not stop.is_set():
            await ask_for(1)

    def was_stopped() -> bool:
        """Whether what an owner had begun did not go through: it was fenced, or saw first that `runs` had moved on."""
        logs = "".join(each.log_tail(10_000) for each in both)
        return "ProducerFenced" in logs or "runs_elsewhere" in logs

    def owners() -> list[ServiceProcess]:
        return [each for each in both if _reads(each, RUN_REQUESTS, MINE)]

    async def is_settled() -> bool:
        return len(owners()) == 1

    with both[0], both[1]:
        asking = asyncio.create_task(keep_asking())
        try:
            for stops in range(6):
                if stops >= 2 and was_stopped():  # now and then it stops between two batches
                    break
                for each in both:
                    each.wait_ready()
                await until_dispatched(at, asked[0] or 1)
                await until_async(is_settled, "one owner", 30)
                (sleeping,) = owners()
                await ask_for(200)
                sleeping.kill(signal.SIGSTOP)
                await until_dispatched(at, asked[0] + 10)
                await until_dispatched(at, asked[0] + 50)
                sleeping.kill(signal.SIGCONT)
        finally:
            stop.set()
            await asking
        await until_dispatched(at, *range(1, asked[0] + 1))
    assert Counter(each.run_id for each in await commands(at)) == {
        f"run-{n}": 1 for n in range(1, asked[0] + 1)
    }
    assert await audit_counts(at) == {}
    assert was_stopped()


def _reads(service: ServiceProcess, topic: str, partition: int) -> bool:
    """Whether the partitions that a service started last are with this one."""
    started = [line for line in service.log_tail(10_000).splitlines() if "partitions_started" in line]
    return bool(started) and f'"{topic}/{partition}@' in started[-1]


async def test_an_emptied_redis_is_filled_again_from_the_log_of_runs(at: Installed) -> None:
    with at.service("dispatcher", **STATIC) as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1), request(2))
        await until_dispatched(at, 1, 2)
        async with Redis.from_url(at.redis) as redis:
            await redis.flushall()
        await ask(at, request(3, run_id="run-1"), request(4))
        await until_dispatched(at, 4)
        assert await stored_runs(at) == {"run-1", "run-2", "run-4"}
        dispatcher.kill()
        async with Redis.from_url(at.redis) as redis:
            await redis.flushall()
        await ask(at, request(5, run_id="run-2"), request(6))
        dispatcher.start()
        await until_dispatched(at, 6)
        assert await stored_runs(at) == {"run-1", "run-2", "run-4", "run-6"}
    assert sorted(each.run_id for each in await commands(at)) == ["run-1", "run-2", "run-4", "run-6"]
    assert await audit_counts(at) == {("run-id-mismatch", "day-3"): 1, ("run-id-mismatch", "day-5"): 1}


async def test_runs_that_were_created_again_stop_the_partition_until_a_person_accepts_it(
    at: Installed,
) -> None:
    with at.service("dispatcher", **STATIC) as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1))
        await until_dispatched(at, 1)
        dispatcher.kill()
        async with admin_client(at.kafka) as admin:
            await delete_topics(admin, [RUNS])
            await create_topics(admin, [each for each in declared_topics(PARTITIONS) if each.name == RUNS])
        # They may have grown past what was known of the old ones, whose one run stood at offset 0.
        since = [past_run(f"since-{n}", n, 1) for n in range(3)]
        await send(at.kafka, [(RUNS, MINE, each.run_id.encode(), each.to_bytes()) for each in since])
        await ask(at, request(2))
        dispatcher.start()
        said = dispatcher.wait_not_ready("gap")
        assert f"runs/{MINE} was created again: the record before offset 1 is another one" in said
        assert f"`tidegate accept-gap dispatcher runs {MINE}`" in said
        assert await stored_runs(at) == {"run-1"}
        assert [each.run_id for each in await commands(at)] == ["run-1"]
        await tidegate(at, "accept-gap", "dispatcher", RUNS, str(MINE), "--redis", at.redis)
        await until_dispatched(at, 1, 2)
        dispatcher.wait_ready()
        assert await stored_runs(at) == {"run-2", "since-0", "since-1", "since-2"}
    entries = [AuditEntry.from_bytes(record.value) for record in await read_all(at.kafka, AUDIT)]
    told = [each for each in entries if each.kind is AuditKind.LOG_GAP]
    assert [(each.details or {})["accepted"] for each in told] == [False, True]
    assert all((each.position or "").startswith(f"runs/{MINE}@") for each in told)


async def test_a_redis_that_went_back_is_brought_up_to_date(at: Installed) -> None:
    mine = f"{at.namespace}:{{d{MINE}}}:*"
    with at.service("dispatcher") as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1))
        await until_dispatched(at, 1)
        await report(at, said("run-1", RunState.RUNNING))
        await until_state(at, "run-1", RunState.RUNNING)
        async with Redis.from_url(at.redis, decode_responses=True) as redis:
            before = await copy_keys(redis, mine)
            await report(at, said("run-1", RunState.SUCCEEDED))
            await ask(at, request(2), request(3))
            await until_dispatched(at, 2, 3)
            await until_state(at, "run-1", RunState.SUCCEEDED)
            await put_back(redis, mine, before)
        # Without the lost writes run 2 would be new, and run 1 could still fail.
        await ask(at, request(4, run_id="run-2"))
        await report(at, said("run-1", RunState.FAILED))
        await ask(at, request(5))
        await until_dispatched(at, 5)
        await report(at, said("run-5", RunState.SUCCEEDED))
        await until_state(at, "run-5", RunState.SUCCEEDED)
        assert await stored_runs(at) == {"run-1", "run-2", "run-3", "run-5"}
        assert dispatcher.metrics()["tidegate_state_mismatches_total"] >= 1
    assert sorted(each.run_id for each in await commands(at)) == ["run-1", "run-2", "run-3", "run-5"]
    final = (await states(at))["run-1"]
    assert final is not None
    assert final.state is RunState.SUCCEEDED
    assert await audit_counts(at) == {("run-id-mismatch", "day-4"): 1}


async def test_what_can_never_be_sent_is_audited_once_and_holds_nobody_up(at: Installed) -> None:
    with at.service("dispatcher") as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1, job="nowhere"), request(2, oversize=9_000_000, events=()), request(3))
        await until_dispatched(at, 3)
        await ask(at, request(1, job="nowhere"), request(4))
        await until_dispatched(at, 4)
    assert await audit_counts(at) == {("dispatch-failed", "day-1"): 1, ("dispatch-failed", "day-2"): 1}
    found = await states(at)
    assert {run_id: run.state.value for run_id, run in found.items() if run} == {
        "run-1": "undeliverable",
        "run-2": "undeliverable",
        "run-3": "sent",
        "run-4": "sent",
    }
    nowhere, oversize = found["run-1"], found["run-2"]
    assert nowhere is not None
    assert oversize is not None
    assert "run-commands.nowhere" in (nowhere.error or "")
    assert "9000000" in (oversize.error or "")
    async with admin_client(at.kafka) as admin:
        assert "run-commands.nowhere" not in await admin.list_topics()


@pytest.mark.slow
@on_real_servers  # the embedded broker creates the topic again when it is sent to
async def test_commands_for_a_topic_that_was_deleted_are_audited_once(at: Installed) -> None:
    other = run_commands_topic("other", PARTITIONS)
    assert partition_of("other", PARTITIONS) == MINE
    async with admin_client(at.kafka) as admin:
        await create_topics(admin, [other])
        with at.service("dispatcher") as dispatcher:
            dispatcher.wait_ready()
            await ask(at, request(1, job="other"), request(2))
            await until_dispatched(at, 2)
            await delete_topics(admin, [other.name])
            await ask(at, request(3, job="other"), request(4))
            await until_dispatched(at, 4, timeout=120)
            await report(at, said("run-4", RunState.SUCCEEDED))
            await until_state(at, "run-4", RunState.SUCCEEDED)
    assert await audit_counts(at) == {("dispatch-failed", "day-3"): 1}
    found = await states(at)
    assert {run_id: run.state.value for run_id, run in found.items() if run} == {
        "run-1": "sent",
        "run-2": "sent",
        "run-3": "undeliverable",
        "run-4": "succeeded",
    }


async def test_reports_move_the_states_of_the_runs_that_they_are_about(at: Installed) -> None:
    with at.service("dispatcher") as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1), request(2), request(3), request(4))
        await until_dispatched(at, 1, 2, 3, 4)
        elsewhere = (MINE + 1) % PARTITIONS
        misplaced = [said(name, RunState.SUCCEEDED).to_bytes() for name in ("run-4", "run-9")]
        await send(at.kafka, [(RUN_EVENTS, elsewhere, JOB.encode(), each) for each in misplaced])
        await until_state(at, "run-4", RunState.SUCCEEDED)
        assert dispatcher.metrics()["tidegate_reports_forwarded_total"] == 2
        await report(
            at,
            said("run-1", RunState.RUNNING),
            said("run-1", RunState.RUNNING),
            said("run-9", RunState.SUCCEEDED),  # of no run that is known
            said("run-2", RunState.FAILED, attempt=2),  # of an attempt that was never started
            b"not json",
            b'{"run_id": "run-2", "state": "succeeded"}',
            said("run-2", RunState.SENT),  # not for workers to say
            said("run-3", RunState.FAILED, error="no data"),
            said("run-3", RunState.SUCCEEDED),  # an end is final
            said("run-1", RunState.SUCCEEDED),
        )
        await until_state(at, "run-1", RunState.SUCCEEDED)
    found = await states(at)
    assert {run_id: (run.state.value, run.error) for run_id, run in found.items() if run} == {
        "run-1": ("succeeded", None),
        "run-2": ("sent", None),
        "run-3": ("failed", "no data"),
        "run-4": ("succeeded", None),
    }
    assert await audit_counts(at) == {("unreadable-record", None): 2}
    assert len(await commands(at)) == 4


async def test_an_unreadable_request_is_audited_and_passed(at: Installed) -> None:
    with at.service("dispatcher") as dispatcher:
        dispatcher.wait_ready()
        await send(at.kafka, [(RUN_REQUESTS, MINE, b"k", raw) for raw in (b"\xff", b"{}", None)])
        await ask(at, request(1))
        await until_dispatched(at, 1)
    assert await audit_counts(at) == {("unreadable-record", None): 3}


def past_run(run_id: str, offset: int, sent_at: int, source: str = SOURCE) -> Run:
    return Run(
        run_id=run_id,
        job=JOB,
        incarnation="test",
        partition_key=run_id,
        generation=1,
        state=RunState.SUCCEEDED,
        source=source,
        offset=offset,
        sent_at=sent_at,
        updated_at=sent_at,
    )


def test_a_run_is_forgotten_when_it_is_old_and_can_never_be_asked_for_again() -> None:
    def left(runs: Sequence[Run], acknowledged: dict[str, int]) -> list[str]:
        return forgettable(runs, 1_000, now=5_000, acknowledged=acknowledged, active_runs_of=lambda _: None)

    old, young = past_run("old", 9, 3_999), past_run("young", 9, 4_000)
    assert left([old, young], {"contributions/0": 10}) == ["old"]
    assert left([old], {"contributions/0": 9}) == []  # the rollup may ask for offset 9 again
    assert left([old], {}) == []
    assert left([old], {"contributions/1": 10}) == []
    again = past_run("again", 9, 3_999, source="contributions/0~1#0")  # of a log that began anew
    assert left([again], {"contributions/0": 10}) == []
    assert left([again], {"contributions/0~1": 10}) == ["again"]


@pytest.mark.slow
@on_real_servers
async def test_old_runs_get_tombstones(at: Installed) -> None:
    horizon = {"TIDEGATE_DEDUPE_HORIZON_S": "60"}
    with at.service("dispatcher", **horizon) as dispatcher:
        dispatcher.wait_ready()
    long_ago = int(time() * 1000) - 3_600_000
    old = [past_run("forgotten", 5, long_ago), past_run("may-come-again", 10, long_ago)]
    await send(at.kafka, [(RUNS, MINE, each.run_id.encode(), each.to_bytes()) for each in old])
    rollup = AIOKafkaConsumer(
        bootstrap_servers=at.kafka, group_id=f"{at.namespace}-rollup", enable_auto_commit=False
    )
    await rollup.start()
    rollup.assign([TopicPartition(CONTRIBUTIONS, 0)])
    await rollup.commit({TopicPartition(CONTRIBUTIONS, 0): Position(10).to_kafka()})
    await rollup.stop()

    async def is_forgotten() -> bool:
        return (await states(at)).get("forgotten", old[0]) is None

    with at.service("dispatcher", **horizon) as dispatcher:
        await ask(at, request(6))
        await until_dispatched(at, 6)
        await until_async(is_forgotten, "a tombstone", 60)
        assert await stored_runs(at) == {"may-come-again", "run-6"}
        await ask(at, request(7))
        await until_dispatched(at, 7)
    assert {run_id for run_id, run in (await states(at)).items() if run} == {
        "may-come-again",
        "run-6",
        "run-7",
    }


@on_real_servers
async def test_b106_a_run_whose_topic_is_missing_is_said_to_be_undeliverable_and_sent_once_it_is_there(
    at: Installed,
) -> None:
    other = run_commands_topic("other", PARTITIONS)
    assert partition_of("other", PARTITIONS) == MINE
    with at.service("dispatcher") as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1, job="other"), request(2))
        await until_dispatched(at, 2)
        shown = (await tidegate(at, "runs", "other", "--state", "undeliverable")).done
        assert "run-1" in shown
        assert "run-commands.other" in shown
        assert (await tidegate(at, "redrive", "--run", "run-2")).refused
        assert (await tidegate(at, "redrive", "--run", "run-9")).refused
        again = await tidegate(at, "redrive", "--run", "run-1", "--by", "ana")
        assert again.done.startswith("redrive run-1: done")  # and it fails again: the topic is still missing
        async with admin_client(at.kafka) as admin:
            await create_topics(admin, [other])
        redriven = await tidegate(at, "redrive", "--run", "run-1", "--by", "ana")
        assert redriven.done.startswith("redrive run-1: done")
        assert (await tidegate(at, "redrive", "--run", "run-1")).refused
        found = [RunCommand.from_bytes(each.value) for each in await read_all(at.kafka, other.name)]
    assert [(each.run_id, each.partition_key, each.windows) for each in found] == [
        ("run-1", "day-1", request(1).windows)
    ]
    assert await audit_counts(at) == {("dispatch-failed", "day-1"): 2, ("run-redriven", "day-1"): 2}


@on_real_servers
async def test_b114_a_dispatcher_that_is_fenced_within_a_transaction_says_so_and_starts_again(
    at: Installed,
) -> None:
    short = {"TIDEGATE_SESSION_TIMEOUT_MS": "2000"}
    older = at.service("dispatcher", "older", TIDEGATE_CRASH_POINT="transaction.produced:2:stop", **short)
    newer = at.service("dispatcher", "newer", **short)
    with older:
        older.wait_ready()
        await ask(at, request(1))
        await until_dispatched(at, 1)
        await ask(at, request(2))  # the transaction that holds its command is written, and never ends
        with newer:
            await until_dispatched(at, 2)
            older.kill(signal.SIGCONT)

            async def is_noticed() -> bool:
                return older.metrics().get("tidegate_fenced_total") == 1

            await until_async(is_noticed, "the older dispatcher to notice", 30)
            older.wait_ready(30)
            assert "partition_fenced" in older.log_tail(200)
        # And it does its work again.
        await ask(at, request(3))
        await until_dispatched(at, 1, 2, 3)
    assert await audit_counts(at) == {}
