"""`tidegate redrive`: have sent again what did not get through."""

import asyncio
import getpass
from typing import Annotated

import typer

from tidegate.cli.options import DEFAULT_KAFKA, DEFAULT_NAMESPACE, KafkaOption, NamespaceOption
from tidegate.runtime.redriving_runs import redrive_run


def redrive(
    run: Annotated[str, typer.Option("--run", metavar="RUN_ID", help="An undeliverable run, by its id.")],
    by: Annotated[str, typer.Option("--by", help="Who does it, for the audit log.", show_default="you")] = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Send the command of an undeliverable run, once its topic is there and large enough."""
    sent = asyncio.run(redrive_run(kafka, namespace, run, by=by or getpass.getuser()))
    state = "done" if sent.is_read else "written, and waiting for the dispatcher"
    typer.echo(f"redrive {run}: {state}; the audit log tells what came of it, at {sent.position}")
