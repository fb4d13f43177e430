"""Runs: the request of the rollup, the command to the workers, the reports of the workers, the state of record."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

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
    events: tuple[TriggeringEvent, ...]
    oversize: int | None = None
    """Size in bytes of a request that was too large to send; its events are left out and it cannot be dispatched."""


class RunRequestBatch(Message):
    """A record of `run-requests`."""

    v: int = 1
    source: str
    """The (partition, shard) whose log the requests follow, `contributions/<partition>#<shard>`."""
    requests: tuple[RunRequest, ...]


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


class RunState(StrEnum):
    SENT = "sent"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNDELIVERABLE = "undeliverable"


ENDED: Final = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.UNDELIVERABLE})


class RunEvent(Message):
    """`run-events`: what a worker reports. Public: any client may write it, keyed by job."""

    v: int = 1
    run_id: str
    job: str
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
    sent_at: int
    """Milliseconds since 1970."""
    updated_at: int
    error: str | None = None
