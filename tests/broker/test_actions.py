"""What people do to open rounds: ingest, mapper and rollup as processes, and the command line (rule R4)."""

import asyncio
import subprocess
import sys

import pytest

from tests.broker.conftest import Install, Installed
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


async def tidegate(at: Installed, *arguments: str) -> str:
    where = ("--kafka", at.kafka, "--redis", at.redis, "--namespace", at.namespace)
    command = [sys.executable, "-m", "tidegate.cli", *arguments, *where]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    return f"{done.returncode} {done.stdout}{done.stderr}"


async def test_b043_an_event_that_is_withdrawn_counts_no_more_but_a_new_one_of_its_member_does(
    at: Installed,
) -> None:
    async with running(at):
        await apply(at, regions())
        await give(at, arrives("e1", "us"), arrives("e2", "eu"))
        await until_waiting(at, "all", {"all": 2})
        assert (await tidegate(at, "withdraw", "all", "all", "e2", "--by", "ana")).startswith("0 ")
        await until_waiting(at, "all", {"all": 1})
        await give(at, arrives("e2", "eu"), arrives("e3", "apac"))
        await until_waiting(at, "all", {"all": 2})
        await give(at, arrives("e4", "eu"))
        await until_runs(at, Run("all", "all", ("e1", "e3", "e4")))
    (entry,) = await audit(at, AuditKind.MEMBER_WITHDRAWN)
    assert entry.event_id == "e2"
    assert (entry.details or {})["by"] == "ana"


async def test_people_fire_and_discard_rounds_and_are_told_where_there_is_none(at: Installed) -> None:
    async with running(at):
        await apply(at, regions())
        await give(at, arrives("e1", "us"))
        await until_waiting(at, "all", {"all": 1})
        assert (await tidegate(at, "discard", "all", "all", "--by", "ana")).startswith(
            "0 discard all all: done"
        )
        await until_waiting(at, "all", {})
        said = await tidegate(at, "fire", "all", "all")
        assert said.startswith("2 ")
        assert "no open round of key 'all'" in said
        await give(at, arrives("e2", "us"), arrives("e3", "eu"))
        await until_waiting(at, "all", {"all": 2})
        assert (await tidegate(at, "fire", "all", "all", "--by", "ana")).startswith("0 fire all all: done")
        await until_runs(at, Run("all", "all", ("e2", "e3")))
        (request,) = await requests(at)
        assert (request.is_partial, request.cause, request.generation) == (True, "manual", 1)
    entries = await audit(at, AuditKind.ROUND_DISCARDED, AuditKind.ROUND_FIRED)
    assert sorted((each.kind.value, (each.details or {})["by"]) for each in entries) == [
        ("round-discarded", "ana"),
        ("round-fired", "ana"),
    ]
