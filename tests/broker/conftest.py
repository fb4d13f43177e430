"""What broker tests share: a Kafka with a Redis, and fresh topics on it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests import fixtures
from tests.servers.backends import Backend
from tests.servers.services import ServiceProcess
from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.contracts.topics import DEFINITIONS, Topic, declared_topics
from tidegate.core.plain import plain
from tidegate.definitions import Asset, Job
from tidegate.runtime.topic_admin import admin_client, create_topics

backend = fixtures.backend
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Installed:
    """Fresh topics, and a namespace that no other test uses."""

    backend: Backend
    namespace: str
    partitions: int
    log_folder: Path

    @property
    def kafka(self) -> str:
        return self.backend.kafka

    @property
    def redis(self) -> str:
        return self.backend.redis

    def service(self, name: str, label: str = "", **env: str) -> ServiceProcess:
        """A process of this namespace, not started."""
        return ServiceProcess(
            name, self.backend, self.log_folder, {"TIDEGATE_NAMESPACE": self.namespace, **env}, label
        )


Install = Callable[..., Installed]


@pytest.fixture
def install(backend: Backend, tmp_path: Path) -> Install:
    """Deletes every topic, then makes the declared ones and the installation record."""

    def make(partitions: int = 2, shards: int = 4, more: tuple[Topic, ...] = ()) -> Installed:
        return install_on(backend, tmp_path, partitions, shards, more)

    return make


def install_on(
    backend: Backend, folder: Path, partitions: int = 2, shards: int = 4, more: tuple[Topic, ...] = ()
) -> Installed:
    """Deletes every topic of `backend`, then makes the declared ones and the installation record."""
    run_apart(_make_topics(backend.kafka, Installation(partitions=partitions, shards=shards), more))
    return Installed(backend, f"t-{uuid4().hex[:12]}", partitions, folder)


def run_apart(made: Coroutine[None, None, T]) -> T:
    """Runs a coroutine in a loop of its own, since an async test is running one already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, made).result()


async def _make_topics(bootstrap: str, installation: Installation, more: tuple[Topic, ...]) -> None:
    topics = (*declared_topics(installation.partitions), *more)
    async with admin_client(bootstrap) as admin:
        await delete_topics(admin, [name for name in await admin.list_topics() if not name.startswith("__")])
        await create_topics(admin, topics)
    record = DefinitionRecord(
        kind="installation", id="tidegate", incarnation="test", body=installation.model_dump(mode="json")
    )
    assert record.record_key == INSTALLATION_KEY
    await send(bootstrap, [(DEFINITIONS, 0, INSTALLATION_KEY.encode(), record.to_bytes())])


async def delete_topics(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """Delete topics and return when the broker no longer lists them."""

    async def are_gone() -> bool:
        return not set(names) & set(await admin.list_topics())

    if names:
        await admin.delete_topics(names)
    await until_async(are_gone, "the topics to be gone")


async def define(bootstrap: str, *definitions: Job | Asset) -> None:
    """Publish definitions as `tidegate apply` would."""
    records = []
    for each in definitions:
        kind, name = ("job", each.id) if isinstance(each, Job) else ("asset", each.name)
        record = DefinitionRecord(kind=kind, id=name, incarnation="test", body=plain(each))
        records.append((DEFINITIONS, 0, record.record_key.encode(), record.to_bytes()))
    await send(bootstrap, records)


async def send(
    bootstrap: str,
    records: Sequence[tuple[str, int | None, bytes | None, bytes | None]],
    headers: Sequence[tuple[str, bytes]] = (),
) -> list[int]:
    """Send (topic, partition, key, value) in order; returns the offsets once all are acknowledged."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, max_request_size=1_040_000
    )
    await producer.start()
    try:
        futures = [
            await producer.send(topic, value, key, partition, headers=list(headers))
            for topic, partition, key, value in records
        ]
        return [stored.offset for stored in await asyncio.gather(*futures)]
    finally:
        await producer.stop()


async def read_all(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Every committed record that the topic holds now, partition by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=20,
    )
    await consumer.start()
    try:
        known = await consumer._client.fetch_all_metadata()  # all: naming a missing one may create it
        partitions = [
            TopicPartition(topic, number) for number in sorted(known.partitions_for_topic(topic) or ())
        ]
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found: dict[TopicPartition, list[ConsumerRecord]] = {tp: [] for tp in partitions}
        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            for tp, records in (await consumer.getmany(timeout_ms=50)).items():
                found[tp] += records
        return [record for tp in partitions for record in found[tp]]
    finally:
        await consumer.stop()


async def end_of(bootstrap: str, tp: TopicPartition) -> int:
    """The offset that the next record of a partition gets."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        return int((await consumer.end_offsets([tp]))[tp])
    finally:
        await consumer.stop()


async def until_async(condition: Callable[[], Awaitable[object]], what: str, timeout: float = 30) -> None:
    """Return when `condition` gives true; fails after `timeout` seconds."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {timeout:g} s for {what}"
        await asyncio.sleep(0.05)
