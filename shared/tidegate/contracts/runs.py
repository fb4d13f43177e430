"""Runs: the request of the rollup, the command to the workers, the reports of the workers, the state of record."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import to_json
from typing_extensions import TypedDict

from tidegate.contracts.message import Message
from tidegate.core.keys import validate_key


class TriggeringEvent(Message):
    """One asset event that a run was started by."""

    asset: str
    id: str
    source: str
    member: int = 0
    """Index of the window member that it stands for; several events may stand for one."""
    partition_key: str | None = None
    partition_date: datetime | None = None
    received_at: datetime
    extra: dict[str, Any] | None = None
    routes: tuple[str, ...] | None = None
    """The assets and aliases of the schedule by which it came, where there is more to say than its asset (B060)."""


@with_config(ConfigDict(extra="forbid"))
class PassedEvent(TypedDict):
    """A `TriggeringEvent` on its way from a request to its command: what is valid and its JSON are the same.

    As a dictionary, since reading and writing it costs half as much then, and a run may be started by thousands.
    """

    asset: str
    id: str
    source: str
    member: NotRequired[Annotated[int, Field(default=0)]]
    partition_key: NotRequired[str | None]
    partition_date: NotRequired[datetime | None]
    received_at: datetime
    extra: NotRequired[dict[str, Any] | None]
    routes: NotRequired[tuple[str, ...] | None]


class WindowProgress(Message):
    """How full one asset's window was when the run was started."""

    asset: str
    arrived: int
    expected: int


class RunRequest(Message):
    """`run-requests`, one entry of a packed record: start this run."""

    offset: int
    ordinal: int
    """With `offset` the coordinates of the contribution that completed the round (rule E1)."""
    run_id: str
    job: str
    incarnation: str
    revision: int
    partition_key: str | None = None
    """None for a job without partitions; so in every message on runs."""
    partition_date: datetime | None = None
    generation: int
    cause: str = "assets"
    """`assets`, `deadline` (rule R4) or `manual`."""
    is_partial: bool = False
    """Whether the round was fired as it was, by a deadline or a person."""
    completed_by: str | None = None
    """Id of the event that completed the round; None where none did."""
    failed: str | None = None
    """Why the run fails without being started; it gets no command then."""
    windows: tuple[WindowProgress, ...]
    events: tuple[PassedEvent, ...]
    oversize: int | None = None
    """Size in bytes of a request that was too large to send; its events are left out and it cannot be dispatched."""


class RunRequestBatch(Message):
    """A record of `run-requests`: what the rollup asks for, packed."""

    kind: Literal["requests"] = "requests"
    v: int = 1
    source: str
    """The (partition, shard) whose log the requests follow, `contributions/<partition>#<shard>`."""
    requests: tuple[RunRequest, ...]


class EncodedRequest(NamedTuple):
    """A `RunRequest` as JSON, on its way out."""

    job: str
    raw: bytes
    failed: str | None = None


def encoded(request: Mapping[str, Any]) -> bytes:
    """`to_bytes` of the `RunRequest` with these fields, from values of our own.

    The models take ten times as long. What is nested has no fields without a value; readers validate.
    """
    said = {name: value for name, value in request.items() if value is not None}
    return to_json(said, inf_nan_mode="null")


def encoded_batch(source: str, requests: Sequence[EncodedRequest]) -> bytes:
    """`to_bytes` of the `RunRequestBatch` of these requests."""
    head = to_json({"kind": "requests", "v": 1, "source": source})[:-1]
    return b'%b,"requests":[%b]}' % (head, b",".join(each.raw for each in requests))


class ManualRun(Message):
    """A record of `run-requests`: a person starts a run. One whose run id was used before starts nothing (rule T7)."""

    kind: Literal["manual"] = "manual"
    v: int = 1
    by: str
    """Who it was, as people are known where it was done."""
    request: RunRequest
    """Its coordinates mean nothing: the place of this record takes their part."""


class Redrive(Message):
    """A record of `run-requests`: a person has an undeliverable run sent again (rule T8); no other run is touched."""

    kind: Literal["redrive"] = "redrive"
    v: int = 1
    id: str
    """Random; the audit entries of one action have the same ids however often it is read."""
    by: str
    origin: str
    """Where it was asked for at first, `run-requests/<partition>@<offset>`."""
    request: RunRequest
    """As it stands there."""


class JobControl(Message):
    """A record of `run-requests`: from here on the job's runs wait, or go out again (rule D3)."""

    kind: Literal["pause", "resume"]
    v: int = 1
    id: str
    """Random; the audit entries of one action have the same ids however often it is read."""
    by: str
    job: str


class FailRun(Message):
    """A record of `run-requests`: a person ends as failed a run that has no end, as when its worker died with it.

    Only that attempt of it, and only while it is active; its place goes to the next run of its job (rule T5).
    """

    kind: Literal["fail"] = "fail"
    v: int = 1
    id: str
    """Random; the audit entries of one action have the same ids however often it is read."""
    by: str
    run_id: str
    job: str
    attempt: int = 1
    partition_key: str | None = None


RunRequestsRecord = RunRequestBatch | ManualRun | Redrive | JobControl | FailRun

_READER: Final[TypeAdapter[RunRequestsRecord]] = TypeAdapter(
    Annotated[RunRequestsRecord, Field(discriminator="kind")]
)


def read_run_requests_record(raw: bytes) -> RunRequestsRecord:
    """The message in a record of `run-requests`; raises pydantic.ValidationError."""
    return _READER.validate_json(raw)


def requests_in(record: RunRequestsRecord) -> tuple[RunRequest, ...]:
    """The runs that a record of `run-requests` asks for, each for the first time."""
    if isinstance(record, RunRequestBatch):
        return record.requests
    return (record.request,) if isinstance(record, ManualRun) else ()


class Outlet(Message):
    """An asset that the run updates, or an alias that stands for what the run adds to it."""

    name: str
    uri: str | None = None
    kind: Literal["asset", "alias"] = "asset"


class RunCommand(Message):
    """`run-commands.<job>`: public, one record a run, read committed. Record key: the partition key, or the
    job's id where there is none."""

    v: int = 1
    run_id: str
    job: str
    attempt: int = 1
    partition_key: str | None = None
    partition_date: datetime | None = None
    generation: int
    """The deliberate runs of this (job, key) are numbered from 1."""
    cause: str
    is_partial: bool = False
    completed_by: str | None = None
    definition_revision: int
    windows: tuple[WindowProgress, ...]
    triggering_asset_events: tuple[TriggeringEvent, ...]
    outlets: tuple[Outlet, ...] = ()
    run_events_partition: int
    """The partition of `run-events` that reports on this run go to (rule T5)."""


_PASSED: Final = TypeAdapter(tuple[PassedEvent, ...])


def encoded_command(
    request: RunRequest, attempt: int, outlets: Iterable[Outlet], run_events_partition: int
) -> bytes:
    """`to_bytes` of the `RunCommand` that a request leads to."""
    fields = {
        "v": 1,
        "run_id": request.run_id,
        "job": request.job,
        "attempt": attempt,
        "partition_key": request.partition_key,
        "partition_date": request.partition_date,
        "generation": request.generation,
        "cause": request.cause,
        "is_partial": request.is_partial,
        "completed_by": request.completed_by,
        "definition_revision": request.revision,
        "windows": request.windows,
    }
    return b'%b,"triggering_asset_events":%b,"outlets":[%b],"run_events_partition":%d}' % (
        encoded(fields)[:-1],
        _PASSED.dump_json(request.events, exclude_none=True),
        b",".join(each.to_bytes() for each in outlets),
        run_events_partition,
    )


class RunState(StrEnum):
    QUEUED = "queued"
    """Its command waits: the job is paused, or as many of its runs are active as may be."""
    SENT = "sent"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNDELIVERABLE = "undeliverable"


ACTIVE: Final = frozenset({RunState.SENT, RunState.RUNNING})
"""What counts towards `max_active_runs`."""
ENDED: Final = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.UNDELIVERABLE})


class RunEvent(Message):
    """`run-events`: what a worker reports. Public: any client may write it, keyed by job.

    The run id decides what it is about; the job says where to look on another partition than the run's (rule T5).
    """

    v: int = 1
    run_id: str = Field(max_length=250)
    job: str = Field(max_length=250)
    attempt: int = 1
    state: RunState
    error: str | None = Field(default=None, max_length=4096)
    partition_key: Annotated[str, AfterValidator(validate_key)] | None = None
    """The one key that a run which started without added to its outlets (rule D8); counts with `succeeded` only."""


class Run(Message):
    """`runs`: the full state of one run; compacted by run id."""

    v: int = 1
    run_id: str
    job: str
    incarnation: str
    partition_key: str | None = None
    """The command's, or the one that the run gave itself (rule D8)."""
    partition_date: datetime | None = None
    generation: int
    state: RunState
    attempt: int = 1
    source: str
    offset: int
    """Where its request came from; a seen run id with another place is audited (rule T7)."""
    cause: str = "assets"
    asked_at: int = 0
    """Time of the record that asked for the run, milliseconds since 1970: with the key its place in the queue."""
    sent_at: int
    """Milliseconds since 1970; of a run that waits, when it began to."""
    updated_at: int
    error: str | None = None
    request: RunRequest | None = None
    """What its command is made from, while it waits."""


class JobState(Message):
    """`runs`: what was done to a job; compacted by `job:<id>`."""

    v: int = 1
    job: str
    is_paused: bool
    by: str
    at: int
    """Time of the record that did it, milliseconds since 1970."""


def stored_run(value: str) -> Run:
    """The run in a value of the hash at `redis_keys.runs_key`, behind a line by which the scripts count."""
    return Run.from_bytes(value.partition("\n")[2].encode())


RunsRecord = Run | JobState
_JOB_KEY: Final = "job:"


def record_key(state: RunsRecord) -> str:
    """The record key of a state on `runs`: run ids hold no colon."""
    return state.run_id if isinstance(state, Run) else _JOB_KEY + state.job


def job_of_key(key: str) -> str | None:
    """The job that a record key of `runs` is about, None for a run."""
    return key.removeprefix(_JOB_KEY) if key.startswith(_JOB_KEY) else None


def read_runs_record(key: str, value: bytes) -> RunsRecord:
    """The state in a record of `runs`; raises pydantic.ValidationError."""
    return Run.from_bytes(value) if job_of_key(key) is None else JobState.from_bytes(value)
