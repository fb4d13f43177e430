"""Every key of a namespace in Redis by its kind, and those that have no business there (B105).

A key is live state, or it goes by the times of records inside the scripts, or Redis takes it away in time. What belongs
together is looked at in one call each, so that a rollup that is at work meanwhile seems to do nothing wrong.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from redis.asyncio import Redis

from tidegate.contracts.placement import contributions_partition
from tidegate.contracts.redis_keys import shard_prefix

_PAGE: Final = 500

IN_SHARD: Final = (
    "log",
    "outbox",
    "marks",
    "expiry",
    "seen",
    "open",
    "kept",
    "revisions",
    "due",
    "gone",
    "replays",
    "round",
    "moved",
)
IN_PARTITION: Final = ("log", "runs", "active", "queued", "paused", "queue", "sent")
ALONE: Final = ("installation", "started", "checks")
EXPIRING: Final = {"seen": "event", "accept-gap": "accepted gap"}
"""Keys that have a time to live, with their kinds."""

# KEYS[1] open   [2] marks   [3] expiry   [4] kept   [5] due   [6] outbox   [7] revisions   [8] gone   [9] replays
# KEYS[10] log
# ARGV[1] where the names were found   [2] what every key of the shard begins with   [3...] names
# -> those that lack what belongs to them, as of this moment
_ODD: Final = """
local open, marks, expiry, kept, due, outbox, revisions, gone, replays, log = unpack(KEYS)
local where, prefix, odd, call = ARGV[1], ARGV[2], {}, redis.call
local function is_round(name) return call('EXISTS', prefix .. 'round:' .. name) == 1 end
local is_odd = {
  round = function(name) return is_round(name) and not call('ZSCORE', open, name) end,
  open = function(name) return call('ZSCORE', open, name) and not is_round(name) end,
  due = function(name) return call('ZSCORE', due, name) and not is_round(string.match(name, '/(.*)')) end,
  marks = function(name) return call('HEXISTS', marks, name) == 1 and not call('ZSCORE', expiry, name) end,
  expiry = function(name) return call('ZSCORE', expiry, name) and call('HEXISTS', marks, name) == 0 end,
  kept = function(name) return call('HEXISTS', kept, name) == 1 and call('HEXISTS', marks, name) == 0 end,
  gone = function(name) return call('ZSCORE', gone, name) and call('HEXISTS', revisions, name) == 0 end,
  replays = function(name)
    return call('ZSCORE', replays, name) and call('HEXISTS', log, 'high:' .. name) == 0
  end,
  log = function(name)
    local source = string.match(name, '^high:(replay/.*)$')
    return source and call('HEXISTS', log, name) == 1 and not call('ZSCORE', replays, source)
  end,
  moved = function(name)
    return call('EXISTS', prefix .. 'moved:' .. name) == 1 and call('HEXISTS', outbox, name) == 0
  end,
}
for n = 3, #ARGV do
  if is_odd[where](ARGV[n]) then odd[#odd + 1] = ARGV[n] end
end
return odd
"""


class Lack(StrEnum):
    """What is wrong with a key, or with something in it."""

    ROUND = "round"
    OPEN = "open"
    DUE = "due"
    MARKS = "marks"
    EXPIRY = "expiry"
    KEPT = "kept"
    GONE = "gone"
    REPLAYS = "replays"
    LOG = "log"
    MOVED = "moved"
    # The values above are the kinds of keys in which the script looks; those below are no such kind.
    UNKNOWN = "unknown"
    LASTING = "lasting"


LACKS: Final[Mapping[Lack, str]] = {
    Lack.ROUND: "a round that is not among the open ones",
    Lack.OPEN: "an open round that holds nothing",
    Lack.DUE: "a deadline of no round",
    Lack.MARKS: "a mark of a fired round that never expires",
    Lack.EXPIRY: "a place to expire for no mark",
    Lack.KEPT: "what a fired round held, without its mark",
    Lack.GONE: "a deleted job without its revision",
    Lack.REPLAYS: "a place to expire for no coordinates of a replay",
    Lack.LOG: "coordinates of a replay that never expire",
    Lack.MOVED: "a round to map again that no outbox names",
    Lack.UNKNOWN: "a key that no program makes",
    Lack.LASTING: "a key that should expire and never does",
}


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that lacks what belongs to it."""

    key: str
    """The key that holds it."""
    name: str
    """What it is in the key; empty for the key itself."""
    lack: Lack
    shard: int | None = None


@dataclass(slots=True)
class Census:
    """What the keys of a namespace are."""

    kinds: Counter[str] = field(default_factory=Counter)
    """How many keys there are of each kind."""
    orphans: list[Orphan] = field(default_factory=list)
    is_whole: bool = True
    """False where there are more keys than were looked at."""


def kind_of(key: str, shards: int, partitions: int) -> tuple[str | None, int | None, str]:
    """The kind of a key without its namespace, the shard it is of, and the rest of its name.

    None for the kind where no program makes such a key.
    """
    if key.startswith("{"):
        tag, _, name = key[1:].partition("}:")
        kind, _, rest = name.partition(":")
        if tag.isdecimal() and int(tag) < shards and kind in IN_SHARD:
            return kind, int(tag), rest
        if tag[:1] == "d" and tag[1:].isdecimal() and int(tag[1:]) < partitions and kind in IN_PARTITION:
            return f"dispatcher {kind}", None, ""
        return None, None, name
    kind, _, rest = key.partition(":")
    return EXPIRING.get(kind, kind if kind in ALONE else None), None, rest


async def census(
    redis: Redis, namespace: str, shards: int, partitions: int, most: int = 10_000_000
) -> Census:
    """Every key of the namespace, up to `most` of them, and what in them lacks something."""
    found = Census()
    rounds: dict[tuple[int, str], list[str]] = {}
    lasting: list[str] = []
    prefix = f"{namespace}:"
    async for key in redis.scan_iter(match=f"{prefix}*", count=1_000):
        kind, shard, rest = kind_of(str(key).removeprefix(prefix), shards, partitions)
        found.kinds[kind or "unknown"] += 1
        if kind is None:
            found.orphans.append(Orphan(str(key), "", Lack.UNKNOWN))
        elif shard is not None and kind in ("round", "moved"):
            names = rounds.setdefault((shard, kind), [])
            names.append(rest)
            if len(names) == _PAGE:
                await _look(redis, namespace, shard, partitions, kind, rounds.pop((shard, kind)), found)
        elif kind in EXPIRING.values():
            lasting.append(str(key))
            if len(lasting) == _PAGE:
                await _expiring(redis, lasting, found)
                lasting = []
        if found.kinds.total() >= most:
            found.is_whole = False
            break
    for (shard, kind), names in rounds.items():
        await _look(redis, namespace, shard, partitions, kind, names, found)
    await _expiring(redis, lasting, found)
    for shard in range(shards):
        for kind in ("open", "due", "expiry", "gone", "marks", "kept", "replays", "log"):
            async for names in _names(redis, shard_prefix(namespace, shard) + kind, kind):
                await _look(redis, namespace, shard, partitions, kind, names, found)
    return found


async def _names(redis: Redis, key: str, kind: str) -> AsyncIterator[list[str]]:
    cursor, is_hash = 0, kind in ("marks", "kept", "log")
    while True:
        if is_hash:
            cursor, fields = await redis.hscan(key, cursor, count=_PAGE)
            names = list(map(str, fields))
        else:
            cursor, members = await redis.zscan(key, cursor, count=_PAGE)
            names = [str(name) for name, _ in members]
        if names:
            yield names
        if not int(cursor):
            return


async def _look(
    redis: Redis, namespace: str, shard: int, partitions: int, kind: str, names: Sequence[str], found: Census
) -> None:
    prefix = shard_prefix(namespace, shard)
    outbox = f"outbox:{contributions_partition(shard, partitions)}"
    of_shard = ("open", "marks", "expiry", "kept", "due", outbox, "revisions", "gone", "replays", "log")
    keys = [prefix + name for name in of_shard]
    for name in await redis.eval(_ODD, len(keys), *keys, kind, prefix, *names):
        whole = kind in ("round", "moved")
        key = f"{prefix}{kind}:{name}" if whole else prefix + kind
        found.orphans.append(Orphan(key, "" if whole else str(name), Lack(kind), shard))


async def _expiring(redis: Redis, keys: Sequence[str], found: Census) -> None:
    async with redis.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.ttl(key)
        lives = await pipeline.execute()
    for key, seconds in zip(keys, lives, strict=True):
        if seconds == -1:
            found.orphans.append(Orphan(key, "", Lack.LASTING))
