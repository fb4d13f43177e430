"""The dispatcher's scripts on a Redis, held against runs that are counted anew each time (rules T3, T4)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from tests.queues import known
from tidegate.contracts.runs import JobState, Run, RunRequest, RunsRecord, RunState, record_key
from tidegate_dispatcher.decide import Heads, Wanted
from tidegate_dispatcher.store import PAGE, RunStore

JOBS = ("a", "b.c")
KEYS = (None, "k", "k k", "{k}", "é", "\U0001f30a")
IDS = tuple(f"r{n}" for n in range(8))
NAMESPACE = "t"


def run(run_id: str, job: str, key: str | None, state: RunState, at: int) -> Run:
    request = RunRequest(
        offset=1,
        ordinal=0,
        run_id=run_id,
        job=job,
        incarnation="i",
        revision=1,
        partition_key=key,
        generation=1,
        windows=(),
        events=(),
    )
    return Run(
        run_id=run_id,
        job=job,
        incarnation="i",
        partition_key=key,
        generation=1,
        state=state,
        source="contributions/0#0",
        offset=1,
        asked_at=at,
        sent_at=at + 1,
        updated_at=at + 1,
        request=request if state is RunState.QUEUED else None,
    )


runs = st.builds(
    # The job and the key of a run never change while it waits.
    lambda number, state, at: run(
        IDS[number], JOBS[number % len(JOBS)], KEYS[number % len(KEYS)], state, 1_700_000_000_000 + at
    ),
    st.integers(0, len(IDS) - 1),
    st.sampled_from(list(RunState)),
    st.integers(0, 3),
)
pauses = st.builds(
    lambda job, is_paused: JobState(job=job, is_paused=is_paused, by="ana", at=1),
    st.sampled_from(JOBS),
    st.booleans(),
)
changes = st.tuples(runs | pauses, st.booleans())
"""A state, and whether it is forgotten instead."""
heads = st.builds(Heads, st.none() | st.integers(0, 4), st.integers(0, 3), st.booleans())


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@asynccontextmanager
async def emptied(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url, decode_responses=True) as redis:
        await redis.flushall()
        yield redis


async def dump(redis: Redis, prefix: str) -> dict[str, Any]:
    """Every key, with what it holds."""
    found: dict[str, Any] = {}
    for key in await redis.keys(prefix + "*"):
        is_hash = await redis.type(key) == "hash"
        read: Callable[..., Awaitable[Any]] = redis.hgetall if is_hash else redis.zrange
        found[key] = await read(key) if is_hash else await read(key, 0, -1, withscores=True)
    return found


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # each is dozens of calls
@given(
    st.lists(st.lists(changes, max_size=6), max_size=8),
    st.fixed_dictionaries(dict.fromkeys(JOBS, heads)),
    st.integers(1, 5),
)
def test_the_store_holds_what_the_states_say_however_they_were_cut_into_batches(
    redis_url: str,
    runner: asyncio.Runner,
    batches: list[list[tuple[RunsRecord, bool]]],
    of_jobs: dict[str, Heads],
    cap: int,
) -> None:
    async def hold() -> None:
        async with emptied(redis_url) as redis:
            store, single = (RunStore(redis, NAMESPACE, partition) for partition in (0, 1))
            there: dict[str, Run] = {}
            paused: set[str] = set()
            stands: int | None = None
            at = 0
            wanted = Wanted(IDS, of_jobs)
            for batch in batches:
                taken = {record_key(state): None if is_gone else state for state, is_gone in batch}
                for name, state in taken.items():
                    if isinstance(state, JobState):
                        (paused.add if state.is_paused else paused.discard)(state.job)
                    elif state is None:
                        there.pop(name, None)
                        paused.discard(name.removeprefix("job:"))
                    else:
                        there[name] = state
                assert await store.write(stands, at + 1, taken)
                for name, state in taken.items():
                    assert await single.write(stands, at, {name: state})
                    stands = at
                assert await single.write(stands, at + 1, {})
                stands = at = at + 1
                assert await store.read(wanted, cap) == known(list(there.values()), paused, wanted, cap, at)
            waits = {each.job for each in there.values() if each.state is RunState.QUEUED}
            assert await store.jobs_with_queues() == waits
            other = await dump(redis, f"{NAMESPACE}:{{d1}}:")
            found = await dump(redis, f"{NAMESPACE}:{{d0}}:")
            assert {key.replace("{d0}", "{d1}"): value for key, value in found.items()} == other
            await store.reset()
            assert await dump(redis, f"{NAMESPACE}:{{d0}}:") == {}

    runner.run(hold())


def test_a_write_that_expects_another_place_changes_nothing(redis_url: str, runner: asyncio.Runner) -> None:
    async def hold() -> None:
        async with emptied(redis_url) as redis:
            store = RunStore(redis, NAMESPACE, 0)
            first = run("r1", "a", "k", RunState.QUEUED, 5)
            assert await store.write(None, 7, {"r1": first})
            before = await dump(redis, NAMESPACE)
            for wrong in (None, 6, 8):
                assert not await store.write(wrong, 9, {"r1": None})
            assert await dump(redis, NAMESPACE) == before

    runner.run(hold())


def test_runs_are_paged_by_when_they_were_sent_and_those_that_wait_are_left_out(
    redis_url: str, runner: asyncio.Runner
) -> None:
    async def hold() -> list[str]:
        async with emptied(redis_url) as redis:
            store = RunStore(redis, NAMESPACE, 0)
            states = [RunState.SENT, RunState.QUEUED, RunState.SUCCEEDED]
            made = [run(f"r{n:04}", "a", None, states[n % 3], 2 * PAGE - n) for n in range(2 * PAGE)]
            assert await store.write(None, 1, {each.run_id: each for each in made})
            return [each.run_id async for page in store.sent_before(2 * PAGE - 100) for each in page]

    found = runner.run(hold())
    # Run n was sent at 2 * PAGE - n + 1.
    assert found == [f"r{n:04}" for n in range(2 * PAGE - 1, 101, -1) if n % 3 != 1]
