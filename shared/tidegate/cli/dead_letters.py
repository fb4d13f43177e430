"""`tidegate dead-letters`: what ingest refused, and why."""

import asyncio
import json
from typing import Any

import typer
from rich.markup import escape

from tidegate.cli.options import DEFAULT_KAFKA, DEFAULT_LIMIT, JsonOption, KafkaOption, LimitOption
from tidegate.cli.output import make_console, make_table, say_cut, shown
from tidegate.cli.since import DEFAULT_SINCE, SinceOption, nothing_since, start_of
from tidegate.core.instants import from_ms
from tidegate.runtime.dead_letters import Kept
from tidegate.runtime.dead_letters import dead_letters as read_dead_letters
from tidegate.runtime.reading import log_reader


def dead_letters(
    since: SinceOption = DEFAULT_SINCE,
    limit: LimitOption = DEFAULT_LIMIT,
    as_json: JsonOption = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """List the records that can never be events, newest last; `tidegate redrive --dead-letter PLACE` sends one again.

    With --json the bytes of each are there too, in base64.
    """
    found = asyncio.run(_read(kafka, start_of(since)))
    listed = found[-limit:]
    if as_json:
        typer.echo(json.dumps([_plain(each) for each in listed], indent=2))
    elif not listed:
        typer.echo(f"no dead letter {nothing_since(since)}")
    else:
        _show(listed)
    say_cut(len(listed), len(found))


async def _read(kafka: str, since: int) -> list[Kept]:
    async with log_reader(kafka) as reader:
        found = [each async for each in read_dead_letters(reader, since)]
    return sorted(found, key=lambda each: (each.at, each.partition, each.offset))


def _plain(each: Kept) -> dict[str, Any]:
    """A dead letter with its place and what can be read in it."""
    more = {"place": each.place, "event_id": each.event_id, "redriven_from": each.redriven_from}
    return more | each.letter.model_dump(mode="json")


def _show(found: list[Kept]) -> None:
    table = make_table("place", "received", "came from", "bytes", "event", "code", "reason")
    for each in found:
        reason = each.letter.reason
        if each.redriven_from is not None:
            reason += f" (sent again from {each.redriven_from})"
        table.add_row(
            each.place,
            shown(from_ms(each.letter.at)),
            escape(each.origin),
            f"{each.letter.size}{', cut' if each.letter.truncated else ''}",
            escape(each.event_id or "-"),
            escape(each.letter.code),
            escape(reason),
        )
    make_console().print(table)
