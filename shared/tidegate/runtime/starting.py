"""Where a group's partitions start: at what it committed, after a look at whether that is still the same log (E2)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from time import monotonic

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaTimeoutError
from redis.asyncio import Redis

from tidegate.runtime.consumer import BatchConsumer
from tidegate.runtime.gaps import pass_accepted_gaps
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.positions import Gap, Position, committed_positions, decide_start, source_of
from tidegate.runtime.settings import Settings

_LOOK_BACK_DEADLINE_S = 20.0


async def start_from_committed(
    consumer: BatchConsumer,
    admin: AIOKafkaAdminClient,
    redis: Redis,
    settings: Settings,
    group: str,
    partitions: Collection[TopicPartition],
    refused: Mapping[TopicPartition, str] | None = None,
) -> tuple[dict[TopicPartition, int | Gap], dict[TopicPartition, Position]]:
    """Where to read each partition, and the position that stands there; for the `start` of a BatchConsumer.

    A partition that is new to the group starts at its log's beginning; so does one whose gap a person accepted.
    `refused` gives further reasons of the service not to read a partition. Where a gap stays, the position is the
    committed one. Commit `highs` and `incarnation` on with every position.
    """
    refused = refused or {}
    # In this order, since another replica may be starting the same partitions: it commits, then notes that it did.
    started = await started_incarnations(redis, settings, group, partitions)
    committed = of_incarnations(await committed_positions(admin, group, partitions), started)
    bounds = await consumer.bounds(partitions)
    new = {
        tp: Position(bounds[tp][0])
        for tp in partitions
        if not (tp in committed or tp in started or tp in refused)
    }
    if new and await consumer.commit(new):
        committed |= new  # from here on a missing offset means a lost one
    places: dict[TopicPartition, int | Gap] = {}
    positions: dict[TopicPartition, Position] = {}
    for tp in partitions:
        known = committed.get(tp)
        places[tp] = decide_start(known.offset if known else None, *bounds[tp])
        positions[tp] = known or Position(bounds[tp][0], incarnation=started.get(tp, 0))
        if known is None and tp in started:
            reason = "the committed offset is gone: it expired, or the topic was created again"
            places[tp] = Gap(reason, bounds[tp][0], recreated=True)
    continued = {tp: position for tp, position in committed.items() if not isinstance(places[tp], Gap)}
    for tp in await recreated(settings.kafka, continued):
        reason = (
            f"the topic was created again: the record before offset {continued[tp].offset} is another one"
        )
        places[tp] = Gap(reason, bounds[tp][0], recreated=True)
    for tp, reason in refused.items():
        places[tp] = Gap(reason, bounds[tp][0])
    gaps = {tp: (place, positions[tp]) for tp, place in places.items() if isinstance(place, Gap)}
    passed = await pass_accepted_gaps(consumer, redis, settings, group, gaps)
    for tp, position in passed.items():
        places[tp], positions[tp] = position.offset, position
    have_offsets = {tp: position.incarnation for tp, position in (committed | passed).items()}
    await note_started(redis, settings, group, started, have_offsets)
    return places, positions


def _started_key(settings: Settings, group: str) -> str:
    return f"{settings.namespace}:started:{group}"


async def started_incarnations(
    redis: Redis, settings: Settings, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The partitions for which the group once committed an offset, with their incarnations.

    Kafka forgets a group's offsets when it deletes the topic, and so could not tell a topic that was created again
    from a new one.
    """
    in_order = list(partitions)
    if not in_order:
        return {}
    found = await redis.hmget(_started_key(settings, group), [source_of(tp) for tp in in_order])
    return {tp: int(each) for tp, each in zip(in_order, found, strict=True) if each is not None}


def of_incarnations(
    committed: Mapping[TopicPartition, Position], started: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Position]:
    """Committed positions, of the incarnations that were noted where those are later.

    Offsets that a person has reset with another tool say nothing of it, and by an older name of the log all that comes
    would be taken for repeats (E1).
    """
    return {
        tp: replace(position, incarnation=max(position.incarnation, started.get(tp, 0)))
        for tp, position in committed.items()
    }


async def note_started(
    redis: Redis,
    settings: Settings,
    group: str,
    known: Mapping[TopicPartition, int],
    incarnations: Mapping[TopicPartition, int],
) -> None:
    for tp, number in incarnations.items():
        if known.get(tp) != number:
            await redis.hset(_started_key(settings, group), source_of(tp), str(number))


async def recreated(bootstrap: str, positions: Mapping[TopicPartition, Position]) -> set[TopicPartition]:
    """The partitions whose record just before the position has another timestamp than the one that was read there.

    A record that is no longer there (compacted, expired, the position follows a transaction marker) proves nothing.
    """
    looked_for = {tp: position for tp, position in positions.items() if position.offset and position.at}
    if not looked_for:
        return set()
    # What stands before a position may be uncommitted, and may be gone.
    async with log_consumer(
        bootstrap, "tidegate-look-back", isolation="read_uncommitted", most_bytes=64 * 1024
    ) as consumer:
        beginnings = await consumer.beginning_offsets(list(looked_for))
        pending = {tp for tp, position in looked_for.items() if beginnings[tp] < position.offset}
        consumer.assign(list(pending))
        for tp in pending:  # without a pause after assign, which would reset the positions in the background
            consumer.seek(tp, looked_for[tp].offset - 1)
        found: set[TopicPartition] = set()
        deadline = monotonic() + _LOOK_BACK_DEADLINE_S
        while pending:
            if monotonic() > deadline:
                raise KafkaTimeoutError(
                    f"the records before the committed offsets of {pending} could not be read"
                )
            records = await consumer.getmany(*pending, timeout_ms=100)
            for tp in list(pending):
                before = looked_for[tp].offset - 1
                if got := records.get(tp):
                    if got[0].offset == before and got[0].timestamp != looked_for[tp].at:
                        found.add(tp)
                elif await consumer.position(tp) <= before:
                    continue
                consumer.pause(tp)
                pending.discard(tp)
        return found
