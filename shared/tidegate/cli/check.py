"""`tidegate check`: hold Redis against Kafka."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS,
    ByOption,
    KafkaOption,
    NamespaceOption,
    RedisOption,
    person,
)
from tidegate.core.errors import TidegateError
from tidegate.core.rounds import HORIZON_MS
from tidegate.runtime.agreement import Code, Difference, compare, in_both, repair
from tidegate.runtime.definitions_view import DefinitionsView, definitions_view
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.topic_admin import admin_client

_REFOLD: Final = "tidegate_rollup.refold"
"""The rollup's own code, which an installation of the command line alone does not have."""


def check(
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also fold every partition anew and compare every round; takes a while."),
    ] = False,
    mend: Annotated[
        bool, typer.Option("--repair", help="Repair what is derived from Kafka, after saying what; audited.")
    ] = False,
    settle: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Only what is still so after this time is a difference."),
    ] = 5.0,
    horizon: Annotated[
        int,
        typer.Option(
            envvar="TIDEGATE_DEDUPE_HORIZON_S",
            min=60,
            metavar="SECONDS",
            help="The services' dedupe horizon.",
        ),
    ] = HORIZON_MS // 1000,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Compare what Redis holds with Kafka; exit code 1 where they differ."""
    found = asyncio.run(
        _check(kafka, redis, namespace, settle, horizon, person(by) if mend else by, deep, mend)
    )
    if found:
        raise typer.Exit(1)


async def _check(
    kafka: str, redis_url: str, namespace: str, settle: float, horizon: int, by: str, deep: bool, mend: bool
) -> list[Difference]:
    async with (
        definitions_view(kafka) as view,
        admin_client(kafka) as admin,
        connect_redis(redis_url) as redis,
    ):
        found = await compare(kafka, redis, namespace, view, admin)
        if found:
            await asyncio.sleep(settle)
            found = in_both(found, await compare(kafka, redis, namespace, view, admin))
        if deep:
            found += await _deep(kafka, redis, namespace, view, horizon)
        for each in found:
            typer.echo(str(each))
            typer.echo(f"  to do: {each.to_do}")
        repaired = 0
        if mend:
            repaired = await repair(
                kafka,
                redis,
                namespace,
                view,
                found,
                by,
                horizon,
                lambda text: typer.echo(f"repairing {text}"),
            )
        typer.echo(closing(found, repaired if mend else None))
        return found


def closing(found: Sequence[Difference], repaired: int | None) -> str:
    """The last line: how many differences there are, and how many of them a person has to look at."""
    if not found:
        return "Redis and Kafka agree"
    possible = sum(each.repair is not None for each in found)
    some = f"{len(found)} difference" + ("s" if len(found) > 1 else "")
    left = f"{len(found) - possible} for a person to see to"
    if repaired is None:
        return f"{some}: {possible} that --repair sees to, {left}"
    return f"{some}: {repaired} repaired, {left}"


async def _deep(
    kafka: str, redis: Any, namespace: str, view: DefinitionsView, horizon: int
) -> list[Difference]:
    try:
        refold = import_module(_REFOLD)
    except ImportError as error:
        raise TidegateError(
            "--deep needs the rollup beside the command line: install Tidegate's services"
        ) from error
    counts, found = view.installation, []
    assert counts is not None
    for partition in range(counts.partitions):
        try:
            shards = await refold.differences(kafka, redis, namespace, partition, counts, horizon * 1000)
        except refold.CannotFoldError as error:
            typer.echo(f"contributions/{partition} was not looked at in depth: {error}")
            continue
        found += [
            Difference(code=Code.SHARD_NOT_FOLDED, shard=shard, partition=partition, told=told)
            for shard, told in shards
        ]
    return found
