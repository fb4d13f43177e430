"""`tidegate replay`: have a job take the stored events that came before it."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

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
from tidegate.core.errors import DefinitionError
from tidegate.runtime.replaying import Replayed
from tidegate.runtime.replaying import replay as run_replay


def replay(
    job: JobArgument,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only events received at TIME (ISO 8601, UTC) or later."
        ),
    ] = None,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Have JOB take the stored events that came before it was defined; done again, it counts nothing twice."""
    at = None if since is None else _instant(since)
    done = asyncio.run(run_replay(kafka, namespace, job, by=person(by), since=at))
    typer.echo(described(done))


def described(done: Replayed) -> str:
    """What a replay took, in one line."""
    refused = f"; {done.refused} notes on others are in the audit log" if done.refused else ""
    return f"replayed {done.job}: {done.events} stored events count for it, in {done.contributions} places{refused}"


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise DefinitionError(
            f"--since {text!r} is no time: use ISO 8601 such as 2026-03-10T09:00:00+00:00"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
