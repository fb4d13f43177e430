"""`tidegate replay`: have a job take the stored events that came before it."""

import asyncio

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    ByOption,
    JobArgument,
    KafkaOption,
    NamespaceOption,
    person,
)
from tidegate.cli.since import SinceTimeOption, time_of
from tidegate.runtime.replaying import Replayed
from tidegate.runtime.replaying import replay as run_replay


def replay(
    job: JobArgument,
    since: SinceTimeOption = None,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Have JOB take the stored events that came before it was defined; done again, it counts nothing twice."""
    at = None if since is None else time_of(since)
    done = asyncio.run(run_replay(kafka, namespace, job, by=person(by), since=at))
    typer.echo(described(done))


def described(done: Replayed) -> str:
    """What a replay took, in one line."""
    refused = f"; {done.refused} notes on others are in the audit log" if done.refused else ""
    return f"replayed {done.job}: {done.events} stored events count for it, in {done.contributions} places{refused}"
