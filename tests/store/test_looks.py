"""One look of `tidegate check` at a real Redis, beside logs that are given."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from redis.asyncio import Redis

from tests.unit.test_definitions_view import job_record, record
from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.runtime import agreement
from tidegate.runtime.agreement import Code, Difference, Repair, compare
from tidegate.runtime.definitions_view import DefinitionsView

pytestmark = pytest.mark.parametrize("redis_url", ["real"], indirect=True)


class Logs:
    """Every log is read to its end, committed and cut there at once, and grows by one record before and after each look
    at it; transactions on them are seen as committed three records late."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._at = redis, 10

    async def grow(self) -> int:
        self._at += 1
        for key, field in (("{0}", "next:0"), ("{d0}", "next")):
            await self._redis.hset(f"t:{key}:log", field, str(self._at))
        return self._at

    async def _look(self) -> int:
        seen = await self.grow()
        await self.grow()
        return seen

    @asynccontextmanager
    async def consumer(self, *_: str, isolation: str = "read_committed") -> AsyncIterator["_Consumer"]:
        yield _Consumer(self._look, 0 if isolation == "read_uncommitted" else 3)

    async def list_consumer_group_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        seen = await self._look()
        return {tp: OffsetAndMetadata(seen, "") for tp in partitions}


class _Consumer:
    def __init__(self, look: Any, lag: int) -> None:
        self._look, self._lag = look, lag

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, await self._look())

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, await self._look() - self._lag)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        await client.flushall()
        yield client


async def look(redis: Redis, view: DefinitionsView, monkeypatch: pytest.MonkeyPatch) -> list[Difference]:
    logs = Logs(redis)
    await logs.grow()
    monkeypatch.setattr(agreement, "log_consumer", logs.consumer)
    return await compare("", redis, "t", view, logs)  # type: ignore[arg-type]


def view_of_one_shard() -> DefinitionsView:
    view = DefinitionsView()
    body = Installation(partitions=1, shards=1).model_dump()
    found = DefinitionRecord(kind="installation", id="tidegate", incarnation="a1", body=body)
    view.apply(record(0, INSTALLATION_KEY, found.to_bytes()))
    return view


async def test_what_moves_while_it_is_looked_at_agrees(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await look(redis, view_of_one_shard(), monkeypatch) == []


async def test_rounds_are_closed_only_where_the_definition_is_known_to_be_gone(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that lacks a job's plugin knows nothing of what became of the job."""
    view = view_of_one_shard()
    view.apply(job_record(1, "a"))
    view.apply(record(2, "job:deleted", job_record(2, "a").value))
    view.apply(record(3, "job:deleted", None))
    view.apply(record(4, "job:plugin", job_record(4, "a").value))
    view.apply(record(5, "job:plugin", b'{"body": "of a plugin"}'))
    for name in ("copy/a1/k", "copy/a0/k", "deleted/a1/k", "never/a1/k", "plugin/a1/k"):
        await redis.zadd("t:{0}:open", {name: 0})
        await redis.hset(f"t:{{0}}:round:{name}", "opened", "0.0.1")
    found = await look(redis, view, monkeypatch)
    assert {(each.job, each.incarnation, each.code, each.repair, each.other) for each in found} == {
        ("copy", "a0", Code.JOB_CREATED_AGAIN, None, 5),  # its log does not begin at 0
        ("deleted", "a1", Code.JOB_NOT_DEFINED, Repair.CLOSE_JOB, 5),
        ("never", "a1", Code.JOB_NOT_DEFINED, Repair.CLOSE_JOB, 5),
        ("plugin", "a1", Code.JOB_UNREADABLE, None, 5),
    }
    (unreadable,) = (each for each in found if each.code is Code.JOB_UNREADABLE)
    assert str(unreadable).endswith(
        "1 open rounds of job 'plugin' (a1), whose definition cannot be read here"
    )
    assert unreadable.to_do.startswith("install the job's plugins on this machine")
    view.apply(record(6, "job:plugin", None))  # what the machine can read: the job is gone
    found = await look(redis, view, monkeypatch)
    assert [each.repair for each in found if each.job == "plugin"] == [Repair.CLOSE_JOB]
