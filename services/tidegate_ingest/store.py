"""Redis: which events were seen within the horizon, and where (rule I2)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic_core import to_json
from redis.asyncio import Redis

from tidegate.runtime.script import Call, Script

# KEYS[1] how the names of the marks begin, itself the name of none   ARGV[1] seconds until they are forgotten
# ARGV[2] JSON: how each goes on, and its text, in turn   -> what each was before, if it was there
REMEMBER: Final = """
local marks, before = cjson.decode(ARGV[2]), {}
for n = 1, #marks, 2 do
  before[(n + 1) / 2] = redis.call('SET', KEYS[1] .. marks[n], marks[n + 1], 'NX', 'GET', 'EX', ARGV[1])
end
return before
"""


class SeenEvents:
    """One key for every event: its identity, and the mark of the record that brought it first.

    The first digit of an identity is the hash tag, so that a few calls of a script do for a batch, of a cluster too.
    """

    def __init__(self, redis: Redis, namespace: str, horizon_s: int) -> None:
        self._script, self._prefix, self._horizon_s = Script(redis, REMEMBER), f"{namespace}:seen:", horizon_s

    async def remember(self, marks: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """Write the marks of identities that have none, in one round trip; of equal identities the first counts.

        Returns what each identity had before this call. Safe to repeat: a repeat returns its own marks.
        """
        by_tag: dict[str, dict[str, str]] = defaultdict(dict)
        for identity, mark in marks:
            by_tag[identity[0]].setdefault(identity[1:], mark)
        if not by_tag:
            return {}
        replies = await self._script.run(
            Call(
                [f"{self._prefix}{{{tag}}}"],
                [self._horizon_s, to_json([each for pair in tagged.items() for each in pair]).decode()],
            )
            for tag, tagged in by_tag.items()
        )
        return {
            tag + rest: before
            for (tag, tagged), reply in zip(by_tag.items(), replies, strict=True)
            for rest, before in zip(tagged, reply, strict=True)
            if before is not None
        }
