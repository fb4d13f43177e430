"""`accepted-events`: what ingest let in. Packed: one record is a batch from one source partition."""

from typing import Any, NamedTuple

from tidegate.contracts.message import Message


class AcceptedEvent(NamedTuple):
    """One valid, deduplicated asset event, in the order of its source partition."""

    offset: int
    """Offset on the source partition: with it the next reader drops repeats (rule E1)."""
    definitions: int
    """The next offset of `definitions` when ingest saw the event: it is mapped by what lies below (rule I3)."""
    at: int
    """When the broker received it, milliseconds since 1970."""
    source: str
    """CloudEvents source; (source, id) identifies the event."""
    id: str
    asset: str
    """Name of the asset."""
    partition_key: str | None
    partition_date: int | None
    """The producer's own date, microseconds since 1970."""
    extra: dict[str, Any] | None
    team: str | None
    aliases: tuple[str, ...] = ()
    """Names of the aliases that stood for the asset."""


class AcceptedBatch(Message):
    """A record of `accepted-events`."""

    v: int = 1
    source: str
    """The source partition, `<topic>/<partition>`."""
    events: tuple[AcceptedEvent, ...]
