"""Start-up refuses to run on sand: what is not fit holds a service back, by name, until it is mended."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from signal import SIGCONT, SIGSTOP

import pytest
import redis
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.broker.conftest import Install, Installed, delete_topics, end_of, read_all, send, until_async
from tests.broker.events import event, give
from tests.broker.rounds import apply
from tests.servers.services import ServiceProcess, services
from tidegate import Asset, DayWindow, Job, PartitionedAssetTimetable, RollupMapper, StartOfHourMapper
from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.contracts.runs import RunCommand
from tidegate.contracts.topics import (
    ASSET_EVENTS,
    AUDIT,
    CONTRIBUTIONS,
    DEFINITIONS,
    RUNS,
    declared_topics,
    run_commands_topic,
)
from tidegate.runtime.positions import committed_positions
from tidegate.runtime.topic_admin import admin_client, create_topics

pytestmark = pytest.mark.parametrize("backend", ["real"], indirect=True)
DAYS = Job("days", PartitionedAssetTimetable(Asset("hourly"), RollupMapper(StartOfHourMapper(), DayWindow())))


async def configure(admin: AIOKafkaAdminClient, topic: str, **settings: str) -> None:
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])


@contextmanager
def redis_set(at: Installed) -> Iterator[redis.Redis]:
    """Redis, for changes of its settings, which end with the block."""
    with redis.Redis.from_url(at.redis, decode_responses=True) as client:
        try:
            yield client
        finally:
            client.config_set("maxmemory", 0)
            client.config_set("maxmemory-policy", "noeviction")


async def test_b125_what_is_not_fit_is_named_until_it_is_mended(install: Install) -> None:
    at = install()
    topics = {topic.name: topic for topic in declared_topics(at.partitions)}
    with redis_set(at) as server:
        async with admin_client(at.kafka) as admin:
            await delete_topics(admin, [AUDIT])
            await configure(admin, CONTRIBUTIONS, message_timestamp_type="CreateTime")
            await configure(admin, RUNS, cleanup_policy="delete")
            server.config_set("maxmemory-policy", "allkeys-lru")
            with at.service("rollup") as rollup:
                reason = rollup.wait_not_ready("session")
                while "NotFitError" not in reason:
                    reason = rollup.wait_not_ready("session")
                assert (
                    "audit-log: topic is missing, wanted present: `tidegate topics create` makes it" in reason
                )
                assert "contributions: message.timestamp.type is CreateTime, wanted LogAppendTime" in reason
                assert "runs: cleanup.policy is delete, wanted compact" in reason
                assert "Redis has maxmemory-policy 'allkeys-lru'" in reason
                await create_topics(admin, [topics[AUDIT]])
                for name in (CONTRIBUTIONS, RUNS):
                    await admin.alter_configs(
                        [ConfigResource(ConfigResourceType.TOPIC, name, topics[name].config)]
                    )
                await _until_reason(rollup, "Redis has maxmemory-policy", but_not="contributions")
                assert AUDIT not in str(rollup.ready()["reasons"])
                server.config_set("maxmemory-policy", "noeviction")
                rollup.wait_ready()
                assert rollup.metrics()["tidegate_ready"] == 1


async def _until_reason(service: ServiceProcess, text: str, but_not: str) -> None:
    async def is_said() -> bool:
        said = str(service.ready().get("reasons"))
        return text in said and but_not not in said

    await until_async(is_said, f"{service.name} to name {text!r} alone")


async def test_b118_an_events_topic_that_was_created_again_is_never_read_in_silence(install: Install) -> None:
    at = install(partitions=2)
    events = declared_topics(2)[0]
    assert events.name == ASSET_EVENTS
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        await give(at, event("one", "probe"), partition=0)

        async def is_committed() -> bool:
            async with admin_client(at.kafka) as admin:
                group, tp = f"{at.namespace}-ingest", TopicPartition(ASSET_EVENTS, 0)
                return bool((await committed_positions(admin, group, [tp]))[tp].offset)

        await until_async(is_committed, "the event to be read")
    async with admin_client(at.kafka) as admin:
        await delete_topics(admin, [ASSET_EVENTS])
        await create_topics(admin, [replace(events, partitions=1)])
        with at.service("ingest") as ingest:
            await _until_reason(
                ingest, "asset-events: partition count is 1, wanted at least 2", but_not="gap"
            )
            await admin.create_partitions({ASSET_EVENTS: NewPartitions(2)})
            assert "the committed offset is gone" in ingest.wait_not_ready("gap")


async def test_state_of_another_installation_is_left_alone(install: Install) -> None:
    at = install(partitions=2, shards=4)

    async def record(shards: int, incarnation: str = "test") -> None:
        body = Installation(partitions=2, shards=shards).model_dump(mode="json")
        made = DefinitionRecord(kind="installation", id="tidegate", incarnation=incarnation, body=body)
        await send(at.kafka, [(DEFINITIONS, 0, INSTALLATION_KEY.encode(), made.to_bytes())])

    with at.service("rollup") as rollup:
        rollup.wait_ready()
    await record(8)
    with at.service("rollup") as rollup:
        await _until_reason(
            rollup, "with 2 partitions and 4 shards, the installation says 2 and 8", but_not="gap"
        )
        await record(4, "another")
        await _until_reason(rollup, "`definitions` was created again", but_not="gap")
        await record(4)
        rollup.wait_ready()


async def test_b125_in_a_full_redis_everything_waits_and_nothing_is_lost(install: Install) -> None:
    at = install(shards=4)
    with (
        redis_set(at) as server,
        services(
            ("ingest", "mapper", "rollup", "dispatcher"),
            at.backend,
            at.log_folder,
            {"TIDEGATE_NAMESPACE": at.namespace},
        ) as running,
    ):
        await apply(at, DAYS)
        rollup, ingest = running["rollup"], running["ingest"]
        rollup.kill(SIGSTOP)
        days, hours = range(1, 21), [f"{hour:02d}" for hour in range(24)]
        events = [
            event(f"{day}-{hour}", "hourly", partition_key=f"2026-03-{day:02d}T{hour}:00:00")
            for hour in hours
            for day in days
        ]
        await give(at, *events[:-20])

        async def are_mapped() -> bool:
            return sum(len(record.value) for record in await read_all(at.kafka, CONTRIBUTIONS)) > 40_000

        await until_async(are_mapped, "the events to be mapped")
        server.config_set("maxmemory", server.info("memory")["used_memory"] + 20_000)
        rollup.kill(SIGCONT)
        await _until_full(rollup)
        server.config_set("maxmemory", 500_000)  # an empty one uses more, so not even a mark fits
        await give(at, *events[-20:])
        await _until_full(ingest)
        group, tp = f"{at.namespace}-ingest", TopicPartition(ASSET_EVENTS, 0)
        async with admin_client(at.kafka) as admin:
            committed = (await committed_positions(admin, group, [tp]))[tp].offset
        assert committed < await end_of(at.kafka, tp), "ingest reads no further"
        server.config_set("maxmemory", 0)

        async def keys() -> Counter[str | None]:
            topic = run_commands_topic(DAYS.id, at.partitions).name
            return Counter(
                RunCommand.from_bytes(record.value).partition_key
                for record in await read_all(at.kafka, topic)
            )

        async def are_there() -> bool:
            return (await keys()).total() >= len(days)

        await until_async(are_there, "every window to fire", 60)
        assert await keys() == Counter(f"2026-03-{day:02d}" for day in days)
        for service in running.values():
            service.wait_ready()


async def _until_full(service: ServiceProcess) -> None:
    async def is_full() -> bool:
        said = str(service.ready().get("reasons"))
        return "OutOfMemoryError" in said or "is full" in said

    await until_async(is_full, f"{service.name} to say that Redis is full")
