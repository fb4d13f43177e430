"""The ingest process: settings, connections, the loop, and a batch from polled to decided."""

from collections.abc import Collection, Mapping
from time import monotonic

from aiokafka import TopicPartition

from tidegate.contracts.topics import ASSET_EVENTS, team_events_topic
from tidegate.runtime import metrics
from tidegate.runtime.consumer import Batch, BatchConsumer
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.definitions_view import DefinitionsView, definitions_view
from tidegate.runtime.positions import Gap, Position, source_of
from tidegate.runtime.producer import acknowledged_producer, audit_records, send_all
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.service import serve
from tidegate.runtime.settings import Settings
from tidegate.runtime.start_checks import check_installation
from tidegate.runtime.starting import start_from_committed
from tidegate.runtime.state import ServiceState
from tidegate.runtime.topic_admin import admin_client
from tidegate_ingest.decide import (
    SERVICE,
    Candidate,
    Decided,
    KnownAssets,
    decide,
    read_record,
    unreadable_definition,
)
from tidegate_ingest.store import SeenEvents


class Ingest:
    """Turns polled records into what goes out for them."""

    def __init__(self, view: DefinitionsView, seen: SeenEvents, partitions: int, skew_limit_s: float) -> None:
        self._view, self._seen, self._partitions = view, seen, partitions
        self._skew_limit_ms = int(skew_limit_s * 1000)
        self._assets, self._assets_at = KnownAssets({}), -1
        self.incarnations: dict[TopicPartition, int] = {}

    async def decide(self, polled: Batch) -> Decided:
        stamp, assets = self._view.next_offset, self._known_assets()
        read = [
            read_record(tp, source, record, assets, stamp)
            for tp, records in sorted(polled.items())
            for source in [source_of(tp, self.incarnations.get(tp, 0))]
            for record in records
        ]
        candidates = [each for each in read if isinstance(each, Candidate)]
        before = await self._seen.remember([(each.identity, each.mark) for each in candidates])
        crash_point("ingest.marked")
        return decide(read, before, assets, self._partitions, self._skew_limit_ms)

    def _known_assets(self) -> KnownAssets:
        if self._assets_at != self._view.next_offset:
            self._assets, self._assets_at = KnownAssets(self._view.known_assets()), self._view.next_offset
        return self._assets


async def session(settings: Settings, state: ServiceState) -> None:
    """Read, decide, send, commit, until stopped."""
    group = f"{settings.namespace}-ingest"
    async with (
        definitions_view(settings.kafka) as view,
        admin_client(settings.kafka) as admin,
        connect_redis(settings.redis) as redis,
        acknowledged_producer(settings.kafka, group) as producer,
    ):
        assert view.installation is not None
        partitions = view.installation.partitions
        teams = [team_events_topic(team, partitions) for team in settings.teams]
        await check_installation(settings, view, admin, redis, teams)
        seen = SeenEvents(redis, settings.namespace, settings.dedupe_horizon_s)
        ingest = Ingest(view, seen, partitions, settings.clock_skew_limit_s)

        async def start(started: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Gap]:
            places, positions = await start_from_committed(consumer, admin, redis, settings, group, started)
            ingest.incarnations = {tp: position.incarnation for tp, position in positions.items()}
            return places

        topics = [ASSET_EVENTS, *(topic.name for topic in teams)]
        consumer = BatchConsumer(topics, group, settings, state, start)
        noted = 0
        async with consumer:
            while not state.stopping.is_set():
                view.raise_if_broken()
                if view.failures[noted:]:
                    entries = [unreadable_definition(*each) for each in view.failures[noted:]]
                    await send_all(producer, audit_records(entries, partitions))
                    noted += len(entries)
                if await consumer.commit_done():
                    crash_point("ingest.committed")
                polled = await consumer.poll()
                if not polled:
                    continue
                crash_point("ingest.read")
                began = monotonic()
                decided = await ingest.decide(polled)
                await send_all(producer, decided.records + audit_records(decided.audit, partitions))
                crash_point("ingest.sent")
                metrics.EVENTS_ACCEPTED.inc(decided.accepted)
                consumer.done(
                    {
                        tp: Position(
                            offset=records[-1].offset + 1,
                            at=records[-1].timestamp,
                            incarnation=ingest.incarnations.get(tp, 0),
                        )
                        for tp, records in polled.items()
                    }
                )
                metrics.BATCH_SECONDS.observe(monotonic() - began)
            await consumer.commit_done(now=True)


def main() -> None:
    serve(SERVICE, Settings(), session)
