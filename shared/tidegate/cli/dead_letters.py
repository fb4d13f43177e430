"""`tidegate dead-letters`: what ingest refused, and why."""

import asyncio
import json
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from tidegate.cli.options import DEFAULT_KAFKA, KafkaOption
from tidegate.cli.output import make_console, make_table, shown
from tidegate.cli.since import in_words, since_option, start_of
from tidegate.core.instants import from_ms
from tidegate.runtime.dead_letters import Kept
from tidegate.runtime.dead_letters import dead_letters as read_dead_letters
from tidegate.runtime.reading import log_reader

_DAY: Final = timedelta(days=1)


def dead_letters(
    since: Annotated[timedelta, since_option(_DAY)] = _DAY,
    as_json: Annotated[bool, typer.Option("--json", help="With the bytes in base64, as JSON.")] = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """List the records that can never be events; `tidegate redrive --dead-letter PLACE` sends one again."""
    found = asyncio.run(_read(kafka, start_of(since)))
    if as_json:
        typer.echo(json.dumps([_plain(each) for each in found], indent=2))
    elif not found:
        typer.echo(f"no dead letter in the last {in_words(since)}")
    else:
        _show(found)


async def _read(kafka: str, since: int) -> list[Kept]:
    async with log_reader(kafka) as reader:
        return [each async for each in read_dead_letters(reader, since)]


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
    console = make_console()
    console.print(table)
    console.print(f"dead letters: {len(found)}", markup=False)
