"""Deadlines of open rounds: ingest, mapper and rollup as processes (rule R4)."""

import asyncio

import pytest

from tests.broker.conftest import Install, Installed, until_async
from tests.broker.events import audit, give
from tests.broker.rounds import (
    SHARDS,
    Run,
    apply,
    arrives,
    regions,
    requests,
    running,
    until_runs,
    until_waiting,
)
from tidegate.core.audit import AuditKind

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def at(install: Install) -> Installed:
    return install(partitions=2, shards=SHARDS)


async def test_b048_a_deadline_fires_what_is_there_with_no_further_event_though_the_rollup_was_restarted(
    at: Installed,
) -> None:
    async with running(at) as rollup:
        await apply(at, regions(after_s=4))
        await give(at, arrives("e1", "us"))
        await until_waiting(at, "all", {"all": 1})
        rollup.kill()
        await asyncio.to_thread(rollup.start().wait_ready)
        await until_runs(at, Run("all", "all", ("e1",)))
        (request,) = await requests(at)
        assert (request.is_partial, request.cause, request.failed) == (True, "deadline", None)
        assert [(each.arrived, each.expected) for each in request.windows] == [(1, 3)]
        await give(at, arrives("e2", "eu"), arrives("e3", "us"))
        await until_waiting(at, "all", {"all": 2})  # of a key that names no date, another round


@pytest.mark.parametrize("then", ["fail", "drop"])
async def test_a_deadline_fails_or_drops_what_is_there_and_says_so(at: Installed, then: str) -> None:
    async with running(at):
        await apply(at, regions(after_s=0.5, then=then))
        await give(at, arrives("e1", "us"), arrives("e2", "eu"))
        kind = AuditKind.DEADLINE_FAILED if then == "fail" else AuditKind.DEADLINE_DROPPED

        async def told() -> list[str]:
            entries = await audit(at, kind)
            return sorted(one["id"] for entry in entries for one in (entry.details or {})["events"])

        async def is_told() -> bool:
            return await told() == ["e1", "e2"]

        await until_async(is_told, "both events to be told of")
        await until_waiting(at, "all", {})
        failed = [each for each in await requests(at) if each.failed is not None]
        assert failed == await requests(at)
        assert bool(failed) is (then == "fail")
