"""`tidegate topics`: make Kafka's topics, and hold them against their declarations."""

import asyncio
from typing import Annotated

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_PARTITIONS,
    DEFAULT_SHARDS,
    KafkaOption,
    MultiTeamOption,
    PartitionsOption,
    ShardsOption,
)
from tidegate.contracts.definitions import Installation
from tidegate.runtime.installing import install, mismatches

TeamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--team",
        metavar="NAME",
        help="A team whose producers write to asset-events.NAME; may be repeated. Ingest reads it where TIDEGATE_TEAMS"
        " names it.",
    ),
]

app = typer.Typer(no_args_is_help=True, help="Create and check Tidegate's topics.")


@app.command("create")
def create(
    partitions: PartitionsOption = DEFAULT_PARTITIONS,
    shards: ShardsOption = DEFAULT_SHARDS,
    replication: Annotated[int, typer.Option(min=1, help="Copies of every partition.")] = 1,
    multi_team: MultiTeamOption = None,
    team: TeamOption = None,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """Create the topics that are missing and record the counts; refuses other counts than those recorded."""
    wanted = Installation(partitions=partitions, shards=shards)
    installed = asyncio.run(install(kafka, wanted, replication, multi_team=multi_team, teams=team or ()))
    for name in installed.created:
        typer.echo(f"created {name}")
    counts = f"{installed.installation.partitions} partitions, {installed.installation.shards} shards"
    counts += ", teams filtered" if installed.installation.multi_team else ""
    typer.echo(f"installed: {counts}" if installed.is_new else f"already installed: {counts}")


@app.command("check")
def check(team: TeamOption = None, kafka: KafkaOption = DEFAULT_KAFKA) -> None:
    """Print every way in which the topics differ from what they must be; exit code 1 if there is any."""
    installation, found = asyncio.run(mismatches(kafka, team or ()))
    for mismatch in found:
        typer.echo(str(mismatch))
    if found:
        raise typer.Exit(1)
    typer.echo(
        f"every topic is as declared: {installation.partitions} partitions, {installation.shards} shards"
    )
