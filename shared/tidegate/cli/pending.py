"""`tidegate pending`: what a job is still waiting for."""

import asyncio
import json
from dataclasses import asdict
from typing import Final

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_LIMIT,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS,
    JobArgument,
    JsonOption,
    KafkaOption,
    LimitOption,
    NamespaceOption,
    RedisOption,
)
from tidegate.cli.output import as_plain, make_console, make_table, say_cut, shown
from tidegate.definitions.progress import WindowCount
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.pending import PendingRounds, pending_rounds
from tidegate.runtime.redis import connect_redis

_NAMES_SHOWN: Final = 6


def pending(
    job: JobArgument,
    limit: LimitOption = DEFAULT_LIMIT,
    as_json: JsonOption = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """List the open rounds of JOB, by key: n of m, and the missing members by name."""
    found = asyncio.run(_read(kafka, redis, namespace, job, limit))
    if as_json:
        typer.echo(json.dumps(asdict(found), default=as_plain, indent=2))
    else:
        _show(found, job, make_console())
    say_cut(len(found.rounds), found.total)


async def _read(kafka: str, redis_url: str, namespace: str, job: str, limit: int) -> PendingRounds:
    async with definitions_view(kafka) as view, connect_redis(redis_url) as redis:
        view.defined(job)
        assert view.installation is not None
        return await pending_rounds(redis, namespace, view.installation.shards, view, job, limit)


def _show(found: PendingRounds, job: str, console: Console) -> None:
    if not found.total:
        console.print(f"{job}: no open round", markup=False)
        return
    table = make_table("key", "asset", "arrived", "missing", "opened")
    for each in found.rounds:
        for number, asset in enumerate(each.assets):
            first = number == 0
            table.add_row(
                escape("-" if each.key is None else each.key) if first else "",
                escape(asset.asset),
                _progress(asset),
                escape(_names(asset.missing)),
                shown(each.opened_at) if first else "",
            )
    console.print(table)
    console.print(f"{job}: open rounds: {found.total}", markup=False)


def _progress(asset: WindowCount) -> str:
    needed = "" if asset.needed == asset.expected else f", needs {asset.needed}"
    return f"{asset.arrived}/{asset.expected}{needed}"


def _names(missing: tuple[str, ...]) -> str:
    more = len(missing) - _NAMES_SHOWN
    return ", ".join(missing[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
