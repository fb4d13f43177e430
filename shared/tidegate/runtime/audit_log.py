"""Reading `audit-log`, and telling which entries are about a job, a key, an event."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.topics import AUDIT
from tidegate.core.audit import AuditKind
from tidegate.runtime.reading import LogReader


class EventName(NamedTuple):
    """An event by its CloudEvents source and id; the source is None where an entry does not give it."""

    source: str | None
    id: str

    def is_same(self, other: "EventName") -> bool:
        """Whether both may be one event."""
        return self.id == other.id and (
            self.source == other.source or self.source is None or other.source is None
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries a person asks for; None asks for all."""

    job: str | None = None
    asset: str | None = None
    kind: AuditKind | None = None
    key: str | None = None
    """The run's key or the event's own."""
    event_id: str | None = None

    def takes(self, entry: AuditEntry) -> bool:
        return (
            (self.job is None or entry.job == self.job)
            and (self.asset is None or entry.asset == self.asset)
            and (self.kind is None or entry.kind is self.kind)
            and (self.key is None or self.key in (entry.partition_key, _details(entry).get("event_key")))
            and (self.event_id is None or any(each.id == self.event_id for each in events_of(entry)))
        )

    @property
    def written(self) -> list[bytes]:
        """What the records of such entries hold, so that others need not be parsed."""
        asked = (self.job, self.asset, self.kind, self.key, self.event_id)
        return [as_written(each) for each in asked if each is not None]


class AuditLog(NamedTuple):
    entries: list[AuditEntry]
    """Each once, in the order in which they were written."""
    unreadable: int
    """Records that are no entries of this version."""


async def read_audit(
    reader: LogReader, since: int, wanted: Wanted, partitions: Collection[int] | None = None
) -> AuditLog:
    """The entries that were written at or after `since`, in ms since 1970; those written twice have one id."""
    found: dict[str, tuple[tuple[int, int, int], AuditEntry]] = {}
    unreadable = 0
    written = wanted.written
    async for record in reader.since(AUDIT, since, partitions):
        raw = record.value or b""
        if not all(each in raw for each in written):
            continue
        try:
            entry = AuditEntry.from_bytes(raw)
        except ValidationError:
            unreadable += 1
            continue
        if wanted.takes(entry):
            found.setdefault(entry.id, ((record.timestamp, record.partition, record.offset), entry))
    return AuditLog([entry for _, entry in sorted(found.values(), key=lambda each: each[0])], unreadable)


def as_written(text: str) -> bytes:
    """How messages of ours write a text, without the quotes."""
    return to_json(text)[1:-1]


def events_of(entry: AuditEntry) -> Iterator[EventName]:
    """Every event that an entry names: its own, one that this one replaced, those that a round held."""
    details = _details(entry)
    if entry.event_id is not None:
        yield EventName(entry.event_source, entry.event_id)
    if (replaced := details.get("replaced_event_id")) is not None:
        yield EventName(None, str(replaced))
    for each in details.get("events", ()):
        yield EventName(each.get("source"), str(each.get("id")))


def _details(entry: AuditEntry) -> dict[str, Any]:
    return entry.details or {}
