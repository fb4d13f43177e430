"""Sending records that must all be acknowledged before anything else moves (rule I1, E1)."""

from collections.abc import AsyncIterator, Sequence
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
    for each in records:
        metrics.RECORDS_SENT.labels(each.topic).inc()
    return acknowledged


def audit_records(entries: Sequence[AuditEntry], partitions: int) -> list[Outgoing]:
    """Audit entries as records of `audit-log`, keyed by job or asset."""
    records = []
    for entry in entries:
        metrics.AUDIT_ENTRIES.labels(entry.kind.value).inc()
        key = entry.job or entry.asset or entry.service
        records.append(Outgoing(AUDIT, partition_of(key, partitions), key.encode(), entry.to_bytes()))
    return records
