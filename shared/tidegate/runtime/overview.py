"""`tidegate status`: how far every service is behind, and how much is waiting."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis

from tidegate.contracts.topics import (
    ACCEPTED,
    ASSET_EVENTS,
    CONTRIBUTIONS,
    REJECTED,
    RUN_EVENTS,
    RUN_REQUESTS,
)
from tidegate.runtime.definitions_log import DefinitionsLog
from tidegate.runtime.installing import command_topics
from tidegate.runtime.pending import count_open


@dataclass(frozen=True, slots=True)
class Lag:
    """How many records of a topic a consumer group has not committed yet."""

    group: str
    topic: str
    partitions: int
    lag: int
    has_committed: bool
    """False where the group has never committed on this topic: then all that the topic holds is counted."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    job: str
    revision: int
    open_rounds: int


@dataclass(frozen=True, slots=True)
class Overview:
    partitions: int
    shards: int
    lags: tuple[Lag, ...]
    jobs: tuple[JobStatus, ...]


async def overview(
    bootstrap: str, redis: Redis, namespace: str, log: DefinitionsLog, admin: AIOKafkaAdminClient
) -> Overview:
    """What is there now. Records count transaction markers too, so a lag may be some larger than what is to do."""
    installation = log.installed()
    existing = set(await admin.list_topics())
    event_topics = sorted(
        name for name in existing if name == ASSET_EVENTS or name.startswith(ASSET_EVENTS + ".")
    )
    read_by = {
        f"{namespace}-ingest": [name for name in event_topics if name != REJECTED],
        f"{namespace}-mapper": [ACCEPTED],
        f"{namespace}-rollup": [CONTRIBUTIONS],
        f"{namespace}-dispatcher": [RUN_REQUESTS, RUN_EVENTS],
    }
    commands = [topic.name for topic in command_topics(log, installation.partitions)]
    workers = await _worker_groups(admin, set(read_by))
    lags = await _lags(bootstrap, admin, existing, read_by, workers, commands)
    jobs = log.of_kind("job")
    waiting = await count_open(redis, namespace, installation.shards, sorted(jobs))
    return Overview(
        installation.partitions,
        installation.shards,
        lags,
        tuple(JobStatus(job, jobs[job].revision, waiting[job]) for job in sorted(jobs)),
    )


async def _worker_groups(admin: AIOKafkaAdminClient, services: set[str]) -> list[str]:
    return sorted({name for name, *_ in await admin.list_consumer_groups()} - services)


async def _lags(
    bootstrap: str,
    admin: AIOKafkaAdminClient,
    existing: set[str],
    read_by: dict[str, list[str]],
    workers: Sequence[str],
    commands: Sequence[str],
) -> tuple[Lag, ...]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, client_id="tidegate-status", enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer.topics()
        wanted = {name for names in (*read_by.values(), commands) for name in names} & existing
        partitions = [
            TopicPartition(name, number) for name in wanted for number in consumer.partitions_for_topic(name) or ()
        ]
        ends = await consumer.end_offsets(partitions)
        beginnings = await consumer.beginning_offsets(partitions)
    finally:
        await consumer.stop()
    found = []
    for group in (*read_by, *workers):
        is_service = group in read_by
        committed = {
            tp: each.offset for tp, each in (await admin.list_consumer_group_offsets(group)).items() if each.offset >= 0
        }
        for name in read_by.get(group, commands):
            mine = [tp for tp in partitions if tp.topic == name]
            known = [tp for tp in mine if tp in committed]
            if not mine or not (known or is_service):
                continue
            lag = sum(max(0, ends[tp] - committed.get(tp, beginnings[tp])) for tp in mine)
            found.append(Lag(group, name, len(mine), lag, bool(known)))
    return tuple(found)


