"""`tidegate audit`: what was refused, dropped, late, replaced or odd."""

import asyncio
import json
from datetime import timedelta
from typing import Annotated, Final

import typer
from rich.markup import escape

from tidegate.cli.options import DEFAULT_KAFKA, KafkaOption
from tidegate.cli.output import make_console, make_table, shown
from tidegate.cli.since import in_words, since_option, start_of
from tidegate.contracts.audit import AuditEntry
from tidegate.core.audit import AuditKind
from tidegate.core.instants import from_ms
from tidegate.runtime.audit_log import AuditLog, Wanted, read_audit
from tidegate.runtime.reading import log_reader

_HOUR: Final = timedelta(hours=1)


def audit(
    job: Annotated[str | None, typer.Option("--job", help="Entries about this job.")] = None,
    asset: Annotated[str | None, typer.Option("--asset", help="Entries about events of this asset.")] = None,
    kind: Annotated[
        AuditKind | None,
        typer.Option("--kind", metavar="KIND", help="Entries of this kind; docs/audit.md has them all."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Entries about this partition key, of a run or of an event.")
    ] = None,
    event: Annotated[
        str | None, typer.Option("--event", metavar="ID", help="Entries about this event.")
    ] = None,
    since: Annotated[timedelta, since_option(_HOUR)] = _HOUR,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many, the newest ones.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """List what was refused, ignored, dropped, late, replaced, moved or odd, newest last."""
    found = asyncio.run(_read(kafka, start_of(since), Wanted(job, asset, kind, key, event)))
    shown = found.entries[-limit:]
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json", exclude_none=True) for each in shown], indent=2))
    elif not shown:
        typer.echo(f"no such audit entry in the last {in_words(since)}")
    else:
        _show(shown, len(found.entries))
    if found.unreadable:
        typer.echo(f"{found.unreadable} records of audit-log are no entries of this version", err=True)


async def _read(kafka: str, since: int, wanted: Wanted) -> AuditLog:
    async with log_reader(kafka) as reader:
        return await read_audit(reader, since, wanted)


def _show(entries: list[AuditEntry], total: int) -> None:
    table = make_table("time", "kind", "job", "asset", "key", "event", "what")
    for each in entries:
        about = (each.job, each.asset, each.partition_key, each.event_id)
        table.add_row(
            shown(from_ms(each.at)),
            each.kind.value,
            *(escape("-" if one is None else one) for one in about),
            escape(each.message),
        )
    console = make_console()
    console.print(table)
    console.print(f"{len(entries)} of {total} entries", markup=False)
