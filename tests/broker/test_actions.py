"""What people do to open rounds: ingest, mapper and rollup as processes, and the command line (rule R4)."""

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
from tests.servers.command_line import tidegate
from tidegate.core.audit import AuditKind

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def at(install: Install) -> Installed:
    return install(partitions=2, shards=SHARDS)


async def test_b043_an_event_that_is_withdrawn_counts_no_more_but_a_new_one_of_its_member_does(
    at: Installed,
) -> None:
    async with running(at):
        await apply(at, regions())
        await give(at, arrives("e1", "us"), arrives("e2", "eu"))
        await until_waiting(at, "all", {"all": 2})
        assert (await tidegate(at, "withdraw", "all", "all", "e2", "--by", "ana")).done
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
        discarded = await tidegate(at, "discard", "all", "all", "--by", "ana")
        assert discarded.done.startswith("discard all all: done")
        await until_waiting(at, "all", {})
        said = await tidegate(at, "fire", "all", "all")
        assert "no open round of key 'all'" in said.refused
        await give(at, arrives("e2", "us"), arrives("e3", "eu"))
        await until_waiting(at, "all", {"all": 2})
        fired = await tidegate(at, "fire", "all", "all", "--by", "ana")
        assert fired.done.startswith("fire all all: done")
        await until_runs(at, Run("all", "all", ("e2", "e3")))
        (request,) = await requests(at)
        assert (request.is_partial, request.cause, request.generation) == (True, "manual", 1)
    entries = await audit(at, AuditKind.ROUND_DISCARDED, AuditKind.ROUND_FIRED)
    assert sorted((each.kind.value, (each.details or {})["by"]) for each in entries) == [
        ("round-discarded", "ana"),
        ("round-fired", "ana"),
    ]
