"""A real Redis behind calls that wait to be chosen; parts of it can be copied, put back and lost."""

import heapq
import json
import socket
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import hiredis
from redis._parsers import helpers
from redis.commands.core import AsyncCoreCommands
from redis.exceptions import ConnectionError, NoScriptError, ResponseError, TimeoutError

from tests.servers.redis import Redis
from tests.simulation.scheduling import Calls
from tidegate_ingest.store import REMEMBER

ERRORS: Final = (ConnectionError, TimeoutError)
_CALLBACKS: Final[dict[str, Any]] = {
    **vars(helpers)["_RedisCallbacks"],
    **vars(helpers)["_RedisCallbacksRESP2"],
}
_COPY: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('DUMP', key)
end
return found
"""
_PUT_BACK: Final = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  redis.call('DEL', key)
end
for n = 2, #ARGV, 2 do
  redis.call('RESTORE', ARGV[n], 0, ARGV[n + 1])
end
"""
_DUMP: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local read = kind == 'hash' and {'HGETALL', key} or kind == 'zset' and {'ZRANGE', key, 0, -1, 'WITHSCORES'}
    or {'GET', key}
  found[#found + 1] = {key, kind, redis.call(unpack(read))}
end
return found
"""

_REMEMBER: Final = sha1(REMEMBER.encode()).hexdigest()
_FOR_EVER_S: Final = 10_000_000

Command = tuple[Any, ...]
_Commands: Any = AsyncCoreCommands
"""Commands in redis-py's spelling, over an `execute_command` of ours."""
Copy = list[bytes]


class LocalRedis(Redis):
    """A Redis that writes nothing down and also listens on a socket in its folder, which takes half the time."""

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    def command(self) -> list[str]:
        return [*super().command(), "--appendonly", "no", "--unixsocket", str(self.socket)]


class Server:
    """A connection to a Redis that only this simulation uses."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._text, self._bytes = hiredis.Reader(encoding="utf-8"), hiredis.Reader()

    def close(self) -> None:
        self._socket.close()

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands, errors among them."""
        return self._exchange(commands, self._text)

    def _exchange(self, commands: Sequence[Command], reader: "hiredis.Reader") -> list[Any]:
        self._socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = reader.gets()
            if reply is False:
                reader.feed(self._socket.recv(65_536))
            else:
                replies.append(reply)
        return replies

    def copy(self, prefix: str) -> Copy:
        """All keys that start with `prefix`, and what they hold."""
        (found,) = self._exchange([("EVAL", _COPY, 0, _pattern(prefix))], self._bytes)
        return list(found)

    def put_back(self, prefix: str, copy: Copy) -> None:
        """Make the keys that start with `prefix` those of an earlier copy; of an empty one: lose them."""
        (reply,) = self.run([("EVAL", _PUT_BACK, 0, _pattern(prefix), *copy)])
        assert not isinstance(reply, Exception), reply

    def dump(self, prefix: str) -> dict[str, Any]:
        """Every key that starts with `prefix` without that, hashes and sorted sets as mappings."""
        (found,) = self.run([("EVAL", _DUMP, 0, _pattern(prefix))])
        return {
            key.removeprefix(prefix): value
            if kind == "string"
            else dict(zip(value[::2], value[1::2], strict=True))
            for key, kind, value in found
        }


def _pattern(prefix: str) -> str:
    return prefix + "*"  # braces mean nothing in a glob of Redis


def _split(args: tuple[Any, ...]) -> Command:
    return (*str(args[0]).split(), *args[1:])


class Client(_Commands):  # type: ignore[misc]
    """redis.asyncio.Redis, as far as the services use it. Times to live follow the loop's time."""

    def __init__(self, server: Server, calls: Calls) -> None:
        self._server, self._calls = server, calls
        self.expiring: list[tuple[float, str]] = []

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        (reply,) = await self.run([(args, options)])
        return reply

    async def run(self, commands: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        """What commands with their options answer; raises the first error that Redis gives."""

        def perform() -> list[Any]:
            replies = self._server.run([self._lasting(_split(args)) for args, _ in commands])
            return [
                _read(args, options, reply) for (args, options), reply in zip(commands, replies, strict=True)
            ]

        return await self._calls.make("redis", perform)  # type: ignore[no-any-return]

    def _lasting(self, command: Command) -> Command:
        """The command without a time to live, which is noted instead."""
        if command[:2] == ("EVALSHA", _REMEMBER):
            *head, horizon_s, prefix, marks = command
            for rest in json.loads(marks)[::2]:
                heapq.heappush(self.expiring, (self._calls.loop.now + horizon_s, prefix + rest))
            return (*head, _FOR_EVER_S, prefix, marks)
        if command[0] != "SET" or "EX" not in command:
            return command
        at = command.index("EX")
        heapq.heappush(self.expiring, (self._calls.loop.now + command[at + 1], command[1]))
        return (*command[:at], *command[at + 2 :])

    def drop_expired(self) -> None:
        """Remove what has outlived its time."""
        while self.expiring and self.expiring[0][0] <= self._calls.loop.now:
            self._server.run([("DEL", heapq.heappop(self.expiring)[1])])

    def pipeline(self, transaction: bool = True) -> "Pipeline":
        return Pipeline(self)


class Pipeline(_Commands):  # type: ignore[misc]
    """Commands that go out together."""

    def __init__(self, client: Client) -> None:
        self._client, self._commands = client, list[tuple[tuple[Any, ...], dict[str, Any]]]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def execute_command(self, *args: Any, **options: Any) -> Self:
        self._commands.append((args, options))
        return self

    async def execute(self) -> list[Any]:
        return await self._client.run(self._commands) if self._commands else []


def _read(args: tuple[Any, ...], options: dict[str, Any], reply: Any) -> Any:
    if isinstance(reply, hiredis.ReplyError):
        text = str(reply)
        raise NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)
    callback = _CALLBACKS.get(args[0])
    said = {name: value for name, value in options.items() if name != "keys"}  # for caches of clients
    return callback(reply, **said) if callback else reply
