"""What comes out of the rollup's script: items of outboxes, and the run requests and audit entries that they become."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from pydantic_core import from_json

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import DeadlineReached, JobRef, OperatorAction
from tidegate.contracts.runs import EncodedRequest, encoded
from tidegate.contracts.topics import CONTRIBUTIONS, MAX_INTERNAL_BYTES
from tidegate.core.audit import AuditKind
from tidegate.core.dates import ContributedDate, resolve_partition_date
from tidegate.core.instants import from_ms, from_us
from tidegate.core.rounds import Note

SERVICE = "rollup"


class OutboxItem(NamedTuple):
    """One thing in the outbox of (shard, partition) that must still be sent: a run request, an audit entry, or what
    waited under an older definition of its job (again.py)."""

    offset: int
    ordinal: int
    field: str
    """Its name in the outbox."""
    payload: Mapping[str, Any]
    lines: Sequence[str] = ()
    """Fields and values in turn of the round that fired, or the name of the round that moved."""

    @property
    def is_audit(self) -> bool:
        return "audit" in self.payload

    @property
    def control(self) -> DeadlineReached | OperatorAction | None:
        """The record that had this happen to its round."""
        said = self.payload.get("control")
        if said is None:
            return None
        return (DeadlineReached if said["kind"] == "deadline" else OperatorAction).model_validate(said)

    @property
    def revision(self) -> int | None:
        """By which definition of its job this is mapped again, None where it is not."""
        return self.payload.get("revision")

    @property
    def moved_round(self) -> str | None:
        """The name of the round whose events are all mapped again, None where it is something else."""
        return self.lines[0] if self.revision is not None and self.lines else None

    @property
    def job_id(self) -> str:
        """The job that this is about."""
        if self.moved_round is not None:
            return self.moved_round.partition("/")[0]
        return str(self.payload["job"][0])

    @property
    def place(self) -> tuple[int, ...]:
        return tuple(map(int, self.field.split(".")))


def outbox_items(reply: Sequence[str]) -> list[OutboxItem]:
    """What a reply of the script says is in the outbox, in the order of the log."""
    found = []
    for name, payload in zip(reply[::2], reply[1::2], strict=True):
        head, *lines = payload.split("\n")
        offset, ordinal, *_ = place = tuple(map(int, name.split(".")))
        found.append((place, OutboxItem(offset, ordinal, name, from_json(head), lines)))
    return [item for _, item in sorted(found, key=itemgetter(0))]


class StoredEvent(NamedTuple):
    """A member's event as the round keeps it."""

    key: str | None
    id: str
    source: str
    at: int
    date: int | None
    carried: int | Literal[False] | None
    """False where the mapper failed to read a date of the downstream key, which leaves the run without one."""
    extra: dict[str, Any] | None
    asset: str | None = None
    """Its asset's name, where the schedule names the asset otherwise."""
    team: str | None = None
    aliases: Sequence[str] | None = None
    also: Sequence[int] | None = None
    """The other assets by which it counts for this round (B060)."""

    def routes(self, job: JobRef, asset: int) -> tuple[str, ...] | None:
        """How the schedule names the ways by which it came, in order; None where its asset's name says it all."""
        if self.asset is None and not self.also:
            return None
        named = tuple(job.assets[each] for each in sorted((asset, *(self.also or ()))))
        return None if named == (self.asset or job.assets[asset],) else named

    @property
    def contributed_date(self) -> ContributedDate:
        if self.carried is False:
            return ContributedDate(None, True, is_failed=True)
        return ContributedDate(None if self.carried is None else from_us(self.carried), False)


def stored_event(values: Sequence[Any]) -> StoredEvent:
    """The event that was kept as these values."""
    return StoredEvent(*values[1:])  # the digest is for the script alone


def events_in(fields: Sequence[str]) -> list[tuple[int, int, StoredEvent]]:
    """(asset, member, event) of a round's fields and values, in that order, several of one member by key."""
    places, texts, has_some_beside = [], [], False
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        kind = name[:2]
        if kind == "m:" or kind == "x:":
            places.append(_place_of(name))
            texts.append(value)
            has_some_beside = has_some_beside or kind == "x:"
    values = from_json(f"[[{'],['.join(texts)}]]") if texts else []
    events = [
        (asset, member, StoredEvent(*of_event[1:]))
        for (asset, member), of_event in zip(places, values, strict=True)
    ]
    if has_some_beside:
        return sorted(events, key=lambda one: (one[0], one[1], one[2].key or ""))
    return sorted(events)  # no two have one place, so no events are compared


@lru_cache(maxsize=4_096)
def _place_of(name: str) -> tuple[int, int]:
    """(asset, member) that a field is for."""
    _, asset, member, *_ = name.split(":", 3)
    return int(asset), int(member)


class _FiredRound(NamedTuple):
    events: list[tuple[int, int, StoredEvent]]
    """(asset, member, event), in that order, several of one member by key."""
    windows: list[tuple[int, int, int]]
    """(asset, arrived, expected), by asset."""
    dates: list[int]


def _fired_round(fields: Sequence[str]) -> _FiredRound:
    """The round that was a hash of these fields and values."""
    arrived: dict[int, int] = {}
    expected: dict[int, int] = {}
    dates: list[int] = []
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        kind, _, asset = name.partition(":")
        if kind == "count":
            arrived[int(asset)] = int(value)
        elif kind == "need":
            expected[int(asset)] = int(value.partition(" ")[0])
        elif kind == "date":
            dates.append(int(value))
    events = events_in(fields)
    return _FiredRound(events, [(asset, arrived[asset], expected[asset]) for asset in sorted(arrived)], dates)


def run_request(each: OutboxItem) -> tuple[EncodedRequest, AuditEntry | None]:
    """The request of a fired round, and the audit entry where its dates were in conflict."""
    payload = each.payload
    job, key, control = JobRef(*payload["job"]), payload["key"], each.control
    fired = _fired_round(each.lines)
    resolved = resolve_partition_date(_distinct_dates(fired))
    name = run_id(job, key, payload["generation"], (event for _, _, event in fired.events))
    failed = _failure(fired) if isinstance(control, DeadlineReached) and control.then == "fail" else None
    request = {
        "offset": each.offset,
        "ordinal": each.ordinal,
        "run_id": name,
        "job": job.id,
        "incarnation": job.incarnation,
        "revision": job.revision,
        "partition_key": key or None,
        "partition_date": resolved.at,
        "generation": payload["generation"],
        "cause": "assets" if control is None else "deadline" if control.kind == "deadline" else "manual",
        "is_partial": control is not None,
        "completed_by": stored_event(payload["event"]).id if control is None else None,
        "failed": failed,
        "windows": [
            {"asset": job.assets[asset], "arrived": arrived, "expected": expected}
            for asset, arrived, expected in fired.windows
        ],
        "events": [_triggering(job, asset, member, event) for asset, member, event in fired.events],
    }
    raw = encoded(request)
    if len(raw) > MAX_INTERNAL_BYTES // 2:
        raw = encoded({**request, "events": (), "oversize": len(raw)})
    if not resolved.conflict:
        return EncodedRequest(job.id, raw, failed), None
    conflict = AuditEntry(
        id=audit_id(AuditKind.PARTITION_DATE_CONFLICT, name),
        kind=AuditKind.PARTITION_DATE_CONFLICT,
        service=SERVICE,
        at=payload["at"],
        message=resolved.message,
        job=job.id,
        partition_key=key or None,
    )
    return EncodedRequest(job.id, raw, failed), conflict


def _distinct_dates(fired: _FiredRound) -> list[ContributedDate]:
    """What the events say of the date, each only once, since most say the same or nothing."""
    said = {(event.carried is False, event.carried): event for _, _, event in fired.events}
    return [
        *(ContributedDate(from_us(date), True) for date in fired.dates),
        *(event.contributed_date for event in said.values()),
    ]


def _triggering(job: JobRef, asset: int, member: int, event: StoredEvent) -> dict[str, Any]:
    """A `TriggeringEvent`, without the fields that it has no value for."""
    said = {
        "asset": event.asset or job.assets[asset],
        "id": event.id,
        "source": event.source,
        "member": member,
    }
    if event.key is not None:
        said["partition_key"] = event.key
    if event.date is not None:
        said["partition_date"] = from_us(event.date)
    said["received_at"] = _received_at(event.at)
    if event.extra is not None:
        said["extra"] = event.extra
    if (routes := event.routes(job, asset)) is not None:
        said["routes"] = routes
    return said


_received_at = lru_cache(maxsize=1_024)(from_ms)
"""Events come many at a time."""


def _failure(fired: _FiredRound) -> str:
    arrived, expected = (sum(window[n] for window in fired.windows) for n in (1, 2))
    return f"the deadline of the round passed with {arrived} of {expected} members"


def run_id(job: JobRef, key: str, generation: int, events: Iterable[StoredEvent]) -> str:
    """32 hexadecimal digits made from content: a replay gives the same id, another round another (rule R7)."""
    parts = [job.id, job.incarnation, key, str(generation)]
    parts += sorted(f"{event.source}\n{event.id}" for event in events)
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def audit_entry(each: OutboxItem, partition: int) -> AuditEntry:
    """The audit entry that the script noted."""
    payload = each.payload
    kind, job, event = AuditKind(payload["audit"]), JobRef(*payload["job"]), stored_event(payload["event"])
    older = stored_event(payload["other"]).id if payload.get("other") else None
    window = tuple(payload["window"]) if "window" in payload else None
    note = Note(kind, event.id, older, payload.get("runs", False), window)
    position = f"{CONTRIBUTIONS}/{partition}@{each.offset}"
    details: dict[str, Any] = {"event_key": event.key}
    if older is not None:
        details["replaced_event_id"] = older
    if window is not None:
        details |= {"size": window[0], "needed": window[1]}
    return AuditEntry(
        id=audit_id(kind, position, each.ordinal),
        kind=kind,
        service=SERVICE,
        at=payload["at"],
        message=note.message,
        job=job.id,
        asset=event.asset or job.assets[payload["asset"]],
        partition_key=payload["key"] or None,
        event_id=event.id,
        event_source=event.source,
        position=position,
        details=details,
    )
