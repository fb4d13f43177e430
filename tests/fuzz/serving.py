"""Events through the ingest service: published thousand by thousand, each with a good event behind it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.fuzz.events import Sent, events, good
from tests.fuzz.fates import Fates, Place, Verdict, judge
from tests.servers.backends import Backend
from tests.servers.services import ServiceProcess
from tidegate.contracts.definitions import Installation
from tidegate.contracts.topics import ACCEPTED, ASSET_EVENTS, AUDIT, REJECTED
from tidegate.definitions import Asset, Definitions
from tidegate.runtime.applying import apply_definitions
from tidegate.runtime.installing import install

PARTITIONS = 3
CHUNK = 1_000
STALL_S = 60.0
_READ = (ACCEPTED, REJECTED, AUDIT)


def served(backend: Backend, folder: Path, seed: int, count: int) -> Verdict:
    """Send `count` events of a seed, and say what became of them; raises AssertionError where ingest stalls or ends."""
    asyncio.run(_prepare(backend.kafka))
    with ServiceProcess("ingest", backend, folder) as ingest:
        ingest.wait_ready()
        pid = ingest.pid
        verdict = asyncio.run(_serve(backend.kafka, ingest, seed, count))
        assert ingest.is_running, f"ingest ended with {ingest.exit_code}{ingest.log_tail()}"
        assert ingest.pid == pid
        ended = {
            name: value
            for name, value in ingest.metrics().items()
            if name.startswith("tidegate_sessions_total")
        }
        if sum(ended.values()) > 1:
            verdict.problems.append(f"sessions of ingest ended: {ended}{ingest.log_tail()}")
    return verdict


async def _prepare(kafka: str) -> None:
    await install(kafka, Installation(partitions=PARTITIONS, shards=4))
    await apply_definitions(kafka, Definitions((), (Asset("hourly"), Asset("daily"))))


async def _serve(kafka: str, ingest: ServiceProcess, seed: int, count: int) -> Verdict:
    sent: dict[Place, Sent] = {}
    fates = Fates()
    # Bytes as they are: idempotence and retries are the client's, so that no record is stored twice.
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_request_size=1_040_000
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await producer.start()
    await consumer.start()
    try:
        known = await consumer._client.fetch_all_metadata()
        consumer.assign(
            [
                TopicPartition(name, n)
                for name in _READ
                for n in sorted(known.partitions_for_topic(name) or ())
            ]
        )
        everything = events(seed, count)
        for number, chunk in enumerate(_chunks(everything)):
            last = [good(f"good-{number}-{partition}") for partition in range(PARTITIONS)]
            placed = [(n % PARTITIONS, each) for n, each in enumerate((*chunk, *last), -len(chunk))]
            futures = [
                await producer.send(ASSET_EVENTS, each.value, each.key, partition, headers=list(each.headers))
                for partition, each in placed
            ]
            stored = await asyncio.gather(*futures)
            sent |= {
                (partition, at.offset): each for (partition, each), at in zip(placed, stored, strict=True)
            }
            ends = {(at.partition, at.offset) for at in stored[-PARTITIONS:]}
            await _read(consumer, fates, ingest, lambda ends=ends: ends <= fates.accepted.keys())  # type: ignore[misc]
        await _read(consumer, fates, ingest, lambda: fates.count() >= len(sent))
    finally:
        await consumer.stop()
        await producer.stop()
    return judge(sent, fates)


def _chunks(some: Iterator[Sent]) -> Iterator[list[Sent]]:
    while chunk := list(islice(some, CHUNK)):
        yield chunk


async def _read(
    consumer: AIOKafkaConsumer, fates: Fates, ingest: ServiceProcess, is_enough: Callable[[], bool]
) -> None:
    """Read what ingest wrote until that is enough; fails where it writes nothing for STALL_S seconds."""
    take = {ACCEPTED: fates.take_accepted, REJECTED: fates.take_letter, AUDIT: fates.take_audit}
    last = time.monotonic()
    while not is_enough():
        found = await consumer.getmany(timeout_ms=100)
        for tp, records in found.items():
            for record in records:
                take[tp.topic](record.value)
        if found:
            last = time.monotonic()
        assert ingest.is_running, f"ingest ended with {ingest.exit_code}{ingest.log_tail()}"
        stalled_s = time.monotonic() - last
        assert stalled_s < STALL_S, (
            f"ingest wrote nothing for {stalled_s:.0f} s: {ingest.ready()}{ingest.log_tail()}"
        )
