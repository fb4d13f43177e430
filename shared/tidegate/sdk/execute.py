"""Calling a job's function for one run, and saying what became of it."""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final, NamedTuple

from tidegate.contracts.runs import RunCommand, RunState
from tidegate.sdk.errors import JobFailed
from tidegate.sdk.outlets import OutletEvent, encode_outlets, key_written_back
from tidegate.sdk.run import Run

log = logging.getLogger(__name__)

Function = Callable[[Run], object]
"""What runs a job: plain or `async`, returning nothing or, as a generator, yielding Metadata."""
MAX_ERROR_CHARACTERS: Final = 4096
_MAX_MESSAGE_CHARACTERS: Final = 3800  # leaves room for the place in the code


class Outcome(NamedTuple):
    """What one run came to."""

    state: RunState
    error: str | None
    outlet_events: list[OutletEvent]
    added_key: str | None = None
    """The one key that a run which started without one added (rule D8)."""


async def execute(command: RunCommand, function: Function) -> Outcome:
    """Run `function`; whatever it raises fails the run, and a failed run publishes nothing.

    A plain function gets a thread of its own, so that it may block. Metadata that a generator yields goes to the run's
    outlet events, anything else that it yields fails the run. Only cancellation of the caller is passed on; a thread
    that is then still busy goes on by itself and its result is dropped.
    """
    run = Run.from_command(command)
    try:
        result: object
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            result = function(run)
        else:
            result, failure = await _in_thread(function, run)
            if failure is not None:
                return _failed(run, failure)
        if inspect.isawaitable(result):
            await result
        elif inspect.isasyncgen(result):
            async with contextlib.aclosing(result):
                async for yielded in result:
                    run.outlet_events.record(yielded)
        events = encode_outlets(
            run.outlet_events,
            job=run.job,
            run_id=run.run_id,
            partition_key=run.partition_key,
            partition_date=run.partition_date,
            extra=run.extra,
            time=datetime.now(UTC),
        )
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return _failed(run, error)
    except BaseException as error:  # SystemExit too: a job that gives up must not take the worker along
        return _failed(run, error)
    added_key = None if run.partition_key is not None else key_written_back(run.outlet_events, None)
    return Outcome(RunState.SUCCEEDED, None, events, added_key)


def labelled(run: Run | RunCommand) -> str:
    """The run's job, with its key where it has one, for log lines."""
    return run.job if run.partition_key is None else f"{run.job} for {run.partition_key}"


def _call(function: Function, run: Run) -> object:
    result = function(run)
    if not inspect.isgenerator(result) or inspect.isawaitable(result):
        return result
    with contextlib.closing(result):
        for yielded in result:
            run.outlet_events.record(yielded)
    return None


async def _in_thread(function: Function, run: Run) -> tuple[object, BaseException | None]:
    """What `function` returned and what it raised, in a thread of its own; a generator is worked off there too.

    Not in a pool: its threads would hold up the end of the process, and lost runs could fill it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def work() -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = context.run(_call, function, run)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name=f"tidegate-{run.job}", daemon=True).start()
    return await done


def _failed(run: Run, error: BaseException) -> Outcome:
    text = describe(error)
    trace = None if isinstance(error, JobFailed) else error
    log.error("run %s of %s failed: %s", run.run_id, labelled(run), text, exc_info=trace)
    return Outcome(RunState.FAILED, text, [])


def describe(error: BaseException) -> str:
    """The error as one text for people, at most 4,096 characters, always encodable."""
    try:
        message = str(error)
    except Exception:  # a broken __str__ must not hide that the run failed
        message = "(the error has no readable message)"
    if isinstance(error, JobFailed):
        text = message
    else:
        text = type(error).__name__ + (f": {message[:_MAX_MESSAGE_CHARACTERS]}" if message else "")
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        if frames:
            text += f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})"
    return text.encode("utf-8", "backslashreplace").decode()[:MAX_ERROR_CHARACTERS]
