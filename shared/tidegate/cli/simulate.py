"""`tidegate simulate`: what a file of definitions makes of a file of events, without a broker."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidegate.cli.lines import open_lines
from tidegate.contracts.events import EVENT_TYPE, parse_event
from tidegate.core.errors import DefinitionError, InvalidEventError, ScriptError
from tidegate.definitions import Job, load_definitions
from tidegate.simulate import START, EventFields, Player, Simulation
from tidegate.simulate.report import Line, end_lines, happened_lines, warnings_of
from tidegate.simulate.script import instant

_WITHIN_DATA: Final = re.compile(r"(?<!\w)data\.")


def simulate(
    definitions: Annotated[
        Path,
        typer.Argument(metavar="DEFINITIONS", help="A .py file with declarations, or .json, .yaml or .yml."),
    ],
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS.jsonl|-",
            help='One JSON object a line. An event: {"asset": ..., "partition_key": ...} and, as wanted, '
            "partition_date, extra, id, source, team, aliases, asset_uri. "
            'Or {"now": TIME}, {"pause": JOB}, {"resume": JOB}, {"define": FILE or {...}}, {"delete": JOB}. '
            "'-' reads standard input.",
        ),
    ],
    now: Annotated[
        str | None,
        typer.Option(
            "--now", metavar="ISO", help=f"Where the clock starts, {START:%Y-%m-%dT%H:%M:%SZ} unless given."
        ),
    ] = None,
    multi_team: Annotated[
        bool, typer.Option("--multi-team", help="Filter events between teams; a line says its 'team'.")
    ] = False,
    run_outlets: Annotated[
        bool,
        typer.Option(
            "--run-outlets/--no-run-outlets",
            help="Every run succeeds at once and updates its job's outlets with its own key and date.",
        ),
    ] = True,
) -> None:
    """Play EVENTS to DEFINITIONS and print what would happen, with no broker: one JSON object a line.

    {"run": ...} and {"audit": ...} as they come, in the end {"pending": ...} for every round that waits, with its
    missing members, and {"held": ...} for runs of paused jobs. Warnings go to standard error.
    """
    start = START if now is None else instant(now, "--now")
    loaded = load_definitions(definitions, refuse_singly=True)
    for refused in loaded.refused:
        typer.echo(f"refused: {refused.id}: {refused.reason}", err=True)
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if not loaded.jobs and not loaded.assets:
        raise DefinitionError(f"{str(definitions)!r}: every definition is refused")
    printer = _Printer(Simulation(now=start, multi_team=multi_team, run_outlets=run_outlets))

    def warn(job: Job) -> None:
        for warning in warnings_of(job, run_outlets=run_outlets):
            typer.echo(f"warning: {warning}", err=True)

    folder = Path() if events == "-" else Path(events).parent
    player = Player(printer.simulation, _event, lambda path: load_definitions(folder / path), warn)
    player.define(loaded)
    printer.print_new()
    try:
        with open_lines(events) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    player.play(number, line)
                finally:
                    printer.print_new()
    except (ScriptError, OSError, UnicodeDecodeError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    printer.print_lines(end_lines(printer.simulation))
    if loaded.refused:
        raise typer.Exit(1)


class _Printer:
    """Prints what has happened since it last did."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._happened = 0
        self._notices = 0

    def print_new(self) -> None:
        simulation = self.simulation
        for notice in simulation.notices[self._notices :]:
            typer.echo(f"warning: {notice}", err=True)
        self.print_lines(happened_lines(simulation.happened[self._happened :]))
        self._happened, self._notices = len(simulation.happened), len(simulation.notices)

    @staticmethod
    def print_lines(lines: Iterator[Line]) -> None:
        for line in lines:
            text = json.dumps(line, ensure_ascii=False)
            # Half a character, as \ud800 in a refused event, is no text that can be printed: it stays escaped.
            typer.echo(text.encode("utf-8", "backslashreplace").decode())


def _event(fields: Mapping[str, Any]) -> EventFields:
    """The event that a line gives, read as ingest reads it; raises InvalidEventError."""
    attributes = {name: fields[name] for name in ("id", "source")}
    data = {name: value for name, value in fields.items() if name not in attributes}
    record = {"specversion": "1.0", "type": EVENT_TYPE, **attributes, "data": data}
    try:
        event = parse_event(json.dumps(record).encode())
    except InvalidEventError as error:
        raise InvalidEventError(error.code, _WITHIN_DATA.sub("", str(error))) from error
    return EventFields(
        event.data.asset,
        event.data.asset_uri,
        event.data.aliases or (),
        event.data.partition_key,
        event.data.partition_date,
        event.data.extra or {},
        event.id,
        event.source,
    )
