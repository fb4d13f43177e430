"""Firing, discarding and withdrawing from an open round: records on `contributions`, folded like others (rule R4)."""

from secrets import token_hex
from typing import Literal

from redis.asyncio import Redis

from tidegate.contracts.contributions import OperatorAction
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import contributions_partition, shard_of
from tidegate.contracts.redis_keys import round_key, round_name, shard_prefix
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.core.errors import TidegateError
from tidegate.definitions.routes import UNPARTITIONED
from tidegate.runtime.acting import WAIT_S, Written, write
from tidegate.runtime.definitions_view import definitions_view


class NoSuchRoundError(TidegateError, LookupError):
    """The job has no open round of that key."""


async def act(
    bootstrap: str,
    redis: Redis,
    namespace: str,
    kind: Literal["fire", "discard", "withdraw"],
    job: str,
    key: str | None,
    *,
    by: str,
    event_id: str | None = None,
    wait_s: float = WAIT_S,
) -> Written:
    """Have the rollup fire or discard the open round of (job, key), or withdraw the event `event_id` from it.

    It means the round that is open now: where another one is by the time that the record is read, nothing happens but
    an audit entry. Waits up to `wait_s` seconds for the rollup. Raises DefinitionError for a job that is not defined,
    and NoSuchRoundError.
    """
    async with definitions_view(bootstrap) as view:
        defined, installation = view.defined(job), view.installation
    assert installation is not None
    downstream = UNPARTITIONED if key is None else key
    shard = shard_of(job, downstream, installation.shards)
    partition = contributions_partition(shard, installation.partitions)
    name = round_name(job, defined.incarnation, downstream)
    opened = await redis.hget(round_key(namespace, shard, name), "opened")
    if opened is None:
        of_key = "no open round" if key is None else f"no open round of key {key!r}"
        raise NoSuchRoundError(f"job {job!r} has {of_key}: `tidegate pending {job}` lists those that it has")
    action = OperatorAction(
        kind=kind,
        id=token_hex(8),
        by=by,
        job=job,
        incarnation=defined.incarnation,
        key=downstream,
        opened=str(opened).rpartition(".")[0],
        event_id=event_id,
    )
    log = f"{shard_prefix(namespace, shard)}log"

    async def next_offset() -> int:
        return int(await redis.hget(log, f"next:{partition}") or 0)

    outgoing = Outgoing(CONTRIBUTIONS, partition, None, action.to_bytes())
    return await write(bootstrap, outgoing, "rollup", next_offset, wait_s)
