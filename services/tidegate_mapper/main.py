"""The mapper process: settings, connections, the loop, and a batch from polled to mapped."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache, partial
from time import monotonic

from aiokafka import ConsumerRecord, TopicPartition
from pydantic import ValidationError

from tidegate.contracts.accepted import AcceptedBatch
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.packing import pack
from tidegate.contracts.placement import contributions_partition, shard_of
from tidegate.contracts.topics import ACCEPTED, CONTRIBUTIONS
from tidegate.runtime import metrics
from tidegate.runtime.consumer import BatchConsumer
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.definitions_view import DefinitionsView, definitions_view
from tidegate.runtime.mapping import Known, Mapped, Plan, batch_bytes, map_event, plan
from tidegate.runtime.positions import Gap, Highs, Position, source_of
from tidegate.runtime.producer import acknowledged_producer, audit_records, send_all
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.service import serve
from tidegate.runtime.settings import Settings
from tidegate.runtime.start_checks import check_installation
from tidegate.runtime.starting import start_from_committed
from tidegate.runtime.state import ServiceState
from tidegate.runtime.topic_admin import admin_client
from tidegate.runtime.unreadable import unreadable_record

SERVICE = "mapper"
CONTRIBUTIONS_AT_ONCE = 2_000
"""After so many they are packed and the event loop has its turn, so that heartbeats go out."""


class Mapper:
    """Turns polled records into records to send; keeps the highs of E1 per partition."""

    def __init__(self, view: DefinitionsView) -> None:
        assert view.installation is not None
        self._view, self._counts = view, view.installation
        self._plan_at = lru_cache(maxsize=16)(self._plan)
        self._known: Known = {}
        self._highs: dict[TopicPartition, Highs] = {}
        self._incarnations: dict[TopicPartition, int] = {}

    def _plan(self, stamp: int) -> Plan:
        view = self._view
        return plan(
            view.jobs_at(stamp).values(),
            view.assets_at(stamp),
            multi_team=view.is_multi_team_at(stamp),
            known=self._known,
        )

    def start(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Go on from what was committed."""
        self._highs = {tp: Highs(position.highs) for tp, position in positions.items()}
        self._incarnations = {tp: position.incarnation for tp, position in positions.items()}

    def position_after(self, tp: TopicPartition, record: ConsumerRecord) -> Position:
        return Position(
            record.offset + 1, record.timestamp, self._highs[tp].snapshot(), self._incarnations[tp]
        )

    async def map_records(self, tp: TopicPartition, records: list[ConsumerRecord]) -> list[Outgoing]:
        """The contributions and audit entries that the records of one partition give."""
        highs = self._highs[tp]
        by_partition: dict[int, list[tuple[int, int, Mapped]]] = defaultdict(list)
        source = source_of(tp, self._incarnations[tp])
        outgoing: list[Outgoing] = []
        audit: list[AuditEntry] = []
        waiting = 0
        stamp = -1
        for record in records:
            position = f"{tp.topic}/{tp.partition}@{record.offset}"
            try:
                packed = AcceptedBatch.from_bytes(record.value or b"")
            except ValidationError as error:
                audit.append(unreadable_record(SERVICE, tp, record, error))
                continue
            metrics.ENTRIES_READ.labels(tp.topic).inc(len(packed.events))
            ordinal = 0
            for event in packed.events:
                if not highs.is_new(packed.source, event.offset):
                    metrics.REPEATS_DROPPED.labels(tp.topic).inc()
                    continue
                if event.definitions != stamp:
                    stamp = event.definitions
                    await self._view.wait_for(stamp)
                    plan_at_stamp = self._plan_at(stamp)
                mapped, refused = map_event(event, plan_at_stamp, position)
                audit += refused
                for each in mapped:
                    shard = shard_of(each.job.id, each.target.placement.key, self._counts.shards)
                    partition = contributions_partition(shard, self._counts.partitions)
                    by_partition[partition].append((record.offset, ordinal, each))
                    ordinal += 1
                waiting += len(mapped)
                if waiting >= CONTRIBUTIONS_AT_ONCE:
                    outgoing += _packed(source, by_partition)
                    by_partition.clear()
                    waiting = 0
                    await asyncio.sleep(0)
        outgoing += _packed(source, by_partition)
        return outgoing + audit_records(audit, self._counts.partitions)


def _packed(source: str, by_partition: Mapping[int, list[tuple[int, int, Mapped]]]) -> list[Outgoing]:
    return [
        Outgoing(CONTRIBUTIONS, partition, None, raw)
        for partition, entries in by_partition.items()
        for raw in pack(entries, partial(batch_bytes, source))
    ]


async def session(settings: Settings, state: ServiceState) -> None:
    """Read, map, send, commit, until stopped."""
    group = f"{settings.namespace}-mapper"
    async with (
        definitions_view(settings.kafka) as view,
        admin_client(settings.kafka) as admin,
        connect_redis(settings.redis) as redis,
        acknowledged_producer(settings.kafka, group) as producer,
    ):
        assert view.installation is not None
        await check_installation(settings, view, admin, redis)
        mapper = Mapper(view)

        async def start(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Gap]:
            places, positions = await start_from_committed(
                consumer, admin, redis, settings, group, partitions
            )
            mapper.start(positions)
            return places

        consumer = BatchConsumer([ACCEPTED], group, settings, state, start)
        async with consumer:
            while not state.stopping.is_set():
                view.raise_if_broken()
                if await consumer.commit_done():
                    crash_point("mapper.committed")
                polled = await consumer.poll()
                if not polled:
                    continue
                crash_point("mapper.read")
                began = monotonic()
                outgoing: list[Outgoing] = []
                for tp, records in polled.items():
                    outgoing += await mapper.map_records(tp, records)
                crash_point("mapper.mapped")
                await send_all(producer, outgoing)
                crash_point("mapper.sent")
                consumer.done({tp: mapper.position_after(tp, records[-1]) for tp, records in polled.items()})
                metrics.BATCH_SECONDS.observe(monotonic() - began)
            await consumer.commit_done(now=True)


def main() -> None:
    serve(SERVICE, Settings(), session)
