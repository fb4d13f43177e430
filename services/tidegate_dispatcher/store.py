"""The states of runs in Redis: a fold of the `runs` topic, by compare-and-set on its offset (rule T3).

A state is stored behind a line that says what counts of it: `a` of an active run, `q` of one that waits, `-` of
another; then its job and its key. So what a change does to the counts follows from the state that it replaces (T4).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis

from tidegate.contracts.redis_keys import runs_prefix
from tidegate.contracts.runs import ACTIVE, JobState, Run, RunsRecord, RunState, job_of_key, stored_run
from tidegate.runtime.script import IN_SLICES, Call, Script
from tidegate_dispatcher.decide import Heads, Known, Queue, Wanted

_STATES_OF = """
local function states_of(ids, first, last)
  local states = {}
  for from = first, last, SLICE do
    local some = redis.call('HMGET', KEYS[2], unpack(ids, from, math.min(from + SLICE - 1, last)))
    for n = 1, #some do
      states[#states + 1] = some[n] or ''
    end
  end
  return states
end
"""
"""The runs are read by few commands too."""

# KEYS[1] log hash, "next": the offset of `runs` up to which this is a fold, "at": time of the record before
# KEYS[2] runs hash, run id -> state
# KEYS[3] active hash, job -> how many   KEYS[4] queued hash, job -> how many   KEYS[5] paused hash, job -> state
# KEYS[6] prefix of queues, each a zset "<key>\t<place>\t<run id>" -> when it was asked for; no key has this very
#         name, so that a cluster begins no call while it moves the slot (TRYAGAIN), when queues could seem to be empty
# ARGV[1] most runs to give of a queue   ARGV[2] how many run ids follow   then these
# then per job: id, limit of active runs or -1, how many may end, 1 if it may be resumed
# -> next or "", at or "", {state or ""}, {{1 if paused, active, queued, {states of the first that wait}}}
_READ = (
    IN_SLICES
    + _STATES_OF
    + """
local cap, ids = tonumber(ARGV[1]), tonumber(ARGV[2])
local queues = {}
for n = ids + 3, #ARGV, 4 do
  local job, limit = ARGV[n], tonumber(ARGV[n + 1])
  local active = tonumber(redis.call('HGET', KEYS[3], job) or 0)
  local queued = tonumber(redis.call('HGET', KEYS[4], job) or 0)
  local paused = redis.call('HEXISTS', KEYS[5], job)
  local most = cap
  if limit >= 0 then
    most = math.min(cap, limit - active + tonumber(ARGV[n + 2]))
  end
  local first = {}
  if queued > 0 and most > 0 and (paused == 0 or ARGV[n + 3] == '1') then
    for place, name in ipairs(redis.call('ZRANGE', KEYS[6] .. job, 0, most - 1)) do
      first[place] = string.match(name, '[^\\t]*$')
    end
  end
  queues[#queues + 1] = {paused, active, queued, states_of(first, 1, #first)}
end
local at = redis.call('HGET', KEYS[1], 'at') or ''
return {redis.call('HGET', KEYS[1], 'next') or '', at, states_of(ARGV, 3, ids + 2), queues}
"""
)

# KEYS as above, and KEYS[7] sent zset, run id -> sent at, without those that wait
# ARGV[1] expected next, "" for none   ARGV[2] new next   ARGV[3] new at
# then per change, at most one of each run or job: "run" or "job", id, state or "" to forget it, time by which a run is
# ordered
# -> 1, or 0 where the fold stands elsewhere and nothing was changed
_WRITE = (
    IN_SLICES
    + _STATES_OF
    + """
if (redis.call('HGET', KEYS[1], 'next') or '') ~= ARGV[1] then
  return 0
end
local ids = {}
for n = 4, #ARGV, 4 do
  if ARGV[n] == 'run' then
    ids[#ids + 1] = ARGV[n + 1]
  end
end
local states_before, place = states_of(ids, 1, #ids), 0
local changes_of = {a = {}, q = {}}
local kept, sent, forgotten, unsent = {}, {}, {}, {}
local function count(class, job, change)
  changes_of[class][job] = (changes_of[class][job] or 0) + change
end
local function counts_of(state)
  return string.match(state, '^(.)\\t([^\\t]*)\\t([^\\n]*)\\n')
end
for n = 4, #ARGV, 4 do
  local id, state, at = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3]
  if ARGV[n] == 'job' then
    if state == '' then
      redis.call('HDEL', KEYS[5], id)
    else
      redis.call('HSET', KEYS[5], id, state)
    end
  else
    place = place + 1
    local before = states_before[place]
    if before ~= '' then
      local class, job, key = counts_of(before)
      if class == 'a' then
        count('a', job, -1)
      elseif class == 'q' then
        count('q', job, -1)
        redis.call('ZREM', KEYS[6] .. job, key .. '\\t' .. id)
      end
    end
    if state == '' then
      forgotten[#forgotten + 1] = id
      unsent[#unsent + 1] = id
    else
      kept[#kept + 1] = id
      kept[#kept + 1] = state
      local class, job, key = counts_of(state)
      if class == 'q' then
        count('q', job, 1)
        redis.call('ZADD', KEYS[6] .. job, at, key .. '\\t' .. id)
        unsent[#unsent + 1] = id
      else
        if class == 'a' then
          count('a', job, 1)
        end
        sent[#sent + 1] = at
        sent[#sent + 1] = id
      end
    end
  end
end
in_slices('HSET', KEYS[2], kept)
in_slices('HDEL', KEYS[2], forgotten)
in_slices('ZADD', KEYS[7], sent)
in_slices('ZREM', KEYS[7], unsent)
for class, hash in pairs({a = KEYS[3], q = KEYS[4]}) do
  for job, change in pairs(changes_of[class]) do
    if change ~= 0 and redis.call('HINCRBY', hash, job, change) == 0 then
      redis.call('HDEL', hash, job)
    end
  end
end
redis.call('HSET', KEYS[1], 'next', ARGV[2], 'at', ARGV[3])
return 1
"""
)

# KEYS as above
_RESET = """
for _, job in ipairs(redis.call('HKEYS', KEYS[4])) do
  redis.call('DEL', KEYS[6] .. job)
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[7])
"""

PAGE: Final = 500
NOTHING: Final = Wanted((), {})

Changes = Mapping[str, RunsRecord | None]
"""New states by record key of `runs` (contracts/runs.py), None for a tombstone."""


class RunStore:
    """The runs of one partition of `runs`; its keys share the hash tag `{d<partition>}`."""

    def __init__(self, redis: Redis, namespace: str, partition: int) -> None:
        prefix = runs_prefix(namespace, partition)
        self._redis = redis
        names = ("log", "runs", "active", "queued", "paused", "queue:", "sent")
        self._keys = [prefix + name for name in names]
        self._queued, self._paused, self._sent = (prefix + name for name in ("queued", "paused", "sent"))
        self._read, self._write, self._reset = (Script(redis, text) for text in (_READ, _WRITE, _RESET))

    async def read(self, wanted: Wanted = NOTHING, cap: int = 0) -> Known:
        """The fold's offset, the runs that have a state, and the queues with at most `cap` runs each."""
        arguments: list[str | int] = [cap, len(wanted.run_ids), *wanted.run_ids]
        for job, heads in wanted.heads.items():
            arguments += _heads(job, heads)
        next_offset, at, states, queues = await self._run(self._read, arguments)
        found = zip(wanted.run_ids, states, strict=True)
        return Known(
            int(next_offset) if next_offset else None,
            {run_id: stored_run(state) for run_id, state in found if state},
            {
                job: Queue(bool(paused), active, queued, tuple(map(stored_run, first)))
                for job, (paused, active, queued, first) in zip(wanted.heads, queues, strict=True)
            },
            int(at or 0),
        )

    async def write(self, expected: int | None, next_offset: int, changes: Changes, at: int = 0) -> bool:
        """Take in `changes` and move to `next_offset`; False where the fold does not stand at `expected`.

        `at` is the time of the record before `next_offset`, in milliseconds since 1970, 0 where it is not known.
        """
        arguments: list[str | int] = ["" if expected is None else expected, next_offset, at]
        for name, state in changes.items():
            arguments += _change(name, state)
        return bool(await self._run(self._write, arguments) == 1)

    async def reset(self) -> None:
        """Forget everything, so that the fold starts from the beginning."""
        await self._run(self._reset, ())

    async def paused(self) -> list[JobState]:
        """The jobs that are paused."""
        return [JobState.from_bytes(str(state).encode()) for state in await self._redis.hvals(self._paused)]

    async def jobs_with_queues(self) -> set[str]:
        """The jobs of which runs wait."""
        return set(map(str, await self._redis.hkeys(self._queued)))

    async def sent_before(self, before: int) -> AsyncIterator[list[Run]]:
        """Every run that was sent before an instant, oldest first, in pages; runs may be forgotten meanwhile."""
        kept = 0
        while True:
            page = await self._redis.zrangebyscore(self._sent, "-inf", f"({before}", start=kept, num=PAGE)
            if not page:
                return
            names = [str(name) for name in page]
            yield list((await self.read(Wanted(names, {}))).runs.values())
            left = await self._redis.zmscore(self._sent, names)
            kept += sum(score is not None for score in left)

    async def _run(self, script: Script, arguments: Sequence[str | int]) -> Any:
        (reply,) = await script.run([Call(self._keys, arguments)])
        return reply


def _heads(job: str, heads: Heads) -> tuple[str, int, int, int]:
    return job, -1 if heads.limit is None else heads.limit, heads.ends, int(heads.is_resumed)


def _change(name: str, state: RunsRecord | None) -> tuple[str, str, str, int]:
    if state is None:
        job = job_of_key(name)
        return ("run", name, "", 0) if job is None else ("job", job, "", 0)
    if isinstance(state, JobState):
        return "job", state.job, state.to_bytes().decode() if state.is_paused else "", 0
    waits = state.state is RunState.QUEUED
    counted = "a" if state.state in ACTIVE else "q" if waits else "-"
    ordinal = state.request.ordinal if state.request else 0
    place = (state.partition_key or "", f"{state.offset:016x}{ordinal:016x}")
    line = "\t".join((counted, state.job, *place))
    at = state.asked_at if waits else state.sent_at
    return "run", state.run_id, f"{line}\n{state.to_bytes().decode()}", at
