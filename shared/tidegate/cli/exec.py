"""`tidegate exec`: a job in any language, one command line per run."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from tidegate.cli.options import (
    DEFAULT_GROUP,
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    AcceptGapsOption,
    GroupOption,
    InstanceOption,
    JobArgument,
    KafkaOption,
    NamespaceOption,
)
from tidegate.sdk.errors import JobFailed, WorkerError
from tidegate.sdk.run import Run
from tidegate.sdk.template import check_template, render
from tidegate.sdk.worker import Worker

_TAIL_BYTES: Final = 2048
_STOP_AFTER_S: Final = 5.0


def exec_(
    job: JobArgument,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...",
            help="Program and arguments, each a template: '{{ partition_key }}', '{{ partition_date | ds }}'.",
        ),
    ],
    shell: Annotated[
        bool,
        typer.Option(
            "--shell",
            help='Run the words, joined, with sh. Keys come from outside: prefer "$TIDEGATE_PARTITION_KEY" there.',
        ),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="Topic of the job's commands, where it is not run-commands.JOB."),
    ] = None,
    kafka: KafkaOption = DEFAULT_KAFKA,
    group: GroupOption = DEFAULT_GROUP,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    instance_id: InstanceOption = None,
    accept_gaps: AcceptGapsOption = False,
) -> None:
    """Run a command for every run of JOB.

    The run is in TIDEGATE_RUN_ID, TIDEGATE_JOB, TIDEGATE_PARTITION_KEY, TIDEGATE_PARTITION_DATE and
    TIDEGATE_ATTEMPT, and whole, as JSON, on standard input. Key and date are empty, there and in templates, where
    the run has none; '{{ partition_date | ds }}' fails such a run. Exit code 0 means success: the job's outlets are
    updated. Any other fails the run, with the end of standard error as its error.
    """
    command = command[1:] if command[0] == "--" else command
    if not command:
        raise typer.BadParameter("give a command after --")
    for word in command:
        check_template(word)
    if not shell and "{" not in command[0] and shutil.which(command[0]) is None:
        raise WorkerError(f"command {command[0]!r} is not a program that can be run here: no run is taken")
    worker = Worker(kafka, group=group, namespace=namespace, instance_id=instance_id, accept_gaps=accept_gaps)

    @worker.job(job, topic=topic)
    async def run_command(run: Run) -> None:
        await execute_command(run, command, shell=shell)

    worker.main()


async def execute_command(run: Run, command: Sequence[str], *, shell: bool) -> None:
    """Run one command line for `run`; raises JobFailed unless its exit code is 0."""
    context = run.context()
    words = [render(word, context) for word in command]
    arguments = ["/bin/sh", "-c", " ".join(words)] if shell else words
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment(run)},
            start_new_session=True,  # Ctrl-C reaches the worker, which lets the run finish
        )
    except (OSError, ValueError) as error:
        raise JobFailed(f"command {words[0]!r} cannot be started: {error}") from error
    try:
        _, tail = await asyncio.gather(_feed(process, run.command.to_bytes()), _pass_on(process))
        code = await process.wait()
    except BaseException:
        await _end(process)
        raise
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise JobFailed(f"command {words[0]!r} {how}" + (f": {tail}" if tail else ""))


def environment(run: Run) -> Mapping[str, str]:
    """What the command finds in its environment; key and date are empty where the run has none."""
    return {
        "TIDEGATE_RUN_ID": run.run_id,
        "TIDEGATE_JOB": run.job,
        "TIDEGATE_PARTITION_KEY": run.partition_key or "",
        "TIDEGATE_PARTITION_DATE": run.partition_date.isoformat() if run.partition_date else "",
        "TIDEGATE_ATTEMPT": str(run.attempt),
    }


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # a command need not read its input
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
    with contextlib.suppress(ConnectionError):
        await process.stdin.wait_closed()


async def _pass_on(process: asyncio.subprocess.Process) -> str:
    """Standard error goes where ours goes; its end is kept for the report."""
    assert process.stderr is not None
    tail = b""
    while chunk := await process.stderr.read(65_536):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()
        tail = (tail + chunk)[-_TAIL_BYTES:]
    return tail.decode("utf-8", "replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    """The run is given up: ask the command's whole process group to end, then make it."""
    for number in (15, 9):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_AFTER_S):
                await process.wait()
                return
