"""`tidegate up`: everything on this machine, in one command."""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.options import (
    DEFAULT_PARTITIONS,
    DEFAULT_SHARDS,
    MultiTeamOption,
    PartitionsOption,
    ShardsOption,
)
from tidegate.contracts.definitions import Installation
from tidegate.definitions import Definitions, load_definitions
from tidegate.runtime.supervisor import Up, running

_DEFAULT_DATA = Path(".tidegate")


def up(
    data: Annotated[
        Path, typer.Option("--data", metavar="FOLDER", help="Where data and logs are kept.")
    ] = _DEFAULT_DATA,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Use this Kafka; needs --redis.")
    ] = None,
    redis: Annotated[
        str | None, typer.Option("--redis", metavar="URL", help="Use this Redis; needs --kafka.")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option("--apply", metavar="FILE", help="Definitions to publish.")
    ] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option("--worker", metavar="MODULE_OR_FILE", help="A worker to run; may be repeated."),
    ] = None,
    kafka_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the embedded Kafka; 0 takes a free one.")
    ] = 9092,
    redis_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the embedded Redis; 0 takes a free one.")
    ] = 6379,
    partitions: PartitionsOption = DEFAULT_PARTITIONS,
    shards: ShardsOption = DEFAULT_SHARDS,
    multi_team: MultiTeamOption = None,
) -> None:
    """Run the services, and unless --kafka and --redis name others an embedded broker, until Ctrl-C."""
    if (kafka is None) != (redis is None):
        raise typer.BadParameter("give both --kafka and --redis, or neither")
    definitions = load_definitions(apply) if apply is not None else None
    installation = Installation(partitions=partitions, shards=shards)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(
            _up(
                data,
                kafka,
                redis,
                installation,
                multi_team,
                definitions,
                workers or [],
                (kafka_port, redis_port),
            )
        )
    typer.echo("stopped")


async def _up(
    data: Path,
    kafka: str | None,
    redis: str | None,
    installation: Installation,
    multi_team: bool | None,
    definitions: Definitions | None,
    workers: list[str],
    ports: tuple[int, int],
) -> None:
    console = Console(stderr=False, highlight=False, soft_wrap=True)
    loop, task, current = asyncio.get_running_loop(), asyncio.current_task(), list[Up]()
    assert task is not None
    began = loop.time()

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            loop.add_signal_handler(number, hurry)
        console.print("stopping")
        task.cancel()

    def hurry() -> None:
        for each in current:
            for child in each.children.values():
                child.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    async with running(
        data,
        kafka=kafka,
        redis=redis,
        installation=installation,
        multi_team=multi_team,
        definitions=definitions,
        workers=workers,
        ports=ports,
        notice=lambda line: console.print(f"[yellow]{escape(line)}[/yellow]"),
    ) as found:
        current.append(found)
        _print(found, loop.time() - began, console)
        await found.broken


def _print(found: Up, seconds: float, console: Console) -> None:
    if found.applied is not None:
        from tidegate.cli.apply import show

        show(found.applied, console)
    kind = "embedded" if found.is_embedded else "given"
    console.print(f"[bold]Tidegate is up[/bold] after {seconds:.1f} s")
    console.print(f"  Kafka  {escape(found.kafka)} ({kind})")
    console.print(f"  Redis  {escape(found.redis)} ({kind})")
    console.print(f"  data   {escape(str(found.folder.absolute()))}")
    for child in found.children.values():
        health = f"http://127.0.0.1:{child.health_port}" if child.health_port else f"process {child.pid}"
        console.print(f"  {child.name:<10} {health}  log {escape(str(child.log_file))}")
    console.print(f"Use them with  export TIDEGATE_KAFKA={found.kafka} TIDEGATE_REDIS={found.redis}")
    console.print("Ctrl-C stops everything")
