"""What deadlines and people did to rounds, as the runs and audit entries that come of it (rule R4)."""

import json
from collections.abc import Sequence
from typing import Any, Final

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import DeadlineReached, JobRef, OperatorAction
from tidegate.contracts.runs import EncodedRequest
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.core.audit import AuditKind
from tidegate_rollup.outbox import (
    SERVICE,
    OutboxItem,
    StoredEvent,
    events_in,
    run_request,
    stored_event,
)

NAMED_AT_ONCE: Final = 50
"""Events that one audit entry names: each may take some 10 KiB."""


def acted(each: OutboxItem, partition: int) -> tuple[EncodedRequest | None, list[AuditEntry]]:
    """The run that a control started or failed, if any, and what has to be audited."""
    control = each.control
    assert control is not None
    what = control.then if isinstance(control, DeadlineReached) else control.kind
    if "job" not in each.payload:
        return None, [
            _entry(each, partition, AuditKind.ACTION_WITHOUT_EFFECT, "the round is not open any more")
        ]
    job = JobRef(*each.payload["job"])
    if what == "withdraw":
        assert isinstance(control, OperatorAction)
        events = [stored_event(json.loads(f"[{line}]")) for line in each.lines]
        if not events:
            text = f"the round holds no event {control.event_id!r}"
            return None, [_entry(each, partition, AuditKind.ACTION_WITHOUT_EFFECT, text)]
        text = f"event {control.event_id!r} was withdrawn from its round; it counts no more"
        return None, _entries(
            each, partition, AuditKind.MEMBER_WITHDRAWN, text, [(None, one) for one in events]
        )
    named = [(event.asset or job.assets[asset], event) for asset, _, event in events_in(each.lines)]
    if what == "discard":
        text = f"the round was discarded with its {len(named)} events; later ones open another"
        return None, _entries(each, partition, AuditKind.ROUND_DISCARDED, text, named)
    if what == "drop":
        text = f"the deadline of the round passed: its {len(named)} events are dropped"
        return None, _entries(each, partition, AuditKind.DEADLINE_DROPPED, text, named)
    request, conflict = run_request(each)
    audit = [conflict] if conflict else []
    if request.failed is not None:
        audit += _entries(each, partition, AuditKind.DEADLINE_FAILED, request.failed, named)
    elif isinstance(control, OperatorAction):
        audit += _entries(each, partition, AuditKind.ROUND_FIRED, "the round was fired as it was", named)
    return request, audit


def _entry(
    each: OutboxItem,
    partition: int,
    kind: AuditKind,
    message: str,
    events: Sequence[tuple[str | None, StoredEvent]] = (),
    part: int = 0,
) -> AuditEntry:
    control = each.control
    assert control is not None
    details: dict[str, Any] = {"opened": control.opened}
    if isinstance(control, OperatorAction):
        details |= {"by": control.by, "action": control.kind}
        message = f"{message} (by {control.by})"
    if events:
        details["events"] = [
            {"id": event.id, "source": event.source, "key": event.key} | ({"asset": asset} if asset else {})
            for asset, event in events
        ]
    position = f"{CONTRIBUTIONS}/{partition}@{each.offset}"
    event_id = control.event_id if isinstance(control, OperatorAction) else None
    cause = control.id if isinstance(control, OperatorAction) else position
    return AuditEntry(
        id=audit_id(kind, cause, control.job, *((part,) if part else ())),
        kind=kind,
        service=SERVICE,
        at=each.payload["at"],
        message=message,
        job=control.job,
        partition_key=control.key or None,
        event_id=event_id,
        position=position,
        details=details,
    )


def _entries(
    each: OutboxItem,
    partition: int,
    kind: AuditKind,
    message: str,
    events: Sequence[tuple[str | None, StoredEvent]],
) -> list[AuditEntry]:
    """One entry, or several for a large round, so that every event is named and none is too large for its topic."""
    parts = [events[first : first + NAMED_AT_ONCE] for first in range(0, len(events), NAMED_AT_ONCE)] or [()]
    return [
        _entry(
            each,
            partition,
            kind,
            message if len(parts) == 1 else f"{message} (part {part + 1} of {len(parts)})",
            some,
            part,
        )
        for part, some in enumerate(parts)
    ]
