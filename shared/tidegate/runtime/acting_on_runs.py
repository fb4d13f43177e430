"""What people do to a run: send one again that was undeliverable (rule T8), end one of which no end is reported."""

from secrets import token_hex

from pydantic import ValidationError

from tidegate.contracts.runs import (
    ACTIVE,
    FailRun,
    Redrive,
    RunRequest,
    RunState,
    read_run_requests_record,
    requests_in,
)
from tidegate.contracts.topics import RUN_REQUESTS
from tidegate.core.errors import TidegateError
from tidegate.runtime.acting import WAIT_S, Written, write_to_dispatcher
from tidegate.runtime.dead_letters import CannotRedriveError
from tidegate.runtime.job_runs import find_run
from tidegate.runtime.reading import log_reader


class RunNotActiveError(TidegateError, RuntimeError):
    """A run that a person wants to end, and that waits or has ended."""


async def redrive_run(
    bootstrap: str, namespace: str, run_id: str, *, by: str, wait_s: float = WAIT_S
) -> Written:
    """Send the request of an undeliverable run again; the dispatcher looks at the run's state once more.

    Waits up to `wait_s` seconds for the dispatcher. Raises NoSuchRunError, and CannotRedriveError for a run that is not
    undeliverable, or whose request is gone from `run-requests`.
    """
    run, partition = await find_run(bootstrap, run_id)
    if run.state is not RunState.UNDELIVERABLE:
        raise CannotRedriveError(
            f"run {run_id!r} of job {run.job!r} is {run.state.value}: only undeliverable runs are sent again"
        )
    found = await _request(bootstrap, run_id, partition)
    if found is None:
        raise CannotRedriveError(
            f"the request of run {run_id!r} is gone from `run-requests`: start another run with"
            f" `tidegate trigger {run.job}`"
        )
    origin, request = found
    record = Redrive(id=token_hex(8), by=by, origin=origin, request=request)
    return await write_to_dispatcher(bootstrap, namespace, record, partition, wait_s)


async def fail_run(
    bootstrap: str, namespace: str, run_id: str, *, by: str, wait_s: float = WAIT_S
) -> Written:
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
    return await write_to_dispatcher(bootstrap, namespace, record, partition, wait_s)


async def _request(bootstrap: str, run_id: str, partition: int) -> tuple[str, RunRequest] | None:
    """Where a run was asked for at first, and how."""
    async with log_reader(bootstrap) as reader:
        async for record in reader.since(RUN_REQUESTS, 0, [partition]):
            try:
                read = read_run_requests_record(record.value or b"")
            except ValidationError:  # the dispatcher has audited it
                continue
            for request in requests_in(read):
                if request.run_id == run_id:
                    return f"{RUN_REQUESTS}/{partition}@{record.offset}", request
    return None
