"""`tidegate status`: how far the services are, and what is waiting."""

import asyncio
import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS,
    JsonOption,
    KafkaOption,
    NamespaceOption,
    RedisOption,
)
from tidegate.cli.output import make_console, make_table
from tidegate.runtime.definitions_log import definitions_log
from tidegate.runtime.overview import Overview, overview
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.topic_admin import admin_client


def status(
    as_json: JsonOption = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Show the lag of every service and of the workers, and how many open rounds every job has."""
    found = asyncio.run(_read(kafka, redis, namespace))
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        _show(found, make_console())


async def _read(kafka: str, redis_url: str, namespace: str) -> Overview:
    async with definitions_log(kafka) as log, admin_client(kafka) as admin, connect_redis(redis_url) as redis:
        return await overview(kafka, redis, namespace, log, admin)


def _show(found: Overview, console: Console) -> None:
    lags = make_table("group", "topic", "partitions", "lag")
    for each in found.lags:
        lag = str(each.lag) if each.has_committed else f"{each.lag} (nothing committed yet)"
        lags.add_row(escape(each.group), escape(each.topic), str(each.partitions), lag)
    console.print(lags)
    jobs = make_table("job", "revision", "open rounds")
    for job in found.jobs:
        jobs.add_row(escape(job.job), str(job.revision), str(job.open_rounds))
    console.print(jobs)
    waiting = sum(job.open_rounds for job in found.jobs)
    counts = f"{found.partitions} partitions, {found.shards} shards"
    console.print(f"{len(found.jobs)} jobs, {waiting} open rounds; {counts}")
