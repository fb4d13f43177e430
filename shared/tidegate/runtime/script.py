"""A script in Redis whose calls go out together, in one round trip."""

from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import NoScriptError


class Call(NamedTuple):
    """What one run of the script is given; its keys share a slot."""

    keys: Sequence[str]
    arguments: Sequence[str | int]


class Script:
    """Lua that may be run again with the same arguments: where Redis does not know it, all calls are made anew."""

    def __init__(self, redis: Redis, text: str) -> None:
        self._redis, self._text = redis, text
        self.sha = sha1(text.encode()).hexdigest()

    async def run(self, calls: Iterable[Call]) -> list[Any]:
        """The replies, in order."""
        calls = list(calls)
        try:
            return await self._run(calls)
        except NoScriptError:  # Redis was restarted; some of its nodes may have answered
            await self._redis.script_load(self._text)
            return await self._run(calls)

    async def _run(self, calls: Iterable[Call]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for keys, arguments in calls:
                # By its name: the client of a cluster refuses the method, though not the command.
                pipeline.execute_command("EVALSHA", self.sha, len(keys), *keys, *arguments)
            replies: list[Any] = await pipeline.execute()
            return replies
