"""`tidegate audit`: what was refused, dropped, late, replaced or odd."""

import asyncio
import json
from typing import Annotated

import typer
from rich.markup import escape

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_LIMIT,
    EventOption,
    JsonOption,
    KafkaOption,
    KeyOption,
    LimitOption,
)
from tidegate.cli.output import make_console, make_table, say_cut, shown
from tidegate.cli.since import DEFAULT_SINCE, SinceOption, nothing_since, start_of
from tidegate.contracts.audit import AuditEntry
from tidegate.core.audit import AuditKind
from tidegate.core.instants import from_ms
from tidegate.runtime.audit_log import AuditLog, Wanted, read_audit
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.reading import log_reader


def audit(
    job: Annotated[str | None, typer.Option("--job", help="Entries about this job.")] = None,
    asset: Annotated[str | None, typer.Option("--asset", help="Entries about events of this asset.")] = None,
    kind: Annotated[
        AuditKind | None,
        typer.Option("--kind", metavar="KIND", help="Entries of this kind; docs/audit.md has them all."),
    ] = None,
    key: KeyOption = None,
    event: EventOption = None,
    since: SinceOption = DEFAULT_SINCE,
    limit: LimitOption = DEFAULT_LIMIT,
    as_json: JsonOption = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """List what was refused, ignored, dropped, late, replaced, moved or odd, newest last."""
    found = asyncio.run(_read(kafka, start_of(since), Wanted(job, asset, kind, key, event)))
    listed = found.entries[-limit:]
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json", exclude_none=True) for each in listed], indent=2))
    elif not listed:
        typer.echo(f"no such audit entry {nothing_since(since)}")
    else:
        _show(listed)
    say_cut(len(listed), len(found.entries))
    if found.unreadable:
        typer.echo(f"{found.unreadable} records of audit-log are no entries of this version", err=True)


async def _read(kafka: str, since: int, wanted: Wanted) -> AuditLog:
    async with log_reader(kafka) as reader:
        found = await read_audit(reader, since, wanted)
    if wanted.job is not None and not found.entries:
        async with definitions_view(kafka) as view:
            view.defined(wanted.job)
    return found


def _show(entries: list[AuditEntry]) -> None:
    table = make_table("time", "kind", "job", "asset", "key", "event", "what")
    for each in entries:
        about = (each.job, each.asset, each.partition_key, each.event_id)
        table.add_row(
            shown(from_ms(each.at)),
            each.kind.value,
            *(escape("-" if one is None else one) for one in about),
            escape(each.message),
        )
    make_console().print(table)
