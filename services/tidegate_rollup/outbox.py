"""What comes out of the rollup's script: items of outboxes, and the run requests and audit entries that they become."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import DeadlineReached, JobRef, OperatorAction
from tidegate.contracts.runs import RunRequest, TriggeringEvent, WindowProgress
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
        offset, ordinal, *_ = name.split(".")
        head, *lines = payload.split("\n")
        found.append(OutboxItem(int(offset), int(ordinal), name, json.loads(head), lines))
    return sorted(found, key=lambda each: each.place)


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
    found = [
        (name.split(":", 3), value)
        for name, value in zip(fields[::2], fields[1::2], strict=True)
        if name.startswith(("m:", "x:"))
    ]
    read = json.loads(f"[[{'],['.join(value for _, value in found)}]]") if found else []
    events = [
        (int(asset), int(member), stored_event(values))
        for ((_, asset, member, *_), _), values in zip(found, read, strict=True)
    ]
    return sorted(events, key=lambda one: (one[0], one[1], one[2].key or ""))


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
        kind, _, rest = name.partition(":")
        if kind == "count":
            arrived[int(rest)] = int(value)
        elif kind == "need":
            expected[int(rest)] = int(value.split()[0])
        elif kind == "date":
            dates.append(int(value))
    events = events_in(fields)
    return _FiredRound(events, [(asset, arrived[asset], expected[asset]) for asset in sorted(arrived)], dates)


def run_request(each: OutboxItem) -> tuple[RunRequest, AuditEntry | None]:
    """The request of a fired round, and the audit entry where its dates were in conflict."""
    payload = each.payload
    job, key = JobRef(*payload["job"]), payload["key"]
    fired = _fired_round(each.lines)
    stored = fired.events
    control = each.control
    dates = [ContributedDate(from_us(date), True) for date in fired.dates]
    resolved = resolve_partition_date([*dates, *(event.contributed_date for _, _, event in stored)])
    request = RunRequest(
        offset=each.offset,
        ordinal=each.ordinal,
        run_id=run_id(job, key, payload["generation"], (event for _, _, event in stored)),
        job=job.id,
        incarnation=job.incarnation,
        revision=job.revision,
        partition_key=key or None,
        partition_date=resolved.at,
        generation=payload["generation"],
        cause="assets" if control is None else "deadline" if control.kind == "deadline" else "manual",
        is_partial=control is not None,
        completed_by=stored_event(payload["event"]).id if control is None else None,
        failed=_failure(fired) if isinstance(control, DeadlineReached) and control.then == "fail" else None,
        windows=tuple(
            WindowProgress(asset=job.assets[asset], arrived=arrived, expected=expected)
            for asset, arrived, expected in fired.windows
        ),
        events=tuple(
            TriggeringEvent(
                asset=event.asset or job.assets[asset],
                id=event.id,
                source=event.source,
                member=member,
                partition_key=event.key,
                partition_date=None if event.date is None else from_us(event.date),
                received_at=from_ms(event.at),
                extra=event.extra,
                routes=event.routes(job, asset),
            )
            for asset, member, event in stored
        ),
    )
    size = len(request.to_bytes())
    if size > MAX_INTERNAL_BYTES // 2:
        request = request.model_copy(update={"events": (), "oversize": size})
    if not resolved.conflict:
        return request, None
    conflict = AuditEntry(
        id=audit_id(AuditKind.PARTITION_DATE_CONFLICT, request.run_id),
        kind=AuditKind.PARTITION_DATE_CONFLICT,
        service=SERVICE,
        at=payload["at"],
        message=resolved.message,
        job=job.id,
        partition_key=key or None,
    )
    return request, conflict


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
