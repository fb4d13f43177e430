"""The states of runs in Redis: a fold of the `runs` topic, by compare-and-set on its offset (rule T3)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from redis.asyncio import Redis

from tidegate.contracts.redis_keys import runs_prefix
from tidegate.contracts.runs import Run

# KEYS[1] log hash, "next": the offset of `runs` up to which this is a fold   KEYS[2] runs hash, run id -> state
# ARGV run ids   -> next or "", then each state or ""
_READ = """
local reply = {redis.call('HGET', KEYS[1], 'next') or ''}
for n = 1, #ARGV do
  reply[n + 1] = redis.call('HGET', KEYS[2], ARGV[n]) or ''
end
return reply
"""

# KEYS[1] log   KEYS[2] runs   KEYS[3] sent zset, run id -> sent at
# ARGV[1] expected next, "" for none   ARGV[2] new next   then per run: id, state or "" to forget it, sent at
# -> 1, or 0 where the fold stands elsewhere and nothing was changed
_WRITE = """
if (redis.call('HGET', KEYS[1], 'next') or '') ~= ARGV[1] then
  return 0
end
for n = 3, #ARGV, 3 do
  if ARGV[n + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[n])
    redis.call('ZREM', KEYS[3], ARGV[n])
  else
    redis.call('HSET', KEYS[2], ARGV[n], ARGV[n + 1])
    redis.call('ZADD', KEYS[3], ARGV[n + 2], ARGV[n])
  end
end
redis.call('HSET', KEYS[1], 'next', ARGV[2])
return 1
"""


PAGE = 500


class Known(NamedTuple):
    """What Redis holds, read in one call."""

    next_offset: int | None
    runs: dict[str, Run]


class RunStore:
    """The runs of one partition of `runs`; its keys share the hash tag `{d<partition>}`."""

    def __init__(self, redis: Redis, namespace: str, partition: int) -> None:
        prefix = runs_prefix(namespace, partition)
        self._redis = redis
        self._log, self._runs, self._sent = prefix + "log", prefix + "runs", prefix + "sent"
        self._read, self._write = redis.register_script(_READ), redis.register_script(_WRITE)

    async def read(self, run_ids: Sequence[str] = ()) -> Known:
        """The fold's offset and the states of `run_ids` that have one, as of one moment."""
        next_offset, *states = await self._read(keys=[self._log, self._runs], args=run_ids)
        runs = {run_id: Run.from_bytes(raw) for run_id, raw in zip(run_ids, states, strict=True) if raw}
        return Known(int(next_offset) if next_offset else None, runs)

    async def write(self, expected: int | None, next_offset: int, changes: Mapping[str, Run | None]) -> bool:
        """Take in `changes` and move to `next_offset`; False where the fold does not stand at `expected`."""
        arguments: list[str | int] = ["" if expected is None else expected, next_offset]
        for run_id, run in changes.items():
            arguments += (run_id, run.to_bytes().decode(), run.sent_at) if run else (run_id, "", 0)
        return bool(await self._write(keys=[self._log, self._runs, self._sent], args=arguments) == 1)

    async def reset(self) -> None:
        """Forget everything, so that the fold starts from the beginning."""
        await self._redis.delete(self._log, self._runs, self._sent)

    async def sent_before(self, before: int) -> AsyncIterator[list[Run]]:
        """Every run that was sent before an instant, oldest first, in pages; runs may be forgotten meanwhile."""
        kept = 0
        while True:
            page = await self._redis.zrangebyscore(self._sent, "-inf", f"({before}", start=kept, num=PAGE)
            if not page:
                return
            names = [str(name) for name in page]
            yield list((await self.read(names)).runs.values())
            left = await self._redis.zmscore(self._sent, names)
            kept += sum(score is not None for score in left)
