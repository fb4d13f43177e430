"""What deadlines and people did to rounds, as the runs and audit entries that come of it (rule R4)."""

import json
from collections.abc import Sequence
from typing import Any

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import DeadlineReached, JobRef, OperatorAction
from tidegate.contracts.runs import RunRequest
from tidegate.contracts.topics import CONTRIBUTIONS
from tidegate.core.audit import AuditKind
from tidegate_rollup.decide import SERVICE, Pending, StoredEvent, events_in, run_request, stored_event


def acted(each: Pending, partition: int) -> tuple[RunRequest | None, list[AuditEntry]]:
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
        return None, [
            _entry(each, partition, AuditKind.MEMBER_WITHDRAWN, text, [(None, one) for one in events])
        ]
    named = [(event.asset or job.assets[asset], event) for asset, _, event in events_in(each.lines)]
    if what == "discard":
        text = f"the round was discarded with its {len(named)} events; later ones open another"
        return None, [_entry(each, partition, AuditKind.ROUND_DISCARDED, text, named)]
    if what == "drop":
        text = f"the deadline of the round passed: its {len(named)} events are dropped"
        return None, [_entry(each, partition, AuditKind.DEADLINE_DROPPED, text, named)]
    request, conflict = run_request(each)
    audit = [conflict] if conflict else []
    if what == "fail":
        audit.append(_entry(each, partition, AuditKind.DEADLINE_FAILED, request.failed or "", named))
    elif isinstance(control, OperatorAction):
        audit.append(_entry(each, partition, AuditKind.ROUND_FIRED, "the round was fired as it was", named))
    return request, audit


def _entry(
    each: Pending,
    partition: int,
    kind: AuditKind,
    message: str,
    events: Sequence[tuple[str | None, StoredEvent]] = (),
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
    return AuditEntry(
        id=audit_id(kind, control.id if isinstance(control, OperatorAction) else position, control.job),
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
