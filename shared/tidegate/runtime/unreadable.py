"""Records that cannot be read: audited and passed, never in the way (rule E5)."""

from typing import Final

from aiokafka import ConsumerRecord, TopicPartition

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.rejected import base64_text
from tidegate.core.audit import AuditKind


def unreadable_record(
    service: str, tp: TopicPartition, record: ConsumerRecord, error: Exception
) -> AuditEntry:
    """The audit entry of a poison record, with where it is and its first KiB."""
    position = f"{tp.topic}/{tp.partition}@{record.offset}"
    return AuditEntry(
        id=audit_id(AuditKind.UNREADABLE_RECORD, service, position),
        kind=AuditKind.UNREADABLE_RECORD,
        service=service,
        at=record.timestamp,
        message=f"the record cannot be read and was passed over: {error}"[:1000],
        position=position,
        details={"size": len(record.value or b""), "head_base64": base64_text((record.value or b"")[:1024])},
    )


_STAND_IN: Final = -2  # as the size of a value, which is -1 where there is none


def stand_in(tp: TopicPartition, offset: int) -> ConsumerRecord:
    """Takes the place of a record that the Kafka client cannot decode; has neither key, value nor time."""
    return ConsumerRecord(tp.topic, tp.partition, offset, 0, 0, None, None, None, -1, _STAND_IN, ())


def is_stand_in(record: ConsumerRecord) -> bool:
    return bool(record.serialized_value_size == _STAND_IN)
