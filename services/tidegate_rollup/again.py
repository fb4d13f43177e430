"""What waited under an older definition of its job, mapped again under the one that changed it (rule R6)."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import JobRef
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.core.audit import AuditKind
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.mapping import Mapped, Plan, map_event
from tidegate_rollup.outbox import SERVICE, OutboxItem, StoredEvent, events_in, stored_event

_MEMBERS_BITS: Final = 19
_ROUNDS_BITS: Final = 20
"""Coordinates are made of what caused a change: its offset, and as ordinal its own ordinal (at most 14 bits, since a
record has half a MiB), the number of the round and that of the contribution: 53 bits, which Lua's numbers hold."""

_NAMED: Final = 100
"""Keys that one audit entry names."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Events of one round, or one event that came late, with the definition that they are mapped by."""

    job: JobRef
    """As they were mapped first."""
    key: str
    revision: int
    at: int
    """Time of the record that changed the job, or that brought the event."""
    offset: int
    first_ordinal: int
    is_round: bool
    events: Sequence[tuple[str, StoredEvent]]
    """(name of the asset, event), oldest first; an event that filled several places is here once."""


def waiting(each: OutboxItem, fields: Sequence[str]) -> Waiting | None:
    """What an item of the outbox holds; `fields` are the fields and values in turn of the round that it names.

    None where the round is gone, since all that was in it is on the log again.
    """
    offset, ordinal, _, number = each.place
    if each.moved_round is None:
        job, key = JobRef(*each.payload["job"]), each.payload["key"]
        events = [(each.payload["asset"], 0, stored_event(each.payload["event"]))]
    else:
        refs = [value for name, value in zip(fields[::2], fields[1::2], strict=True) if name == "job"]
        if not refs:
            return None
        job, key = JobRef(*json.loads(refs[0])), each.moved_round.split("/", 2)[2]
        events = events_in(fields)
    oldest_first = sorted(events, key=lambda one: (one[2].at, one[0], one[1], one[2].key or ""))
    named = {
        (event.source, event.id): (event.asset or job.assets[asset], event)
        for asset, _, event in oldest_first
    }
    return Waiting(
        job,
        key,
        each.payload["revision"],
        each.payload["at"],
        offset,
        ((ordinal << _ROUNDS_BITS) + number) << _MEMBERS_BITS,
        each.moved_round is not None,
        tuple(named.values()),
    )


def map_again(
    found: Waiting, defined: DefinedJob | None, plan: Plan, partition: int
) -> tuple[list[tuple[int, int, Mapped]], list[AuditEntry]]:
    """The contributions with their coordinates, an entry for what was mapped again, and one for every event of it that
    counts nowhere any more.

    `defined` is the job by the revision that changed it, None where that deleted it, and `plan` its ways.
    """
    mapped: list[Mapped] = []
    audit: list[AuditEntry] = []
    position = f"{CONTRIBUTIONS}/{partition}@{found.offset}"
    is_same = defined is not None and defined.incarnation == found.job.incarnation
    for asset, stored in found.events:
        event = AcceptedEvent(
            offset=found.offset,
            definitions=found.revision + 1,
            at=stored.at,
            source=stored.source,
            id=stored.id,
            asset=asset,
            partition_key=stored.key,
            partition_date=stored.date,
            extra=stored.extra,
            team=stored.team,
            aliases=tuple(stored.aliases or ()),
        )
        taken, notes = map_event(event, plan, position, SERVICE) if is_same else ([], [])
        mapped += taken
        if taken:
            audit += notes
        else:
            reasons = [note.message for note in notes] if is_same else ["the job was deleted"]
            audit.append(_closed(found, event, position, reasons))
    coordinates = enumerate(mapped, found.first_ordinal)
    closed = sum(each.kind is AuditKind.ROUND_CLOSED for each in audit)
    changed = _changed(found, mapped, closed, position, is_same)
    return [(found.offset, ordinal, each) for ordinal, each in coordinates], [changed, *audit]


def _what(found: Waiting, position: str) -> tuple[object, ...]:
    """What tells entries apart: every shard of a partition numbers the rounds that a record moves for itself."""
    return position, found.first_ordinal, found.job.id, found.key


def _changed(
    found: Waiting, mapped: Sequence[Mapped], closed: int, position: str, is_same: bool
) -> AuditEntry:
    """That a round, or an event on its way to one, was mapped again, and where it counts now."""
    event = None if found.is_round else found.events[0][1]
    keys = list(dict.fromkeys(each.target.placement.key for each in mapped))
    what = "a round" if found.is_round else "an event on its way to a round"
    why = "the job's definition changed" if is_same else "the job was deleted"
    where = f"{len(found.events) - closed} of {len(found.events)} events count now, under {len(keys)} keys"
    return AuditEntry(
        id=audit_id(AuditKind.DEFINITION_CHANGED, *_what(found, position)),
        kind=AuditKind.DEFINITION_CHANGED,
        service=SERVICE,
        at=found.at,
        message=f"{why}, and {what} was mapped again: {where}",
        job=found.job.id,
        partition_key=found.key or None,
        event_id=event and event.id,
        event_source=event and event.source,
        position=position,
        details={
            "from_revision": found.job.revision,
            "revision": found.revision,
            "event_count": len(found.events),
            "keys": [key or None for key in keys[:_NAMED]],
        },
    )


def _closed(found: Waiting, event: AcceptedEvent, position: str, reasons: Sequence[str]) -> AuditEntry:
    why = "; ".join(reasons) or f"the job no longer waits for asset {event.asset!r}"
    return AuditEntry(
        id=audit_id(AuditKind.ROUND_CLOSED, *_what(found, position), event.source, event.id),
        kind=AuditKind.ROUND_CLOSED,
        service=SERVICE,
        at=found.at,
        message=f"event {event.id!r} waited under an older definition of the job and counts nowhere now: {why}",
        job=found.job.id,
        asset=event.asset,
        partition_key=found.key or None,
        event_id=event.id,
        event_source=event.source,
        position=position,
        details={"event_key": event.partition_key, "revision": found.revision},
    )


def sendable(
    outbox: Iterable[OutboxItem], rounds: int, is_readable: Callable[[str, int], bool]
) -> Iterator[OutboxItem]:
    """The first of `outbox`, up to so many whole rounds to map again, which may be large.

    What has to be mapped by a definition (job, revision) that this process cannot read stays, and with it all that has
    to be mapped again after it, since their coordinates must rise (E1). The rest passes them.
    """
    is_held = False
    for each in outbox:
        if each.revision is not None:
            is_held = is_held or not is_readable(each.job_id, each.revision)
            if is_held:
                continue
        rounds -= each.moved_round is not None
        if rounds < 0:
            return
        yield each
