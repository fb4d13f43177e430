"""A partition of the dispatcher between `runs` and Redis, whichever of the two was set back (rules T3, T7).

Redis is a real one; `runs` is a list, since what Kafka does is no part of it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from aiokafka.structs import RecordMetadata, TopicPartition
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.runs import (
    JobState,
    Run,
    RunRequest,
    RunsRecord,
    RunState,
    read_runs_record,
    record_key,
)
from tidegate.contracts.topics import AUDIT, RUNS
from tidegate.core.audit import AuditKind
from tidegate.runtime.settings import Settings
from tidegate_dispatcher.decide import Surroundings
from tidegate_dispatcher.partition import DispatcherPartition, RunsLostError, RunsTakenOverError
from tidegate_dispatcher.store import NOTHING, RunStore

NAMESPACE = "t"


class Log:
    """Partition 0 of `runs`, with one transaction after the other. Record n is of time `made` + n."""

    def __init__(self, *states: RunsRecord, made: int = 1_000) -> None:
        self.records: list[tuple[str, bytes | None]] = [
            (record_key(each), each.to_bytes()) for each in states
        ]
        self.beginning, self.made = 0, made
        self.elsewhere: list[Outgoing] = []

    async def bounds(self) -> tuple[int, int]:
        return self.beginning, len(self.records)

    async def is_another(self, stands: int, at: int) -> bool:
        return self.beginning < stands and at not in (0, self.made + stands - 1)

    async def read(
        self, start: int, end: int
    ) -> AsyncIterator[tuple[int, int, dict[str, RunsRecord | None]]]:
        assert start >= self.beginning
        for offset in range(start, end):
            key, value = self.records[offset]
            state = None if value is None else read_runs_record(key, value)
            yield offset + 1, self.made + offset, {key: state}

    async def commit(self, records: Sequence[Outgoing], offsets: Mapping[Any, Any], _: str) -> list[Any]:
        first = len(self.records)
        self.records += [((each.key or b"").decode(), each.value) for each in records if each.topic == RUNS]
        self.elsewhere += [each for each in records if each.topic != RUNS]
        tp = TopicPartition("runs", 0)
        return [
            RecordMetadata("runs", 0, tp, n, self.made + n, 1, 0) for n in range(first, len(self.records))
        ]


def run(run_id: str, state: RunState, sent_at: int = 1) -> Run:
    return Run(
        run_id=run_id,
        job="a",
        incarnation="i",
        generation=1,
        state=state,
        source="contributions/0#0",
        offset=1,
        sent_at=sent_at,
        updated_at=sent_at,
    )


def partition(redis: Redis, log: Log) -> DispatcherPartition:
    async def limits_of(_: object) -> dict[str, int]:
        return {}

    owned = DispatcherPartition(0, 1, Settings(namespace=NAMESPACE), redis, "t-dispatcher", limits_of)
    owned._log = owned._transactions = log  # type: ignore[assignment]
    return owned


def on(url: str, test: Callable[[Redis, RunStore], Coroutine[Any, Any, None]]) -> None:
    async def hold() -> None:
        async with Redis.from_url(url, decode_responses=True) as redis:
            await redis.flushall()
            await test(redis, RunStore(redis, NAMESPACE, 0))

    asyncio.run(hold())


def test_what_is_forgotten_is_decided_by_what_runs_says_also_where_redis_was_set_back(redis_url: str) -> None:
    def gone(runs: Collection[Run]) -> list[str]:
        return [each.run_id for each in runs if each.state is RunState.SENT]

    async def hold(redis: Redis, store: RunStore) -> None:
        over, goes_on = run("over", RunState.SENT), run("goes-on", RunState.SENT)
        log = Log(over, goes_on, run("goes-on", RunState.RUNNING))
        owned = partition(redis, log)
        await owned.catch_up()
        await store.reset()
        assert await store.write(None, 2, {"over": over, "goes-on": goes_on})
        pages = [gone(page) async for page in owned.sent_before(2)]
        assert [sorted(page) for page in pages] == [["goes-on", "over"]]
        for page in pages:
            await owned.forget(page, gone)
        assert log.records[3:] == [("over", None)]
        assert (await store.read(NOTHING)).next_offset == 4
        left = [each async for page in owned.sent_before(2) for each in page]
        assert [(each.run_id, each.state) for each in left] == [("goes-on", RunState.RUNNING)]

    on(redis_url, hold)


def test_a_redis_that_knows_more_than_runs_holds_is_left_as_it_is_until_it_shall_begin_anew(
    redis_url: str,
) -> None:
    async def hold(redis: Redis, store: RunStore) -> None:
        seen, waits = run("seen", RunState.SUCCEEDED), run("new", RunState.SENT, sent_at=2)
        await partition(redis, Log(seen, seen, seen)).catch_up()
        owned = partition(redis, Log(waits))  # created again, and begun
        lost = await owned.catch_up()
        assert lost is not None
        assert (lost.gap.beginning, lost.known_up_to) == (0, 3)
        assert "runs/0 ends at offset 1, but its runs are known up to 3" in lost.gap.reason
        assert [each async for each in owned.sent_before(9)] == [[seen]]
        await owned.begin_anew(lost.gap.beginning)
        assert await owned.catch_up() is None
        assert [each async for each in owned.sent_before(9)] == [[waits]]

    on(redis_url, hold)


@pytest.mark.parametrize("is_emptied", [False, True])
def test_runs_that_begin_anew_in_mid_work_end_it_and_redis_keeps_what_it_knew(
    redis_url: str, is_emptied: bool
) -> None:
    """Whether it is the answer to a transaction that tells, or the look for what Redis has lost."""

    async def hold(redis: Redis, store: RunStore) -> None:
        seen = run("seen", RunState.SUCCEEDED)
        log = Log(seen, seen, seen)
        owned = partition(redis, log)
        await owned.catch_up()
        log.records.clear()
        if is_emptied:
            await store.reset()
        with pytest.raises(RunsLostError, match=r"runs/0 .* created again"):
            await owned.forget(["seen"], lambda runs: ["seen"])
        assert (await store.read(NOTHING)).next_offset == (None if is_emptied else 3)

    on(redis_url, hold)


@pytest.mark.parametrize("is_by_its_own_writes", [False, True])
def test_runs_that_were_created_again_and_have_grown_past_what_is_known_are_a_gap(
    redis_url: str, is_by_its_own_writes: bool
) -> None:
    """Whether the time of the last record was read or acknowledged."""

    async def hold(redis: Redis, store: RunStore) -> None:
        seen, others = run("seen", RunState.SENT), [run(f"r{n}", RunState.SENT) for n in range(5)]
        log = Log(seen) if is_by_its_own_writes else Log(seen, seen)
        owned = partition(redis, log)
        await owned.catch_up()
        if is_by_its_own_writes:
            await owned.forget(["seen"], lambda runs: ["seen"])
        assert await partition(redis, log).catch_up() is None
        lost = await partition(redis, Log(*others, made=9_000)).catch_up()
        assert lost is not None
        assert (lost.gap.beginning, lost.known_up_to) == (0, 2)
        assert "runs/0 was created again: the record before offset 2 is another one" in lost.gap.reason
        assert (await store.read(NOTHING)).next_offset == 2

    on(redis_url, hold)


@pytest.mark.parametrize(("known", "is_gap"), [(0, True), (2, True), (3, False), (4, False)])
def test_records_that_were_removed_before_they_were_known_are_a_gap_that_is_accepted_once(
    redis_url: str, known: int, is_gap: bool
) -> None:
    async def hold(redis: Redis, store: RunStore) -> None:
        states = [run(f"r{n}", RunState.SENT) for n in range(4)]
        if known:
            await partition(redis, Log(*states[:known])).catch_up()
        log = Log(*states)
        log.beginning = 3
        owned = partition(redis, log)
        lost = await owned.catch_up()
        assert (lost is not None) == is_gap
        left = {"r0", "r1", "r2", "r3"}
        if lost is not None:
            assert f"runs/0 begins at offset 3, but its runs are known up to {known}" in lost.gap.reason
            assert (lost.gap.beginning, lost.known_up_to) == (3, known)
            await owned.begin_anew(lost.gap.beginning)
            assert await owned.catch_up() is None
            left = {"r3"}
        assert await partition(redis, log).catch_up() is None
        assert {each.run_id async for page in owned.sent_before(9) for each in page} == left

    on(redis_url, hold)


def test_jobs_stay_paused_when_runs_begins_anew_unless_it_says_otherwise(redis_url: str) -> None:
    def job(name: str, *, is_paused: bool, at: int = 1) -> JobState:
        return JobState(job=name, is_paused=is_paused, by="ana", at=at)

    async def hold(redis: Redis, store: RunStore) -> None:
        paused, resumed = job("a", is_paused=True), job("b", is_paused=True)
        await partition(redis, Log(paused, resumed, run("seen", RunState.SENT))).catch_up()
        since = job("b", is_paused=False, at=2)
        log = Log(since)
        owned = partition(redis, log)
        lost = await owned.catch_up()
        assert lost is not None
        await owned.begin_anew(lost.gap.beginning)
        assert await owned.catch_up() is None
        assert log.records == [("job:b", since.to_bytes()), ("job:a", paused.to_bytes())]
        assert await store.paused() == [paused]
        await store.reset()
        assert await partition(redis, log).catch_up() is None
        assert await store.paused() == [paused]

    on(redis_url, hold)


@pytest.mark.parametrize(
    ("cap", "beyond", "said"), [(2, [0, 0, 0, 0], [5]), (9, [0, 0, 0], []), (9, [1, 0, 1], [7])]
)
def test_the_cap_is_told_once_while_runs_are_left_and_not_where_they_were_only_not_read(
    redis_url: str, cap: int, beyond: list[int], said: list[int]
) -> None:
    """None of seven runs can be sent, and three may be active: as many are read at a time, and fewer under the cap."""

    def waiting(number: int) -> Run:
        run_id = f"r{number}"
        request = RunRequest(
            offset=1,
            ordinal=number,
            run_id=run_id,
            job="a",
            incarnation="i",
            revision=1,
            generation=1,
            windows=(),
            events=(),
        )
        return run(run_id, RunState.QUEUED).model_copy(update={"request": request})

    async def hold(redis: Redis, store: RunStore) -> None:
        log = Log(*map(waiting, range(7)))
        owned = partition(redis, log)
        await owned.catch_up()
        around = Surroundings(0, 1, 5, lambda _: None, lambda _: 3, cap)
        look = {"a"}
        for count in beyond:
            assert look == {"a"}
            look = await owned.process([], [], {}, around, look=look, beyond=+Counter(a=count))
        assert look == set()
        entries = [AuditEntry.from_bytes(each.value or b"") for each in log.elsewhere if each.topic == AUDIT]
        told = [each for each in entries if each.kind is AuditKind.DISPATCH_CAP_REACHED]
        assert [(each.details or {})["total"] for each in told] == said

    on(redis_url, hold)


def test_a_fill_that_another_process_overtakes_is_told_as_that(redis_url: str) -> None:
    async def hold(redis: Redis, store: RunStore) -> None:
        class Overtaken(Log):
            async def read(self, start: int, end: int) -> AsyncIterator[Any]:
                assert await store.write(None, 7, {})
                async for each in super().read(start, end):
                    yield each

        with pytest.raises(RunsTakenOverError, match=r"runs of partition 0 in Redis .* starting again"):
            await partition(redis, Overtaken(run("seen", RunState.SENT))).catch_up()

    on(redis_url, hold)


def test_a_redis_that_does_not_say_where_it_stands_keeps_nothing_else(redis_url: str) -> None:
    """As after `tidegate check --repair`, which takes away the offset alone."""

    async def hold(redis: Redis, store: RunStore) -> None:
        right = run("right", RunState.SENT)
        assert await store.write(None, 2, {"stale": run("stale", RunState.SENT)})
        await redis.delete(f"{NAMESPACE}:{{d0}}:log")
        owned = partition(redis, Log(right))
        assert await owned.catch_up() is None
        assert [each async for each in owned.sent_before(9)] == [[right]]

    on(redis_url, hold)
