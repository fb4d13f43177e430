"""Scripts whose calls go out together: every reply is the answer to its own call, whatever happened to others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, NoScriptError, ResponseError, TimeoutError

from tidegate.runtime import script
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.script import Call, Script
from tidegate_ingest.store import SeenEvents

ECHO = "if ARGV[1] == 'bad' then return redis.error_reply('ERR no') end return {KEYS[1], ARGV[1]}"

SLOW = """
local function now() local time = redis.call('TIME') return time[1] * 1e6 + time[2] end
local until_us = now() + ARGV[1] * 2e5
while now() < until_us do end
return {KEYS[1], ARGV[1]}
"""


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with connect_redis(redis_url) as client:
        yield client


def calls(*texts: str | int) -> list[Call]:
    return [Call([f"{{{number}}}é"], [text]) for number, text in enumerate(texts)]


def replies(*texts: str) -> list[list[str]]:
    return [[f"{{{number}}}é", text] for number, text in enumerate(texts)]


async def test_replies_come_in_the_order_of_calls(redis: Redis) -> None:
    echo = Script(redis, ECHO)
    assert await echo.run([]) == []
    assert await echo.run(calls("a", 7, "é" * 100_000)) == replies("a", "7", "é" * 100_000)


async def test_calls_at_the_same_time_get_their_own_replies(redis: Redis) -> None:
    echo = Script(redis, ECHO)
    found = await asyncio.gather(*(echo.run(calls(str(number), "x")) for number in range(20)))
    assert found == [replies(str(number), "x") for number in range(20)]


async def test_a_call_that_fails_fails_all_and_leaves_no_reply_behind(redis: Redis) -> None:
    echo = Script(redis, ECHO)
    for _ in range(2):
        with pytest.raises(ResponseError, match="no"):
            await echo.run(calls("a", "bad", "b"))
        assert await echo.run(calls("c")) == replies("c")


async def test_a_server_that_does_not_know_the_script_is_told(redis: Redis) -> None:
    echo = Script(redis, ECHO)
    assert await echo.run(calls("a")) == replies("a")
    await redis.script_flush()
    with pytest.raises(NoScriptError):
        await redis.evalsha(echo.sha, 0)
    assert await echo.run(calls("b", "c")) == replies("b", "c")


async def test_calls_that_were_given_up_leave_no_reply_to_the_next(redis: Redis) -> None:
    echo = Script(redis, ECHO)
    assert await echo.run(calls("a")) == replies("a")
    for steps in range(12):
        task = asyncio.create_task(echo.run(calls("given up", "too")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await echo.run(calls("b")) == replies("b")


async def test_a_connection_that_was_closed_fails_once_and_is_made_again(redis: Redis) -> None:
    echo = Script(redis, ECHO)
    assert await echo.run(calls("a")) == replies("a")
    for connection in echo._together._idle:
        assert connection._reader is not None
        connection._reader.feed_eof()
    with pytest.raises(ConnectionError):
        await echo.run(calls("a"))
    assert await echo.run(calls("b", "c")) == replies("b", "c")
    assert len(echo._together._idle) == 1


async def test_a_server_that_does_not_answer_is_not_waited_for(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Script(redis, SLOW)
    assert await slow.run(calls(0)) == replies("0")
    monkeypatch.setattr(script, "ANSWER_S", 0.01)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        await slow.run(calls(1))
    monkeypatch.undo()
    assert await slow.run(calls(0)) == replies("0")


async def test_marks_are_those_of_the_first(redis: Redis) -> None:
    seen = SeenEvents(redis, uuid4().hex, 60)
    assert await seen.remember([]) == {}
    assert await seen.remember([("0a", "p@0"), ("1b", "p@1 name"), ("0a", "p@2")]) == {"0a": "p@0"}
    assert await seen.remember([("1b", "p@3"), ("2c", "p@4")]) == {"1b": "p@1 name"}
    many = [(uuid4().hex, f"p@{number}") for number in range(1_201)]
    assert await seen.remember(many) == {}
    assert await seen.remember(many) == dict(many)
    async for key in redis.scan_iter(f"*seen:{{{many[0][0][0]}}}{many[0][0][1:]}"):
        assert 0 < await redis.ttl(key) <= 60
        break
    else:
        raise AssertionError("a mark is named by its identity, the first digit the hash tag")
