"""Records on our own topics that cannot be read: audited and passed, never in the way (protocol.md E5)."""

from aiokafka import ConsumerRecord, TopicPartition

from tidegate.contracts.audit import AuditEntry, AuditKind, audit_id
from tidegate.contracts.rejected import base64_text


def unreadable_record(service: str, tp: TopicPartition, record: ConsumerRecord, error: Exception) -> AuditEntry:
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
