"""`tidegate apply`: publish what a file declares."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.options import DEFAULT_KAFKA, DEFAULT_NAMESPACE, KafkaOption, NamespaceOption
from tidegate.cli.output import make_console, make_table
from tidegate.cli.replay import described
from tidegate.definitions import Definitions, load_definitions
from tidegate.runtime.applying import Applied, apply_definitions


def apply(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A .py file with declarations, or their plain form: .json, .yaml or .yml."
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="JOB", help="Delete this job first; may be repeated."),
    ] = None,
    kafka: KafkaOption = DEFAULT_KAFKA,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Check the jobs and assets of FILE, publish those that are new or changed, and wait until they can be read."""
    if file is None and not delete:
        raise typer.BadParameter("give a FILE, or a job to --delete")
    definitions = load_definitions(file, refuse_singly=True) if file is not None else Definitions(())
    console = make_console()
    applied = asyncio.run(apply_definitions(kafka, definitions, delete or (), namespace=namespace))
    show(applied, console)
    for refused in definitions.refused:
        console.print(f"[red]refused:[/red] {escape(refused.id)}: {escape(refused.reason)}")
    if definitions.refused:
        raise typer.Exit(1)


def show(applied: Applied, console: Console) -> None:
    """What became of every definition, then the warnings."""
    table = make_table("kind", "id", "what", "revision")
    for change in applied.changes:
        revision = "" if change.revision is None else str(change.revision)
        table.add_row(change.kind, escape(change.id), change.what, revision)
    if applied.changes:
        console.print(table)
    for name in applied.topics:
        console.print(f"created topic {escape(name)}")
    for replayed in applied.replayed:
        console.print(escape(described(replayed)))
    for warning in applied.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
