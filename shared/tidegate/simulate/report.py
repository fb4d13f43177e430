"""What comes of a simulation as plain data: lines of JSON, with the names that run commands and audit entries use."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from tidegate.definitions.job import Job
from tidegate.definitions.known import outlets_of
from tidegate.definitions.progress import WindowCount
from tidegate.definitions.routes import JobRoutes
from tidegate.simulate.event import AssetEvent, Audit, Happened, PendingRound, Run
from tidegate.simulate.model import Simulation

Line = dict[str, dict[str, Any]]


def happened_lines(happened: Iterable[Happened]) -> Iterator[Line]:
    """One line a run, `{"run": ...}`, and one an audit entry, `{"audit": ...}`."""
    for each in happened:
        if isinstance(each.what, Run):
            yield {"run": {"run_id": each.what.id, "at": _text(each.at), **_run(each.what)}}
        else:
            yield {"audit": _audit(each.what, each.at)}


def end_lines(simulation: Simulation) -> Iterator[Line]:
    """What still waits: `{"held": ...}` for runs of paused jobs, `{"pending": ...}` for rounds that are open."""
    for run in simulation.held():
        yield {"held": _run(run)}
    for pending in simulation.pending():
        yield {"pending": _pending(pending)}


def warnings_of(job: Job, *, run_outlets: bool = True) -> Iterator[str]:
    """What a person should know of a job when it is defined, though it works."""
    for route in JobRoutes(job).routes:
        yield from route.warnings()
        if route.deadline is not None:
            yield f"{route.where}: its deadline is not simulated, so that its rounds wait until they are complete"
    if run_outlets and outlets_of(job) and job.schedule is not None and job.schedule.partitioned_at_runtime:
        yield (
            f"job {job.id!r} decides its partition keys when it runs: its outlets are not updated; give their events"
            " among the others"
        )


def _run(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {
        "job": run.job,
        "partition_key": run.partition_key,
        "partition_date": _text(run.partition_date),
        "generation": run.generation,
        "cause": run.cause,
    }
    if run.info is not None:
        interval = run.info.data_interval
        found["run_after"] = _text(run.info.run_after)
        found["data_interval"] = None if interval is None else [_text(interval.start), _text(interval.end)]
        return found
    found["completed_by"] = None if run.completed_by is None else run.completed_by.id
    found["windows"] = [
        {"asset": each.asset, "arrived": each.arrived, "expected": each.expected} for each in run.windows
    ]
    found["missing"] = [name for each in run.windows for name in each.missing]
    found["members"] = [_member(event) for event in run.events]
    return found


def _member(event: AssetEvent) -> dict[str, Any]:
    found = {
        "asset": event.asset.name,
        "id": event.id,
        "source": event.source,
        "partition_key": event.key,
        "partition_date": _text(event.date),
        "extra": dict(event.extra),
    }
    return found | ({"aliases": [alias.name for alias in event.aliases]} if event.aliases else {})


def _pending(pending: PendingRound) -> dict[str, Any]:
    return {
        "job": pending.job,
        "partition_key": pending.partition_key,
        "have": sum(each.arrived for each in pending.windows),
        "of": sum(each.expected for each in pending.windows),
        "missing": [name for each in pending.windows for name in each.missing],
        "assets": [_window(each) for each in pending.windows],
    }


def _window(window: WindowCount) -> dict[str, Any]:
    return {
        "asset": window.asset,
        "arrived": window.arrived,
        "expected": window.expected,
        "needed": window.needed,
        "missing": list(window.missing),
    }


def _audit(audit: Audit, at: datetime) -> dict[str, Any]:
    """As the contract of audit entries has it; what does not apply is left out."""
    details = dict(audit.details)
    if audit.replaced_event_id is not None:
        details["replaced_event_id"] = audit.replaced_event_id
    fields = {
        "kind": audit.kind.value,
        "at": _text(at),
        "message": audit.message,
        "job": audit.job,
        "asset": audit.asset,
        "partition_key": audit.partition_key,
        "event_id": audit.event_id,
        "event_source": audit.event_source,
        "details": details or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _text(at: datetime | None) -> str | None:
    """An instant as run commands write it, `2026-03-10T00:00:00Z`."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
