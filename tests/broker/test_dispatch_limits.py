"""Which runs go out and which wait: limits, pauses, the cap, runs that people start; on the services as processes."""

from collections import Counter
from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from tests.broker.conftest import Install, Installed, define, read_all, send, until_async
from tests.broker.events import audit as entries
from tests.broker.events import event, give
from tests.broker.runs import (
    JOB,
    SOURCE,
    ask,
    commands,
    report,
    request,
    said,
    until_state,
)
from tests.servers.command_line import tidegate
from tests.servers.services import services
from tidegate import (
    Asset,
    CronPartitionTimetable,
    DayWindow,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
)
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import RunCommand, RunEvent, RunRequestBatch, RunState
from tidegate.contracts.topics import RUN_EVENTS, RUN_REQUESTS, run_commands_topic
from tidegate.core.audit import AuditKind
from tidegate.runtime.job_runs import job_runs
from tidegate.sdk import Run as WorkerRun
from tidegate.sdk import Worker

pytestmark = pytest.mark.timeout(240)

on_real_servers = pytest.mark.parametrize("backend", ["real"], indirect=True)
on_embedded = pytest.mark.parametrize("backend", ["embedded"], indirect=True)


@pytest.fixture
async def at(install: Install) -> Installed:
    """A job with one run at a time, and commands on one partition, so that their order can be seen."""
    installed = install(partitions=2, more=(run_commands_topic(JOB, 1),))
    await define(installed.kafka, Job(JOB, max_active_runs=1))
    return installed


async def order(at: Installed) -> list[str]:
    return [each.run_id for each in await commands(at)]


async def until_order(at: Installed, *wanted: str) -> None:
    async def reached() -> bool:
        return len(await order(at)) >= len(wanted)

    await until_async(reached, f"{len(wanted)} commands", 60)
    assert await order(at) == list(wanted)


async def test_b054_waiting_runs_go_out_as_others_end_though_redis_was_lost_and_nothing_else_comes(
    at: Installed,
) -> None:
    one = {"TIDEGATE_INSTANCE_ID": "one"}
    with at.service("dispatcher", **one) as dispatcher:
        dispatcher.wait_ready()
        await ask(at, request(1))
        await until_order(at, "run-1")
        await ask(at, *(request(n) for n in (2, 3, 4, 5, 6)))
        await until_state(at, "run-6", RunState.QUEUED)
        await report(at, said("run-1", RunState.RUNNING), said("run-1", RunState.SUCCEEDED))
        await until_order(at, "run-1", "run-2")
        dispatcher.kill()
        async with Redis.from_url(at.redis) as redis:
            await redis.flushall()
        await report(at, said("run-2", RunState.FAILED))
        dispatcher.start()
        await until_order(at, "run-1", "run-2", "run-3")
        # A definition that lets more of them run takes effect by itself.
        await define(at.kafka, Job(JOB, max_active_runs=2))
        await until_order(at, "run-1", "run-2", "run-3", "run-4")
        dispatcher.kill()
        await define(at.kafka, Job(JOB))
        dispatcher.start()
        await until_order(at, *(f"run-{n}" for n in range(1, 7)))
    assert await entries(at, *(set(AuditKind) - {AuditKind.FIRED})) == []


@on_real_servers
async def test_b004_one_order_whoever_dispatches(install: Install) -> None:
    """Five runs become ready at one time; by one replica, and by three."""
    names = {"one": "run-commands.one", "three": "run-commands.three"}
    installed = install(partitions=2, more=tuple(run_commands_topic(job, 1) for job in names))
    await define(installed.kafka, *(Job(job, max_active_runs=1) for job in names))
    found: dict[str, list[tuple[str, str]]] = {}
    replicas = [installed.service("dispatcher", f"replica-{number}") for number in range(3)]
    with ExitStack() as stack:
        for job, topic in names.items():
            partition = partition_of(job, 2)
            running = replicas[: 1 if job == "one" else 3]
            for each in running:
                if not each.is_running:
                    stack.enter_context(each)
            for each in running:
                each.wait_ready()
            asked = [
                request(n + 10 * len(found), f"{job}-{key}", job=job, partition_key=key)
                for n, key in enumerate(("k3", "k5", "k1", "k4", "k2"))
            ]
            batch = RunRequestBatch(source=SOURCE, requests=tuple(asked))
            await send(installed.kafka, [(RUN_REQUESTS, partition, None, batch.to_bytes())])
            for count in range(1, 6):

                async def reached(topic: str = topic, count: int = count) -> bool:
                    return len(await read_all(installed.kafka, topic)) >= count

                await until_async(reached, f"{count} commands of {job}", 60)
                sent = [RunCommand.from_bytes(each.value) for each in await read_all(installed.kafka, topic)]
                assert len(sent) == count
                ended = RunEvent(run_id=sent[-1].run_id, job=job, state=RunState.SUCCEEDED)
                await send(installed.kafka, [(RUN_EVENTS, partition, None, ended.to_bytes())])
            found[job] = [(each.partition_key or "", each.triggering_asset_events[0].id) for each in sent]
    assert found["one"] == [(key, "e1") for key in ("k1", "k2", "k3", "k4", "k5")]
    assert found["three"] == found["one"]


@on_real_servers
async def test_b008_runs_of_a_paused_job_wait_and_go_out_in_order_within_its_limit(install: Install) -> None:
    at = install(partitions=2, more=(run_commands_topic(JOB, 1),))
    by_day = RollupMapper(StartOfDayMapper(timezone="UTC"), DayWindow())
    schedule = PartitionedAssetTimetable(Asset("hourly"), by_day)
    days = [f"2026-03-0{day}" for day in range(1, 6)]
    hours = [f"{day}T{hour:02}:00:00" for day in days for hour in range(24)]
    with services(
        ("ingest", "mapper", "rollup", "dispatcher"),
        at.backend,
        at.log_folder,
        {"TIDEGATE_NAMESPACE": at.namespace},
    ):
        await define(at.kafka, Job(JOB, schedule, max_active_runs=2))
        assert "job 'nowhere' is not defined" in (await tidegate(at, "pause", "nowhere")).refused
        assert (await tidegate(at, "pause", JOB, "--by", "ana")).done.startswith(f"pause {JOB}: done")
        # Latest first, so that order does not come by itself.
        await give(at, *(event(key, partition_key=key) for key in reversed(hours)))

        async def all_wait() -> bool:
            return (await job_runs(at.kafka, JOB)).count(RunState.QUEUED) == 5

        await until_async(all_wait, "five complete windows to wait", 90)
        assert await commands(at) == []
        shown = (await tidegate(at, "runs", JOB, "--state", "queued")).done
        assert f"{JOB}: 5 queued" in shown
        assert f"{JOB} was paused by ana" in shown
        asked_for = [run.partition_key for run in (await job_runs(at.kafka, JOB)).runs]
        assert (await tidegate(at, "resume", JOB, "--by", "ben")).done
        for count in range(1, 6):

            async def are_out(wanted: int = min(count + 1, 5)) -> bool:
                return len(await commands(at)) >= wanted

            await until_async(are_out, f"{count + 1} commands", 60)
            found = await commands(at)
            assert len(found) == min(count + 1, 5)  # never more than two that have not ended
            run_id = found[count - 1].run_id
            if count == 1:  # its worker has died, and nobody will report
                assert (await tidegate(at, "fail", run_id, "--by", "ana")).done.startswith(
                    f"fail {run_id}: done"
                )
                again = await tidegate(at, "fail", run_id)
                assert f"run '{run_id}' of job '{JOB}' is failed" in again.refused
            else:
                await report(at, said(run_id, RunState.SUCCEEDED))
        assert (await tidegate(at, "resume", JOB)).done
    assert sorted(each.partition_key or "" for each in found) == days
    assert [each.partition_key for each in found] == asked_for
    told = await entries(at, AuditKind.JOB_PAUSED, AuditKind.JOB_RESUMED, AuditKind.ACTION_WITHOUT_EFFECT)
    assert Counter((each.kind.value, (each.details or {})["by"]) for each in told)[("job-paused", "ana")] == 1
    assert [each.kind.value for each in told] == ["job-paused", "job-resumed", "action-without-effect"]
    (by_hand,) = await entries(at, AuditKind.RUN_FAILED)
    assert (by_hand.partition_key, (by_hand.details or {})["by"]) == (found[0].partition_key, "ana")


@on_embedded
async def test_b007_a_cap_that_is_reached_is_said_once_and_all_runs_arrive(install: Install) -> None:
    shared = run_commands_topic(JOB, 1)
    at = install(partitions=1, more=(shared,))
    jobs = [f"job{n:02}" for n in range(30)]
    await define(at.kafka, *(Job(job, run_commands_topic=shared.name) for job in jobs))
    requests = [request(n, job=jobs[n % 30]) for n in range(600)]
    # One record with most of them: a transaction takes a part of it.
    for some in (requests[:450], requests[450:]):
        raw = RunRequestBatch(source=SOURCE, requests=tuple(some)).to_bytes()
        await send(at.kafka, [(RUN_REQUESTS, 0, None, raw)])
    capped = {"TIDEGATE_INSTANCE_ID": "one", "TIDEGATE_DISPATCH_CAP": "100"}
    with at.service("dispatcher", TIDEGATE_CRASH_POINT="dispatcher.committed:3", **capped) as dispatcher:

        async def is_dead() -> bool:
            return not dispatcher.is_running

        await until_async(is_dead, "the dispatcher to die in the middle of the first record", 60)
    assert len(await commands(at)) == 300
    with at.service("dispatcher", "again", **capped):

        async def all_there() -> bool:
            return len(await commands(at)) >= 600

        await until_async(all_there, "600 commands", 60)
    assert Counter(each.run_id for each in await commands(at)) == {f"run-{n}": 1 for n in range(600)}
    first, second = await entries(at, AuditKind.DISPATCH_CAP_REACHED)
    assert first.details == {
        "evaluated": 100,
        "total": 600,
        "jobs": jobs[:20],
        "more_jobs": 10,
        "partition": 0,
    }
    # A dispatcher that starts anew begins an episode of its own.
    assert (second.details or {})["total"] == 300
    assert await entries(at, *(set(AuditKind) - {AuditKind.DISPATCH_CAP_REACHED, AuditKind.FIRED})) == []


@on_embedded
async def test_b037_a_run_without_a_partition_must_be_asked_for_and_its_events_are_said_to_reach_nobody(
    install: Install,
) -> None:
    at = install(partitions=2, more=(run_commands_topic("hourly_load", 1), run_commands_topic("day_sum", 1)))
    by_day = RollupMapper(StartOfDayMapper(timezone="UTC"), DayWindow())
    worker = Worker(at.kafka, group=at.namespace, namespace=at.namespace)
    ran: list[WorkerRun] = []

    @worker.job("hourly_load")
    def load(run: WorkerRun) -> None:
        ran.append(run)
        if len(ran) == 2:
            worker.stop()

    with services(
        ("ingest", "mapper", "dispatcher"), at.backend, at.log_folder, {"TIDEGATE_NAMESPACE": at.namespace}
    ):
        await define(
            at.kafka,
            Job("hourly_load", CronPartitionTimetable("0 * * * *"), outlets=[Asset("hourly")]),
            Job("day_sum", PartitionedAssetTimetable(Asset("hourly"), by_day)),
            Job("whole", [Asset("other")]),
        )
        for refused, why in (
            (("trigger", "hourly_load"), "the latest is 20"),
            (("trigger", "hourly_load", "--partition-key", "soon"), "is not in the form"),
            (
                ("trigger", "hourly_load", "--partition-key", "2026-03-10T09:00:00", "--unpartitioned"),
                "exclude",
            ),
            (("trigger", "whole", "--partition-key", "k"), "no partitions"),
            (("trigger", "day_sum", "--partition-key", " "), "is empty or blank"),
            (("trigger", "nowhere"), "is not defined"),
            (("trigger", "whole", "--run-id", "job:whole"), "must have 1 to 100 letters"),
        ):
            assert why in (await tidegate(at, *refused)).refused
        whole = ("trigger", "hourly_load", "--unpartitioned", "--run-id", "mine", "--by", "ana")
        assert (await tidegate(at, *whole)).done.startswith("trigger hourly_load: done; run mine")
        assert (await tidegate(at, *whole)).done  # a repeat starts nothing
        keyed = ("trigger", "hourly_load", "--partition-key", "2026-03-10T09:00:00", "--by", "ana")
        assert (await tidegate(at, *keyed)).done
        await worker.run()

        async def is_audited() -> bool:
            return bool(await entries(at, AuditKind.NO_PARTITION_KEY))

        await until_async(is_audited, "an audit entry", 60)
    assert [(run.partition_key, run.run_id == "mine") for run in ran] == [
        (None, True),
        ("2026-03-10T09:00:00", False),
    ]
    (entry,) = await entries(at, AuditKind.NO_PARTITION_KEY)
    assert (entry.job, entry.asset) == ("day_sum", "hourly")
    triggered = await entries(at, AuditKind.RUN_TRIGGERED)
    assert [(each.partition_key, (each.details or {})["by"]) for each in triggered] == [
        (None, "ana"),
        ("2026-03-10T09:00:00", "ana"),
    ]
    assert len(await entries(at, AuditKind.RUN_ID_MISMATCH)) == 1
