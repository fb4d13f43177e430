"""Pausing and resuming a job, and starting a run of it: records on `run-requests` (rules D3, D4)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Final, Literal
from uuid import uuid4

from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import JobControl, ManualRun, RunRequest
from tidegate.core.errors import InvalidPartitionKeyError, NotPartitionedError, TidegateError
from tidegate.core.keys import validate_key
from tidegate.core.timetables import Timetable
from tidegate.core.timetables.base import partitions_between, resolve_partition_date
from tidegate.definitions import Job
from tidegate.runtime.acting import WAIT_S, Written, write_to_dispatcher
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.job_runs import job_runs

_LOOK_BACK_DAYS: Final = (1, 31, 366)
_RUN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


class InvalidRunIdError(TidegateError, ValueError):
    """A run id that a person gave, and that cannot be one."""


@dataclass(frozen=True, slots=True)
class Triggered:
    run_id: str
    written: Written


async def control_job(
    bootstrap: str,
    namespace: str,
    kind: Literal["pause", "resume"],
    job: str,
    *,
    by: str,
    wait_s: float = WAIT_S,
) -> Written:
    """Let the runs of a job wait, or go out again in order. Waits up to `wait_s` seconds for the dispatcher.

    Raises DefinitionError for a job that is not defined; one that was deleted while it was paused can be resumed.
    """
    async with definitions_view(bootstrap) as view:
        installation = view.installation
    assert installation is not None
    is_left = (
        view.job(job) is None and kind == "resume" and (await job_runs(bootstrap, job)).paused is not None
    )
    if not is_left:
        view.defined(job)
    record = JobControl(kind=kind, id=token_hex(8), by=by, job=job)
    partition = partition_of(job, installation.partitions)
    return await write_to_dispatcher(bootstrap, namespace, record, partition, wait_s)


async def trigger(
    bootstrap: str,
    namespace: str,
    job: str,
    key: str | None,
    *,
    by: str,
    is_unpartitioned: bool = False,
    run_id: str | None = None,
    wait_s: float = WAIT_S,
) -> Triggered:
    """Start a run of a job now, without touching the round of its key that may be filling (rule D4).

    `run_id` is random unless it is given; a run id that was used before starts nothing. Waits up to `wait_s` seconds
    for the dispatcher. Raises InvalidRunIdError, DefinitionError for a job that is not defined, and
    InvalidPartitionKeyError for a key that the schedule could not have given, a key where it gives none, and a missing
    one where it does, unless the run is said to be unpartitioned (rule D14).
    """
    async with definitions_view(bootstrap) as view:
        defined, installation = view.defined(job), view.installation
    assert installation is not None
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        raise InvalidRunIdError(f"run id {run_id!r:.100} must have 1 to 100 letters, digits, '.', '_' or '-'")
    now = datetime.now(UTC)
    date = check_key(defined.job, key, now, is_unpartitioned=is_unpartitioned)
    request = RunRequest(
        offset=0,
        ordinal=0,
        run_id=run_id or uuid4().hex,
        job=job,
        incarnation=defined.incarnation,
        revision=defined.revision,
        partition_key=key,
        partition_date=date,
        generation=1,
        cause="manual",
        windows=(),
        events=(),
    )
    record = ManualRun(by=by, request=request)
    partition = partition_of(job, installation.partitions)
    return Triggered(
        request.run_id, await write_to_dispatcher(bootstrap, namespace, record, partition, wait_s)
    )


def check_key(job: Job, key: str | None, now: datetime, *, is_unpartitioned: bool) -> datetime | None:
    """The date of the key that a person gives for a run of `job`, None where it has none.

    Raises InvalidPartitionKeyError (rule D14); where a key is missing and the schedule can tell, the message names
    that of the latest partition before `now` (B037).
    """
    schedule = job.schedule
    is_partitioned = schedule is not None and schedule.partitioned
    if key is None:
        if is_partitioned and not is_unpartitioned:
            latest = _latest_key(schedule, now)
            advice = "" if latest is None else f" (the latest is {latest})"
            raise InvalidPartitionKeyError(
                f"job {job.id!r} runs for partitions: give --key{advice}, or --unpartitioned for a run"
                " without, which nothing that waits for partitions will follow"
            )
        return None
    if is_unpartitioned:
        raise InvalidPartitionKeyError(
            f"partition key {key!r} and --unpartitioned exclude each other: give one"
        )
    if not is_partitioned:
        raise InvalidPartitionKeyError(
            f"the schedule of job {job.id!r} gives its runs no partitions: leave partition key {key!r} out"
        )
    assert schedule is not None
    return resolve_partition_date(schedule, validate_key(key))


def _latest_key(schedule: Timetable | None, now: datetime) -> str | None:
    """The key of the latest partition that has begun, None where the schedule cannot tell."""
    for days in _LOOK_BACK_DAYS:
        keys = [key for at, key in _partitions(schedule, now, days) if at <= now]
        if keys:
            return keys[-1]
    return None


def _partitions(schedule: Timetable | None, now: datetime, days: int) -> Iterator[tuple[datetime, str]]:
    if schedule is None:
        return
    try:
        # Both ends are wall clocks of the schedule's own zone, which is at most a day away.
        for run in partitions_between(schedule, now - timedelta(days=days), now + timedelta(days=1)):
            if run.partition_date is not None and run.partition_key is not None:
                yield run.partition_date, run.partition_key
    except NotPartitionedError:
        return
