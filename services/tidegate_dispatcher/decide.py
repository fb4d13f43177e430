"""What a batch of run requests and run events changes: pure, given the states of the runs that it names."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.runs import ENDED, Outlet, Run, RunCommand, RunEvent, RunRequest, RunState
from tidegate.contracts.topics import MAX_INTERNAL_BYTES, RUN_COMMANDS_PREFIX
from tidegate.core.audit import AuditKind
from tidegate.definitions import Asset, AssetAlias, Job

SERVICE = "dispatcher"
FIRED_AT_ONCE = 500
"""Rounds that one entry of the audit log tells of: with keys of 250 characters it stays below 1 MiB."""

FRAMING_BYTES = 2 * 1024
"""What Kafka adds to the value of one record: its key, of up to 250 characters, and the frames of record and batch."""


class Requested(NamedTuple):
    """A run request with the log that its coordinates belong to."""

    source: str
    request: RunRequest


class Command(NamedTuple):
    """A run command to send."""

    topic: str
    key: str
    value: bytes


@dataclass(slots=True)
class Decisions:
    """What one transaction writes."""

    commands: list[Command] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    """The new states, by run id."""
    audit: list[AuditEntry] = field(default_factory=list)
    fired: list[RunRequest] = field(default_factory=list)
    """The rounds whose runs are taken up here, to be told by `fired_entries`."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decisions depend on besides their inputs."""

    partition: int
    now: int
    """Milliseconds since 1970."""
    job_of: Callable[[RunRequest], Job | None]
    """The definition that a request is dispatched by; None where the job is gone."""
    limit_of: Callable[[str], int | None]
    """How many bytes a record of a topic may have, None where the topic does not exist."""


def commands_topic(job_id: str, job: Job | None) -> str:
    """Where the workers of a job listen."""
    return (job.run_commands_topic if job else None) or RUN_COMMANDS_PREFIX + job_id


def decide(
    inputs: Iterable[Requested | RunEvent], known: Mapping[str, Run], surroundings: Surroundings
) -> Decisions:
    """The decisions on `inputs` in order; `known` holds the stored state of every run that they name, if it has one."""
    decisions = Decisions()
    for each in inputs:
        run_id = each.request.run_id if isinstance(each, Requested) else each.run_id
        run = decisions.runs.get(run_id) or known.get(run_id)
        if isinstance(each, RunEvent):
            _report(each, run, decisions, surroundings)
        elif run is None:
            _dispatch(each, decisions, surroundings)
        elif (run.source, run.offset) != (each.source, each.request.offset):
            decisions.audit.append(_mismatch(each, run, surroundings))
    return decisions


def fired_entries(requests: Iterable[RunRequest], now: int) -> Iterator[AuditEntry]:
    """Which rounds have fired, job by job and some hundred in an entry, since an entry for each costs too much."""
    by_job: dict[str, list[RunRequest]] = {}
    for request in requests:
        by_job.setdefault(request.job, []).append(request)
    for job, fired in by_job.items():
        for first in range(0, len(fired), FIRED_AT_ONCE):
            some = fired[first : first + FIRED_AT_ONCE]
            runs = [{"run_id": each.run_id, "partition_key": each.partition_key} for each in some]
            yield AuditEntry(
                id=audit_id(AuditKind.FIRED, *(each.run_id for each in some)),
                kind=AuditKind.FIRED,
                service=SERVICE,
                at=now,
                message=f"rounds fired: {len(some)}",
                job=job,
                details={"runs": runs},
            )


def _dispatch(requested: Requested, decisions: Decisions, surroundings: Surroundings) -> None:
    request = requested.request
    job = surroundings.job_of(request)
    topic = commands_topic(request.job, job)
    command = RunCommand(
        run_id=request.run_id,
        job=request.job,
        partition_key=request.partition_key,
        partition_date=request.partition_date,
        generation=request.generation,
        cause=request.cause,
        is_partial=request.is_partial,
        completed_by=request.completed_by,
        definition_revision=request.revision,
        windows=request.windows,
        triggering_asset_events=request.events,
        outlets=tuple(map(_outlet, job.outlets if job else ())),
        run_events_partition=surroundings.partition,
    )
    value = command.to_bytes()
    problem = None if request.failed else _undeliverable(request, topic, len(value), surroundings)
    if problem:
        decisions.audit.append(
            AuditEntry(
                id=audit_id(AuditKind.DISPATCH_FAILED, request.run_id),
                kind=AuditKind.DISPATCH_FAILED,
                service=SERVICE,
                at=surroundings.now,
                message=problem,
                job=request.job,
                partition_key=request.partition_key,
                details={"run_id": request.run_id},
            )
        )
    elif not request.failed:
        decisions.commands.append(Command(topic, request.partition_key or request.job, value))
    if not request.failed:  # a deadline that fails a round is audited as that
        decisions.fired.append(request)
    state = RunState.FAILED if request.failed else RunState.UNDELIVERABLE if problem else RunState.SENT
    decisions.runs[request.run_id] = Run(
        run_id=request.run_id,
        job=request.job,
        incarnation=request.incarnation,
        partition_key=request.partition_key,
        partition_date=request.partition_date,
        generation=request.generation,
        state=state,
        source=requested.source,
        offset=request.offset,
        sent_at=surroundings.now,
        updated_at=surroundings.now,
        error=request.failed or problem,
    )


def _outlet(outlet: Asset | AssetAlias) -> Outlet:
    if isinstance(outlet, AssetAlias):
        return Outlet(name=outlet.name, kind="alias")
    return Outlet(name=outlet.name, uri=outlet.uri)


def _undeliverable(request: RunRequest, topic: str, size: int, surroundings: Surroundings) -> str | None:
    """Why a command can never be sent, None where it can (rule T8)."""
    limit = surroundings.limit_of(topic)
    if limit is None:
        return f"topic {topic!r} does not exist: run `tidegate apply` again or create it"
    largest = min(limit - FRAMING_BYTES, MAX_INTERNAL_BYTES)
    if request.oversize is not None or size > largest:
        return (
            f"the run's command has {request.oversize or size} bytes, more than the {largest} that fit into topic"
            f" {topic!r}: keep large data out of extra and put its address there, or raise max.message.bytes"
        )
    return None


def _report(event: RunEvent, run: Run | None, decisions: Decisions, surroundings: Surroundings) -> None:
    # A status belongs to (run, attempt); an end is final. Reports are repeated freely, so none of this is audited.
    if run is None or event.attempt != run.attempt or run.state in ENDED or event.state == run.state:
        return
    if event.state in (RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED):
        key = run.partition_key
        if key is None and event.state is RunState.SUCCEEDED:
            key = event.partition_key  # the run gave it to itself (rule D8)
        decisions.runs[run.run_id] = run.model_copy(
            update={
                "state": event.state,
                "updated_at": surroundings.now,
                "error": event.error,
                "partition_key": key,
            }
        )


def _mismatch(requested: Requested, run: Run, surroundings: Surroundings) -> AuditEntry:
    request = requested.request
    return AuditEntry(
        id=audit_id(AuditKind.RUN_ID_MISMATCH, request.run_id, requested.source, request.offset),
        kind=AuditKind.RUN_ID_MISMATCH,
        service=SERVICE,
        at=surroundings.now,
        message=(
            f"run {request.run_id} was requested again from {requested.source}@{request.offset}, first from"
            f" {run.source}@{run.offset}: no second command is sent"
        ),
        job=request.job,
        partition_key=request.partition_key,
    )


def forgettable(runs: Sequence[Run], horizon_ms: int, now: int, acknowledged: Mapping[str, int]) -> list[str]:
    """The runs whose ids need not be remembered any more (rule T7).

    `acknowledged` gives, by log, the offset below which the rollup never asks again.
    """
    return [
        run.run_id
        for run in runs
        if run.sent_at < now - horizon_ms and run.offset < acknowledged.get(run.source.partition("#")[0], 0)
    ]
