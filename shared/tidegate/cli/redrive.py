"""`tidegate redrive`: do again what could not be done before."""

import asyncio
import getpass
import re
from typing import Annotated, Final

import typer

from tidegate.cli.options import DEFAULT_KAFKA, DEFAULT_NAMESPACE, KafkaOption, NamespaceOption
from tidegate.runtime import dead_letters

_PLACE: Final = re.compile(r"(\d{1,9})@(\d{1,18})", re.ASCII)


def redrive(
    dead_letter: Annotated[
        str | None,
        typer.Option(
            "--dead-letter", metavar="PARTITION@OFFSET", help="A place that `tidegate dead-letters` shows."
        ),
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who does it, for the audit log.", show_default="you")] = "",
    again: Annotated[bool, typer.Option("--again", help="Although it was sent again before.")] = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Send a dead letter again, byte for byte, to the topic that it came from."""
    if dead_letter is None:
        raise typer.BadParameter("say what to send again, with --dead-letter PARTITION@OFFSET")
    if (place := _PLACE.fullmatch(dead_letter)) is None:
        raise typer.BadParameter(f"{dead_letter!r} is no place: use PARTITION@OFFSET, as in 0@17")
    partition, offset = map(int, place.groups())
    sent = asyncio.run(
        dead_letters.redrive(kafka, namespace, partition, offset, by=by or getpass.getuser(), again=again)
    )
    typer.echo(f"sent again from {sent.origin}, to {sent.position}; ingest decides on it anew")
