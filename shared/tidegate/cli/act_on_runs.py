"""`tidegate redrive` and `fail`: have sent again what did not get through, and end what has no end."""

import asyncio
import re
from typing import Annotated, Final

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    ByOption,
    KafkaOption,
    NamespaceOption,
    person,
)
from tidegate.runtime import dead_letters
from tidegate.runtime.acting_on_runs import fail_run, redrive_run

_PLACE: Final = re.compile(r"(\d{1,9})@(\d{1,18})", re.ASCII)


def redrive(
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="An undeliverable run, by its id.")
    ] = None,
    dead_letter: Annotated[
        str | None,
        typer.Option(
            "--dead-letter", metavar="PARTITION@OFFSET", help="A place that `tidegate dead-letters` shows."
        ),
    ] = None,
    by: ByOption = "",
    again: Annotated[
        bool, typer.Option("--again", help="A dead letter, although it was sent again before.")
    ] = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Send again an undeliverable run's command, or a dead letter, byte for byte, to the topic that it came from."""
    by = person(by)
    if (run is None) == (dead_letter is None):
        raise typer.BadParameter("say what to send again: --run RUN_ID or --dead-letter PARTITION@OFFSET")
    if run is not None:
        asked = asyncio.run(redrive_run(kafka, namespace, run, by=by))
        typer.echo(
            f"redrive {run}: {asked.state}; `tidegate audit --kind run-redriven` tells what came of it"
        )
        return
    assert dead_letter is not None
    if (place := _PLACE.fullmatch(dead_letter)) is None:
        raise typer.BadParameter(f"{dead_letter!r} is no place: use PARTITION@OFFSET, as in 0@17")
    partition, offset = map(int, place.groups())
    sent = asyncio.run(dead_letters.redrive(kafka, namespace, partition, offset, by=by, again=again))
    typer.echo(f"sent again from {sent.origin}, to {sent.position}; ingest decides on it anew")


def fail(
    run: Annotated[
        str, typer.Argument(metavar="RUN_ID", help="A run that was sent, as `tidegate runs` shows it.")
    ],
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """End a run as failed whose worker will never report an end, so that the next run of its job may go out."""
    asked = asyncio.run(fail_run(kafka, namespace, run, by=person(by)))
    typer.echo(f"fail {run}: {asked.state}; `tidegate audit --kind run-failed` tells what came of it")
