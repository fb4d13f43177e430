"""Sending records that must all be acknowledged before anything else moves (rule I1, E1)."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import partition_of
from tidegate.contracts.topics import AUDIT
from tidegate.runtime import metrics
from tidegate.runtime.patience import reconnecting_slowly
from tidegate.runtime.sending import LIMITS, send_acknowledged


@asynccontextmanager
async def acknowledged_producer(bootstrap: str, client_id: str) -> AsyncIterator[AIOKafkaProducer]:
    """An idempotent producer with acks=all."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        enable_idempotence=True,
        acks="all",
        retry_backoff_ms=20,
        **LIMITS,
    )
    await reconnecting_slowly(producer).start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send_all(producer: AIOKafkaProducer, records: Sequence[Outgoing]) -> list[RecordMetadata]:
    """Send in order and return when every record is acknowledged.

    Raises the first error; the caller then ends its session, so that a partition never has a hole.
    """
    acknowledged = await send_acknowledged(producer, records)
    count_sent(records)
    return acknowledged


def count_sent(records: Sequence[Outgoing]) -> None:
    """Count records that are acknowledged, audit entries also by what they are about."""
    topics = [each.topic for each in records]
    for topic in set(topics):
        metrics.RECORDS_SENT.labels(topic).inc(topics.count(topic))
    audited = [each.audited for each in records if each.audited is not None]
    for kind in set(audited):
        metrics.AUDIT_ENTRIES.labels(*kind).inc(audited.count(kind))


def audit_records(entries: Iterable[AuditEntry], partitions: int) -> list[Outgoing]:
    """Audit entries as records of `audit-log`, keyed by job or asset."""
    return [audit_record(entry, partitions) for entry in entries]


def audit_record(entry: AuditEntry, partitions: int | None = None) -> Outgoing:
    """An audit entry as a record; its key chooses the partition where the number of partitions is not known."""
    key = entry.job or entry.asset or entry.service
    partition = None if partitions is None else partition_of(key, partitions)
    audited = (entry.kind.value, entry.service)
    return Outgoing(AUDIT, partition, key.encode(), entry.to_bytes(), audited=audited)
