"""`tidegate replay`: a job takes the stored events that came before it was defined (rule D7)."""

import heapq
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from secrets import token_hex
from time import time
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from pydantic import ValidationError

from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.definitions import Installation
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.packing import pack
from tidegate.contracts.placement import contributions_partition, shard_of
from tidegate.contracts.topics import ACCEPTED, CONTRIBUTIONS, DEFINITIONS
from tidegate.core.audit import AuditKind
from tidegate.core.instants import to_ms
from tidegate.runtime.definitions_view import DefinedJob, DefinitionsView, definitions_view
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.mapping import Mapped, Plan, batch_bytes, map_event, plan
from tidegate.runtime.positions import Highs, committed_positions, source_of
from tidegate.runtime.producer import acknowledged_producer, audit_records, send_all
from tidegate.runtime.topic_admin import admin_client

SERVICE: Final = "replay"
_EVENTS_AT_ONCE: Final = 2_000


class Stored(NamedTuple):
    """One event of `accepted-events` with where it stands."""

    log: str
    """As `source_of` names the partition."""
    offset: int
    """Of the packed record."""
    packed: str
    """The source of the packed record, by which repeats are told (rule E1)."""
    event: AcceptedEvent


class Made(NamedTuple):
    """A contribution with its coordinates (rule E1)."""

    source: str
    offset: int
    ordinal: int
    mapped: Mapped


@dataclass(slots=True)
class Replay:
    """What stored events are to a job that they came before: pure, and the same whenever it is done again.

    Coordinates are those of the event on its log, under a name of the replay's own: so a replay that is broken off and
    done again counts nothing twice, as long as rounds remember it (R5). Another revision of the job or another
    `since_ms` would be another replay; whoever takes both knows the events by their ids.
    """

    defined: DefinedJob
    plan: Plan
    """The ways of this job alone."""
    since_ms: int | None = None
    """Events that the broker received earlier are left out, milliseconds since 1970."""
    events: int = 0
    """How many have counted so far."""
    contributions: int = 0
    audit: list[AuditEntry] = field(default_factory=list)
    """Why events of the job's assets did not count; for the caller to send and take out."""
    _highs: dict[str, Highs] = field(default_factory=dict)
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By log the record at hand and the next ordinal in it."""

    def take(self, stored: Stored) -> list[Made]:
        """The contributions of one event; those of a log come in its order."""
        log, offset, event = stored.log, stored.offset, stored.event
        is_new = self._highs.setdefault(log, Highs({})).is_new(stored.packed, event.offset)
        # By the stamp (D24): whatever carries a later one has reached the job, or is about to.
        if not is_new or event.definitions > self.defined.created:
            return []
        if self.since_ms is not None and event.at < self.since_ms:
            return []
        mapped, notes = map_event(event, self.plan, f"{log}@{offset}", SERVICE)
        self.audit += notes
        self.events += bool(mapped)
        self.contributions += len(mapped)
        at, ordinal = self._last.get(log, (-1, 0))
        first = ordinal if at == offset else 0
        self._last[log] = (offset, first + len(mapped))
        source = f"{self._name}/{log}"
        return [Made(source, offset, ordinal, each) for ordinal, each in enumerate(mapped, first)]

    @property
    def _name(self) -> str:
        since = "" if self.since_ms is None else f"@{self.since_ms}"
        return f"replay/{self.defined.job.id}/{self.defined.incarnation}/{self.defined.revision}{since}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay took."""

    job: str
    events: int
    contributions: int
    refused: int
    """Notes in the audit log on events of the job's assets that did not count."""


async def replay(
    bootstrap: str, namespace: str, job: str, *, by: str, since: datetime | None = None
) -> Replayed:
    """Have a job take every stored event that its own definition came after, received at `since` or later.

    They go the job's own ways into `contributions`, as it is defined now, in the order in which the broker received
    them. Events that reached the job when they came are left out, and a repeat counts nothing twice. What ingest lets
    in by the definitions before the job while this runs, as it may for a moment after the job was defined, is taken by
    doing it again. Raises DefinitionError for a job that is not defined.
    """
    async with (
        definitions_view(bootstrap) as view,
        admin_client(bootstrap) as admin,
        acknowledged_producer(bootstrap, "tidegate-replay") as producer,
    ):
        counts = view.installation
        assert counts is not None
        doing = _replay_of(view, job, since)
        partitions = [TopicPartition(ACCEPTED, number) for number in range(counts.partitions)]
        # The mapper names a log that began anew by its count, and so must we (rule E1).
        known = await committed_positions(admin, f"{namespace}-mapper", partitions)
        names = {tp: source_of(tp, known[tp].incarnation if tp in known else 0) for tp in partitions}
        made: list[Made] = []
        refused = 0
        async with log_consumer(bootstrap, "tidegate-replay") as consumer:
            async for stored in _stored_events(consumer, names):
                made += doing.take(stored)
                if len(made) >= _EVENTS_AT_ONCE or len(doing.audit) >= _EVENTS_AT_ONCE:
                    refused += len(doing.audit)
                    await send_all(
                        producer, records_of(made, counts) + audit_records(doing.audit, counts.partitions)
                    )
                    made, doing.audit = [], []
        refused += len(doing.audit)
        done = Replayed(job, doing.events, doing.contributions, refused)
        told = [*doing.audit, _told(done, doing, by, since)]
        await send_all(producer, records_of(made, counts) + audit_records(told, counts.partitions))
        return done


def records_of(made: Iterable[Made], counts: Installation) -> list[Outgoing]:
    """Packed contributions, each on the partition that feeds the shard of its round, in order."""
    by_partition: dict[int, list[Made]] = {}
    for each in made:
        shard = shard_of(each.mapped.job.id, each.mapped.target.placement.key, counts.shards)
        by_partition.setdefault(contributions_partition(shard, counts.partitions), []).append(each)
    return [
        Outgoing(CONTRIBUTIONS, partition, None, raw)
        for partition, entries in by_partition.items()
        for source, some in groupby(entries, key=lambda each: each.source)
        for raw in pack([each[1:] for each in some], partial(_encode, source))
    ]


def _encode(source: str, entries: Sequence[tuple[int, int, Mapped]]) -> bytes:
    return batch_bytes(source, entries, is_replayed=True)


def _replay_of(view: DefinitionsView, job: str, since: datetime | None) -> Replay:
    defined, stamp = view.defined(job), view.next_offset
    ways = plan([defined], view.assets_at(stamp), multi_team=view.is_multi_team_at(stamp))
    return Replay(defined, ways, None if since is None else to_ms(since))


def _told(done: Replayed, doing: Replay, by: str, since: datetime | None) -> AuditEntry:
    said = "" if since is None else f" since {since.isoformat()}"
    return AuditEntry(
        id=token_hex(12),  # every replay is one, though a repeat counts nothing twice
        kind=AuditKind.REPLAYED,
        service=SERVICE,
        at=int(time() * 1000),
        message=f"{by} had job {done.job!r} take {done.events} stored events{said} that came before it was defined",
        job=done.job,
        position=f"{DEFINITIONS}/0@{doing.defined.created}",
        details={
            "by": by,
            "event_count": done.events,
            "contributions": done.contributions,
            "refused": done.refused,
        },
    )


async def _stored_events(
    consumer: AIOKafkaConsumer, names: dict[TopicPartition, str]
) -> AsyncIterator[Stored]:
    """Everything on the logs up to their present ends: each in its order, all in that of receipt."""
    consumer.assign(list(names))
    await consumer.seek_to_beginning(*names)
    ends = await consumer.end_offsets(list(names))
    read: dict[TopicPartition, deque[Stored]] = {tp: deque() for tp in names}
    lacking = set(names)
    heads: list[tuple[int, TopicPartition]] = []
    """The next event of every log, by when it was received."""
    while True:
        lacking -= {tp for tp in lacking if await consumer.position(tp) >= ends[tp]}
        if lacking:
            for tp, records in (await consumer.getmany(*lacking, timeout_ms=100, max_records=100)).items():
                for record in records:
                    read[tp].extend(_unpacked(names[tp], record))
                if read[tp]:
                    lacking.discard(tp)
                    heapq.heappush(heads, (read[tp][0].event.at, tp))
        elif heads:
            _, tp = heapq.heappop(heads)
            yield read[tp].popleft()
            if read[tp]:
                heapq.heappush(heads, (read[tp][0].event.at, tp))
            else:
                lacking.add(tp)
        else:
            return


def _unpacked(log: str, record: ConsumerRecord) -> Iterable[Stored]:
    """The events of a packed record; none of one that cannot be read, which the mapper has audited."""
    try:
        packed = AcceptedBatch.from_bytes(record.value or b"")
    except ValidationError:
        return ()
    return [Stored(log, record.offset, packed.source, event) for event in packed.events]
