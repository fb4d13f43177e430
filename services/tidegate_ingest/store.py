"""Redis: which events were seen within the horizon, and where (rule I2)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from pydantic_core import to_json
from redis.asyncio import Redis

from tidegate.runtime.script import Call, Script

# KEYS two names of none in the slot of the marks: while a cluster moves that between nodes, no call begins (TRYAGAIN),
#   and none takes marks for new that are on the other node
# ARGV[1] seconds until they are forgotten   ARGV[2] how their names begin
# ARGV[3] JSON: how each goes on, and its text, in turn   -> what each was before, if it was there
REMEMBER: Final = """
local marks, before = cjson.decode(ARGV[3]), {}
for n = 1, #marks, 2 do
  before[(n + 1) / 2] = redis.call('SET', ARGV[2] .. marks[n], marks[n + 1], 'NX', 'GET', 'EX', ARGV[1])
end
return before
"""
_MOST: Final = 500
"""Marks in one call, during which Redis answers nobody else."""


class SeenEvents:
    """One key for every event: its identity, and the mark of the record that brought it first.

    The first digit of an identity is the hash tag, so that of a cluster, too, a few calls of a script do for a batch.
    """

    def __init__(self, redis: Redis, namespace: str, horizon_s: int) -> None:
        self._script, self._prefix, self._horizon_s = Script(redis, REMEMBER), f"{namespace}:seen:", horizon_s

    async def remember(self, marks: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """Write the marks of identities that have none, in one round trip.

        Returns what each identity had before; of equal ones the first counts, so the others had its mark. Safe to
        repeat: a repeat returns its own marks.
        """
        calls = [some[at : at + _MOST] for some in self._by_slot(marks) for at in range(0, len(some), _MOST)]
        replies = await self._script.run(self._call(some) for some in calls) if calls else []
        return {
            identity: before
            for some, reply in zip(calls, replies, strict=True)
            for (identity, _), before in zip(some, reply, strict=True)
            if before is not None
        }

    def _by_slot(self, marks: Sequence[tuple[str, str]]) -> Iterable[Sequence[tuple[str, str]]]:
        if not self._script.is_on_cluster:
            return [marks]
        by_tag: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for each in marks:
            by_tag[each[0][0]].append(each)
        return by_tag.values()

    def _call(self, marks: Sequence[tuple[str, str]]) -> Call:
        slot = f"{self._prefix}{{{marks[0][0][0]}}}"
        named = [(f"{{{identity[0]}}}{identity[1:]}", mark) for identity, mark in marks]
        text = to_json(list(chain.from_iterable(named))).decode()
        return Call([slot, f"{slot}:"], [self._horizon_s, self._prefix, text])
