"""Redis: which events were seen within the horizon, and where (rule I2)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from redis.asyncio import Redis

from tidegate.runtime.script import Call, Script

# KEYS marks   ARGV[1] seconds until they are forgotten   then the text of each -> what each was before, if it was there
REMEMBER: Final = """
local before = {}
for n, key in ipairs(KEYS) do
  before[n] = redis.call('SET', key, ARGV[n + 1], 'NX', 'GET', 'EX', ARGV[1])
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
            by_tag[identity[0]].setdefault(identity, mark)
        if not by_tag:
            return {}
        replies = await self._script.run(
            Call([self._key(each) for each in tagged], [self._horizon_s, *tagged.values()])
            for tagged in by_tag.values()
        )
        return {
            identity: before
            for tagged, reply in zip(by_tag.values(), replies, strict=True)
            for identity, before in zip(tagged, reply, strict=True)
            if before is not None
        }

    def _key(self, identity: str) -> str:
        return f"{self._prefix}{{{identity[0]}}}{identity[1:]}"
