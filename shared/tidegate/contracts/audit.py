"""`audit-log`: one visible record of anything dropped, refused, late, shifted or conflicting."""

from hashlib import blake2b
from typing import Any

from tidegate.contracts.message import Message
from tidegate.core.audit import AuditKind


class AuditEntry(Message):
    """One entry. Written again after a crash it has the same id, so entries are counted by distinct id."""

    v: int = 1
    id: str
    kind: AuditKind
    service: str
    at: int
    """Time of the record that it is about, milliseconds since 1970."""
    message: str
    job: str | None = None
    asset: str | None = None
    partition_key: str | None = None
    event_id: str | None = None
    event_source: str | None = None
    position: str | None = None
    """Where it happened, `<topic>/<partition>@<offset>`."""
    details: dict[str, Any] | None = None


def audit_id(*parts: object) -> str:
    """A content-made id: the same facts give the same id."""
    return blake2b("\0".join(map(str, parts)).encode(), digest_size=12).hexdigest()
