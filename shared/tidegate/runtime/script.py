"""Commands to Redis that go out together, in one round trip; a script among them."""

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from hiredis import pack_command
from redis.asyncio import Connection, Redis, RedisCluster
from redis.exceptions import NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tidegate.runtime.redis import ANSWER_S

Command = tuple[str | int, ...]

IN_SLICES: Final = """
local SLICE = 1000  -- Lua hands over some thousands of values at once, no more
local function in_slices(command, key, arguments, from)
  for first = from or 1, #arguments, SLICE do
    redis.call(command, key, unpack(arguments, first, math.min(first + SLICE - 1, #arguments)))
  end
end
"""
"""For scripts to begin with that write much: a call of a command costs as much as what it does."""

_IDLE: Final[WeakKeyDictionary[Redis, list[Connection]]] = WeakKeyDictionary()
"""By client its connections that nothing uses now. They stay here, and close with the client: so whatever comes and
goes on a client, as partitions do, shares them."""


class Together:
    """Does for one server what a pipeline of redis-py does, for a quarter of its price; of a cluster it uses that.

    A pipeline gets a connection from the pool and gives it back each time, packs commands in Python, and puts a task
    around every write and a timer around every reply.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._idle = _IDLE.setdefault(redis, [])

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """The replies as Redis gives them, in order; raises the first error among them."""
        if not commands:
            return []
        if isinstance(self._redis, Redis):
            return await self._exchange(commands)
        async with self._redis.pipeline(transaction=False) as pipeline:
            for command in commands:
                # By its name: the client of a cluster refuses the method for a script, though not the command.
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute()
            return replies

    async def _exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        pool: Any = self._redis.connection_pool
        connection: Connection = self._idle.pop() if self._idle else await pool.get_connection()
        connection.socket_timeout = None  # an exchange has a limit of its own
        try:
            async with asyncio.timeout(ANSWER_S):
                await connection.send_packed_command(b"".join(map(pack_command, commands)))
                replies = [await _reply(connection) for _ in commands]
        except BaseException as error:
            await connection.disconnect(nowait=True)  # what is still to come answers none of the next calls
            if isinstance(error, TimeoutError):
                raise RedisTimeoutError(f"Redis did not answer within {ANSWER_S} s") from None
            raise
        finally:
            self._idle.append(connection)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies


async def _reply(connection: Connection) -> Any:
    """The answer to one command, be it an error: the others' answers follow."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


class Call(NamedTuple):
    """What one run of the script is given; its keys share a slot."""

    keys: Sequence[str]
    arguments: Sequence[str | int]


class Script:
    """Lua that may be run again with the same arguments: where Redis does not know it, all calls are made anew."""

    def __init__(self, redis: Redis, text: str) -> None:
        self._redis, self._text = redis, text
        self._together = Together(redis)
        self.sha = sha1(text.encode()).hexdigest()
        self.is_on_cluster = isinstance(redis, RedisCluster)

    async def run(self, calls: Iterable[Call]) -> list[Any]:
        """The replies, in order."""
        commands = [("EVALSHA", self.sha, len(keys), *keys, *arguments) for keys, arguments in calls]
        try:
            return await self._together.run(commands)
        except NoScriptError:  # Redis was restarted; some of its nodes may have answered
            await self._redis.script_load(self._text)
            return await self._together.run(commands)
