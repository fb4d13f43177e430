"""`tidegate status`: how far every service is behind, and how much is waiting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

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
from tidegate.runtime.installing import command_topics, partition_counts
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.pending import count_open
from tidegate.runtime.positions import committed_offsets

_LOOK_DEADLINE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How many records of a topic a consumer group has not committed yet; markers among them are counted."""

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
    """What is there now."""
    installation = log.installed()
    counts = await partition_counts(admin)
    event_topics = sorted(
        name for name in counts if name == ASSET_EVENTS or name.startswith(ASSET_EVENTS + ".")
    )
    read_by = {
        f"{namespace}-ingest": [name for name in event_topics if name != REJECTED],
        f"{namespace}-mapper": [ACCEPTED],
        f"{namespace}-rollup": [CONTRIBUTIONS],
        f"{namespace}-dispatcher": [RUN_REQUESTS, RUN_EVENTS],
    }
    commands = [topic.name for topic in command_topics(log, installation.partitions)]
    workers = await _worker_groups(admin, set(read_by))
    lags = await _lags(bootstrap, admin, counts, read_by, workers, commands)
    jobs = log.of_kind("job")
    incarnations = {job: each.record.incarnation for job, each in jobs.items()}
    waiting = await count_open(redis, namespace, installation.shards, incarnations)
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
    counts: Mapping[str, int],
    read_by: Mapping[str, Sequence[str]],
    workers: Sequence[str],
    commands: Sequence[str],
) -> tuple[Lag, ...]:
    async with log_consumer(bootstrap, "tidegate-status", most_bytes=64 * 1024) as consumer:
        wanted = {name for names in (*read_by.values(), commands) for name in names} & counts.keys()
        partitions = [
            TopicPartition(name, number) for name in sorted(wanted) for number in range(counts[name])
        ]
        ends = await consumer.end_offsets(partitions)
        beginnings = await consumer.beginning_offsets(partitions)
        found = []
        for group in (*read_by, *workers):
            names = read_by.get(group, commands)
            committed = await committed_offsets(admin, group, [tp for tp in partitions if tp.topic in names])
            for name in names:
                mine = [tp for tp in partitions if tp.topic == name]
                known = committed.keys() & set(mine)
                if not mine or not (known or group in read_by):
                    continue
                behind = {tp: start for tp in mine if (start := committed.get(tp, beginnings[tp])) < ends[tp]}
                lag = await _records_left(consumer, behind, ends)
                found.append(Lag(group, name, len(mine), lag, bool(known)))
        return tuple(found)


async def _records_left(
    consumer: AIOKafkaConsumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> int:
    """Offsets from the first record at or after each start to the end: what ends in markers is not behind."""
    if not starts:
        return 0
    consumer.assign(list(starts))
    for tp, start in starts.items():
        consumer.seek(tp, start)
    firsts: dict[TopicPartition, int] = {}
    left = set(starts)
    deadline = monotonic() + _LOOK_DEADLINE_S
    while left and monotonic() < deadline:
        for tp, records in (await consumer.getmany(*left, timeout_ms=100)).items():
            firsts[tp] = records[0].offset
        left = {tp for tp in left - firsts.keys() if await consumer.position(tp) < ends[tp]}
    firsts.update({tp: starts[tp] for tp in left})
    return sum(ends[tp] - first for tp, first in firsts.items())
