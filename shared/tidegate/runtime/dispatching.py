"""What people do to jobs and runs: a record on `run-requests` that the dispatcher takes in its order (rule D3)."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Final, Literal
from uuid import uuid4

from aiokafka import TopicPartition

from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import ACTIVE, FailRun, JobControl, ManualRun, Redrive, RunRequest
from tidegate.contracts.topics import RUN_REQUESTS
from tidegate.core.errors import InvalidPartitionKeyError, NotPartitionedError, TidegateError
from tidegate.core.keys import validate_key
from tidegate.core.timetables import Timetable
from tidegate.core.timetables.base import partitions_between, resolve_partition_date
from tidegate.definitions import Job
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.job_runs import find_run, job_runs
from tidegate.runtime.positions import committed_positions
from tidegate.runtime.producer import acknowledged_producer, send_all
from tidegate.runtime.topic_admin import admin_client

_POLL_S: Final = 0.1
WAIT_S: Final = 10.0
_LOOK_BACK_DAYS: Final = (1, 31, 366)
_RUN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


class InvalidRunIdError(TidegateError, ValueError):
    """A run id that a person gave, and that cannot be one."""


class RunNotActiveError(TidegateError, RuntimeError):
    """A run that a person wants to end, and that waits or has ended."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that is on `run-requests`."""

    position: str
    is_read: bool
    """Whether the dispatcher has taken it in; the audit log says what came of it."""


@dataclass(frozen=True, slots=True)
class Triggered:
    run_id: str
    sent: Sent


async def control_job(
    bootstrap: str,
    namespace: str,
    kind: Literal["pause", "resume"],
    job: str,
    *,
    by: str,
    wait_s: float = WAIT_S,
) -> Sent:
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
    return await send_to_dispatcher(bootstrap, namespace, record, partition, wait_s)


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
        request.run_id, await send_to_dispatcher(bootstrap, namespace, record, partition, wait_s)
    )


async def fail_run(bootstrap: str, namespace: str, run_id: str, *, by: str, wait_s: float = WAIT_S) -> Sent:
    """End as failed a run of which no end is reported, as when its worker died with it; the next may then go out.

    A worker that lives on is not stopped by it. Waits up to `wait_s` seconds for the dispatcher. Raises NoSuchRunError,
    and RunNotActiveError for a run that waits or has ended.
    """
    run, partition = await find_run(bootstrap, run_id)
    if run.state not in ACTIVE:
        raise RunNotActiveError(
            f"run {run_id!r} of job {run.job!r} is {run.state.value}: only a run that was sent and has not ended"
            " can be ended as failed"
        )
    record = FailRun(
        id=token_hex(8),
        by=by,
        run_id=run_id,
        job=run.job,
        attempt=run.attempt,
        partition_key=run.partition_key,
    )
    return await send_to_dispatcher(bootstrap, namespace, record, partition, wait_s)


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
                f"job {job.id!r} runs for partitions: give --partition-key{advice}, or --unpartitioned for a run"
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


async def send_to_dispatcher(
    bootstrap: str,
    namespace: str,
    record: JobControl | ManualRun | Redrive | FailRun,
    partition: int,
    wait_s: float,
) -> Sent:
    """Write a record to `run-requests`, and wait up to `wait_s` seconds until the dispatcher has taken it in."""
    async with acknowledged_producer(bootstrap, "tidegate-operator") as producer:
        (stored,) = await send_all(producer, [Outgoing(RUN_REQUESTS, partition, None, record.to_bytes())])
    tp = TopicPartition(RUN_REQUESTS, partition)
    return Sent(
        f"{RUN_REQUESTS}/{partition}@{stored.offset}",
        await _is_read(bootstrap, f"{namespace}-dispatcher", tp, stored.offset, wait_s),
    )


async def _is_read(bootstrap: str, group: str, tp: TopicPartition, offset: int, wait_s: float) -> bool:
    try:
        async with admin_client(bootstrap) as admin, asyncio.timeout(wait_s):
            while True:
                position = (await committed_positions(admin, group, [tp])).get(tp)
                if position is not None and position.offset > offset:
                    return True
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
