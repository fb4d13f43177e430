"""`tidegate pause`, `resume` and `trigger`: what a person does to a job's runs."""

import asyncio
from typing import Annotated, Literal

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    ByOption,
    JobArgument,
    KafkaOption,
    KeyOption,
    NamespaceOption,
    person,
)
from tidegate.runtime.acting_on_jobs import control_job
from tidegate.runtime.acting_on_jobs import trigger as trigger_run


def pause(
    job: JobArgument,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Let the runs of JOB wait: its rounds go on filling, and no command goes out."""
    _control("pause", job, by, kafka, namespace)


def resume(
    job: JobArgument,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Let the runs of JOB go out that wait, in order, and those that follow."""
    _control("resume", job, by, kafka, namespace)


def trigger(
    job: JobArgument,
    key: KeyOption = None,
    unpartitioned: Annotated[
        bool, typer.Option("--unpartitioned", help="Run a job that has partitions without one.")
    ] = False,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="An id of your own: a repeat then starts nothing.")
    ] = None,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Start a run of JOB now; a round of that key that is filling goes on doing so."""
    done = asyncio.run(
        trigger_run(
            *(kafka, namespace, job, key),
            by=person(by),
            is_unpartitioned=unpartitioned,
            run_id=run_id,
        )
    )
    typer.echo(f"trigger {job}: {done.written.state}; run {done.run_id}")


def _control(kind: Literal["pause", "resume"], job: str, by: str, kafka: str, namespace: str) -> None:
    done = asyncio.run(control_job(kafka, namespace, kind, job, by=person(by)))
    typer.echo(f"{kind} {job}: {done.state}; `tidegate audit --job {job}` tells what came of it")
