"""Dead letters: what ingest refused, as people see it, and sending one again."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import time
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition
from pydantic import ValidationError

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.rejected import DeadLetter
from tidegate.contracts.topics import REJECTED
from tidegate.core.audit import AuditKind
from tidegate.core.errors import TidegateError
from tidegate.core.instants import from_ms
from tidegate.runtime.audit_log import Wanted, read_audit
from tidegate.runtime.producer import audit_record
from tidegate.runtime.reading import LogReader, log_reader
from tidegate.runtime.transactions import PartitionTransactions

SERVICE: Final = "redrive"
REDRIVEN_HEADER: Final = "tidegate-redriven"
"""On a record that was sent again: the place of its dead letter, `<partition>@<offset>`."""


class CannotRedriveError(TidegateError, RuntimeError):
    """A dead letter or a run that cannot be sent again: it is not there, is not whole, or is in another state."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A dead letter where it stands on `asset-events.rejected`."""

    partition: int
    offset: int
    at: int
    """When it was written there, milliseconds since 1970."""
    key: bytes | None
    letter: DeadLetter

    @property
    def place(self) -> str:
        """As `tidegate redrive --dead-letter` takes it."""
        return f"{self.partition}@{self.offset}"

    @property
    def origin(self) -> str:
        """Where the record stood that was refused."""
        return f"{self.letter.topic}/{self.letter.partition}@{self.letter.offset}"

    @property
    def value(self) -> bytes | None:
        """The record's value, or the beginning of it."""
        return None if self.letter.value_base64 is None else b64decode(self.letter.value_base64)

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(name, None if raw is None else b64decode(raw)) for name, raw in self.letter.headers]

    @property
    def event_id(self) -> str | None:
        """The id that the record gives its event, None where none can be read."""
        for name, raw in self.headers:
            if name == "ce_id" and raw is not None:
                return raw.decode(errors="replace")
        try:
            given: Any = json.loads(self.value or b"")
        except (ValueError, RecursionError):
            return None
        found = given.get("id") if isinstance(given, dict) else None
        return found if isinstance(found, str) else None

    @property
    def redriven_from(self) -> str | None:
        """The place of the dead letter that this one was before it was sent again, and refused again."""
        return next(
            (raw.decode(errors="replace") for name, raw in self.headers if name == REDRIVEN_HEADER and raw),
            None,
        )


async def dead_letters(reader: LogReader, since: int) -> AsyncIterator[Kept]:
    """Every dead letter that was written at or after `since`, in ms since 1970."""
    async for record in reader.since(REJECTED, since):
        if (kept := _kept(record)) is not None:
            yield kept


def _kept(record: ConsumerRecord) -> Kept | None:
    """None for a record that somebody else wrote there."""
    try:
        letter = DeadLetter.from_bytes(record.value or b"")
    except ValidationError:
        return None
    return Kept(record.partition, record.offset, record.timestamp, record.key, letter)


class Redriven(NamedTuple):
    origin: str
    """Where the record stood that was refused."""
    position: str
    """Where it stands now."""


async def redrive(
    bootstrap: str, namespace: str, partition: int, offset: int, *, by: str, again: bool = False
) -> Redriven:
    """Send what a dead letter holds to the partition that it came from, byte for byte, with an audit entry.

    Both are one transaction, whose id is bound to the dead letter: of two people who send it at once one is told.
    Raises CannotRedriveError, without `again` also where it was sent again before.
    """
    place = f"{partition}@{offset}"
    async with log_reader(bootstrap) as reader:
        kept = await _letter(reader, partition, offset)
        outgoing = refused_record(kept)
        if kept.letter.partition >= reader.partitions(kept.letter.topic):
            raise CannotRedriveError(
                f"{kept.origin} is no partition any more, where dead letter {place} came from"
            )
        transactions = PartitionTransactions(bootstrap, f"{namespace}-redrive-{place}", ids=1)
        await transactions.start()  # ends what another had open, so that the audit log tells what was sent
        try:
            wanted = Wanted(kind=AuditKind.REDRIVEN)
            before = [
                entry
                for entry in (await read_audit(reader, kept.at, wanted)).entries
                if entry.position == f"{REJECTED}/{place}"
            ]
            if before and not again:
                raise CannotRedriveError(_told(place, before[-1]))
            entry = redriven_entry(kept, by, int(time() * 1000), len(before) + 1)
            sent, _ = await transactions.commit([outgoing, audit_record(entry)], {}, "")
        finally:
            await transactions.stop()
    return Redriven(kept.origin, f"{sent.topic}/{sent.partition}@{sent.offset}")


async def _letter(reader: LogReader, partition: int, offset: int) -> Kept:
    record = await reader.record_at(TopicPartition(REJECTED, partition), offset)
    if record is None:
        raise CannotRedriveError(
            f"there is no dead letter {partition}@{offset}: `tidegate dead-letters` lists them"
        )
    if (kept := _kept(record)) is None:
        raise CannotRedriveError(f"record {partition}@{offset} of {REJECTED} is no dead letter")
    return kept


def refused_record(kept: Kept) -> Outgoing:
    """The record that was refused, with a header that says so; raises CannotRedriveError where it was cut."""
    letter = kept.letter
    if letter.truncated:
        raise CannotRedriveError(
            f"dead letter {kept.place} holds only a part of its record, which has a value of {letter.size} bytes: its"
            f" bytes may still stand at {kept.origin}; send a smaller event instead ({letter.reason})"
        )
    if letter.code == "undecodable":
        raise CannotRedriveError(
            f"dead letter {kept.place} holds nothing of its record ({letter.reason}): send the event again"
        )
    others = [(name, raw) for name, raw in kept.headers if name != REDRIVEN_HEADER]
    headers = [*others, (REDRIVEN_HEADER, kept.place.encode())]
    return Outgoing(letter.topic, letter.partition, kept.key, kept.value, headers)


def redriven_entry(kept: Kept, by: str, at: int, time_number: int) -> AuditEntry:
    """That a person sends a dead letter again, for the so-manyth time."""
    position = f"{REJECTED}/{kept.place}"
    return AuditEntry(
        id=audit_id(AuditKind.REDRIVEN, position, time_number),
        kind=AuditKind.REDRIVEN,
        service=SERVICE,
        at=at,
        message=f"the dead letter of {kept.origin} was sent again (by {by}); it was refused: {kept.letter.reason}",
        event_id=kept.event_id,
        position=position,
        details={"by": by, "origin": kept.origin, "code": kept.letter.code},
    )


def _told(place: str, entry: AuditEntry) -> str:
    by = (entry.details or {}).get("by")
    return (
        f"dead letter {place} was sent again before, by {by} on {from_ms(entry.at):%Y-%m-%d at %H:%M:%S}Z: give --again"
        " to send it once more"
    )
