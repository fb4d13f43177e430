"""A simulation as lines of JSON: events, pauses, changes of definitions and moves of the clock, in their order.

{"asset": "hourly", "partition_key": "2026-03-10T09:00:00"}     an event; its fields are those of `tidegate emit
                                                                --file`, and source, team, aliases, asset_uri
{"now": "2026-03-11T00:00:00Z"}                                 the clock moves there
{"pause": "daily"}, {"resume": "daily"}                         by the id of a job
{"define": "changed.py"}, {"define": {"type": "Job", ...}}      a file, or one or several definitions as plain data
{"delete": "daily"}                                             a job by its id
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tidegate.core.errors import InvalidEventError, ScriptError, TidegateError
from tidegate.core.plain import from_plain
from tidegate.definitions.asset import Asset, AssetAlias
from tidegate.definitions.job import Job
from tidegate.definitions.load import Definitions, check_together
from tidegate.simulate.model import SOURCE, Simulation

_COMMANDS: Final = ("now", "pause", "resume", "define", "delete")
_NAMES_OF_ASSETS: Final = ("asset", "asset_uri", "aliases")


@dataclass(frozen=True, slots=True)
class EventFields:
    """An event that ingest would take."""

    asset: str | None
    asset_uri: str | None
    aliases: tuple[str, ...]
    partition_key: str | None
    partition_date: datetime | None
    extra: Mapping[str, Any]
    id: str
    source: str


@dataclass(frozen=True, slots=True)
class Player:
    """Plays lines to a simulation.

    `read_event` takes the fields of an event, id and source included, and raises InvalidEventError where ingest would
    refuse it; `load` reads a file of definitions; `defined` is called with every job before it is defined.
    """

    simulation: Simulation
    read_event: Callable[[Mapping[str, Any]], EventFields]
    load: Callable[[str], Definitions]
    defined: Callable[[Job], None] = field(default=lambda job: None)

    def play(self, number: int, line: str) -> None:
        """Do what line `number`, counted from 1, says; a blank one says nothing. Raises ScriptError with the number."""
        if not line.strip():
            return
        try:
            self._follow(_read(line), number)
        except TidegateError as error:
            raise ScriptError(f"line {number}: {error}") from error

    def define(self, definitions: Definitions) -> None:
        """Add what a file declares, or go on with it. Raises DefinitionError where it does not fit what is there."""
        new = {job.id for job in definitions.jobs}
        check_together((*definitions.jobs, *(job for job in self.simulation.jobs if job.id not in new)))
        for asset in definitions.assets:
            self.simulation.declare(asset)
        for job in definitions.jobs:
            self.defined(job)
            self.simulation.define(job)

    def _follow(self, fields: Mapping[str, Any], number: int) -> None:
        commands = [name for name in _COMMANDS if name in fields]
        if not commands:
            if not any(name in fields for name in _NAMES_OF_ASSETS):
                raise ScriptError(
                    f"{json.dumps(fields):.60} is no step: give an event with 'asset', or one of"
                    f" {', '.join(map(repr, _COMMANDS))}"
                )
            self._send(fields, number)
            return
        (command, *others) = commands
        others += [name for name in fields if name not in commands]
        if others:
            raise ScriptError(f"{command!r} stands alone on its line: take out {others[0]!r}")
        value = fields[command]
        match command:
            case "now":
                self._move(value)
            case "pause" | "resume":
                self.simulation.pause(self._job(value, command), command == "pause")
            case "define":
                self.define(self._definitions(value))
            case _:
                self.simulation.remove(self._job(value, command))

    def _send(self, fields: Mapping[str, Any], number: int) -> None:
        team = fields.get("team")
        if team is not None and (not isinstance(team, str) or not team.strip()):
            raise ScriptError(f"'team' must be the name of a team, not {team!r:.60}")
        given = {name: value for name, value in fields.items() if name != "team" and value is not None}
        given = {"id": f"line-{number}", "source": SOURCE, **given}
        try:
            event = self.read_event(given)
        except InvalidEventError as error:
            self.simulation.refuse(error.code, str(error), given)
            return
        self.simulation.event(
            event.asset,
            event.partition_key,
            asset_uri=event.asset_uri,
            partition_date=event.partition_date,
            extra=event.extra,
            id=event.id,
            source=event.source,
            team=team,
            aliases=map(AssetAlias, event.aliases),
        )

    def _move(self, value: object) -> None:
        to = instant(value, "'now'")
        if to < self.simulation.now:
            raise ScriptError(f"'now' {value!r} lies before the clock, {self.simulation.now.isoformat()}")
        self.simulation.move_clock(to)

    def _job(self, value: object, command: str) -> str:
        known = [job.id for job in self.simulation.jobs]
        if not isinstance(value, str) or value not in known:
            raise ScriptError(
                f"{command!r} needs the id of a job, not {value!r:.60} (defined:"
                f" {', '.join(map(repr, known)) or 'none'})"
            )
        return value

    def _definitions(self, value: object) -> Definitions:
        if isinstance(value, str):
            return self.load(value)
        found = from_plain(value)
        each = found if isinstance(found, tuple) else (found,)
        for one in each:
            if not isinstance(one, Job | Asset):
                raise ScriptError(
                    '\'define\' needs the path of a file, or definitions such as {"type": "Job", "id": ...}, not'
                    f" {json.dumps(value):.60}"
                )
        jobs = tuple(one for one in each if isinstance(one, Job))
        return Definitions(jobs, tuple(one for one in each if isinstance(one, Asset)))


def instant(value: object, what: str) -> datetime:
    """An instant as ISO 8601 text with an offset; raises ScriptError."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ScriptError(
            f"{what} must be a date and a time with an offset, such as 2026-03-10T00:00:00Z, not {value!r:.60}"
        )
    return at


def _read(line: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ScriptError(f"must be a JSON object, not {line.strip():.60}")
    return fields
