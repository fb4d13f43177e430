"""`tidegate emit`: publish asset events from the command line or from a file."""

import asyncio
import json
from collections.abc import Iterator
from typing import IO, Annotated, Any, Final

import typer
from aiokafka.errors import KafkaError

from tidegate.cli.lines import open_lines
from tidegate.cli.options import DEFAULT_KAFKA, KafkaOption, KeyOption
from tidegate.contracts.topics import ASSET_EVENTS
from tidegate.core.errors import TidegateError
from tidegate.definitions import Asset
from tidegate.sdk.producer import AssetEventProducer

_FIELDS: Final = ("asset", "asset_uri", "aliases", "partition_key", "partition_date", "extra", "id")


def emit(
    asset: Annotated[str | None, typer.Argument(help="Name of the asset.")] = None,
    uri: Annotated[
        str | None, typer.Option("--uri", help="URI of a defined asset, instead of its name.")
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option("--alias", metavar="NAME", help="Alias that stands for the asset; may be repeated."),
    ] = None,
    key: KeyOption = None,
    date: Annotated[
        str | None, typer.Option("--date", metavar="ISO", help="Date of the partition, with an offset.")
    ] = None,
    extra: Annotated[str | None, typer.Option("--extra", metavar="JSON", help="A JSON object.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Event id; random unless given.")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE.jsonl|-",
            help="Events from a file, one JSON object a line: asset or asset_uri, aliases, partition_key, "
            "partition_date, extra, id. ASSET is for lines that name none. '-' reads standard input.",
        ),
    ] = None,
    source: Annotated[str, typer.Option("--source", help="CloudEvents source.")] = "/tidegate/cli",
    topic: Annotated[str, typer.Option("--topic", help="Topic to write to.")] = ASSET_EVENTS,
    deterministic_ids: Annotated[
        bool,
        typer.Option("--deterministic-ids", help="Ids from content: the same event sent again is a repeat."),
    ] = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """Publish one asset event, or all of a file; prints how many Kafka has acknowledged."""
    if file is None and (asset is None) == (uri is None):
        raise typer.BadParameter("name one ASSET, by name or with --uri, or give events with --file")
    if file is not None and (alias or any(value is not None for value in (uri, key, date, extra, id))):
        raise typer.BadParameter(
            "--uri, --alias, --key, --date, --extra and --id are for one event: leave them out with --file"
        )
    producer = AssetEventProducer(kafka, source, topic=topic, deterministic_ids=deterministic_ids)
    try:
        if file is not None:
            with open_lines(file) as lines:
                asyncio.run(_send(producer, _from_lines(lines, asset)))
        else:
            fields = {
                "asset": asset,
                "asset_uri": uri,
                "aliases": alias or (),
                "partition_key": key,
                "partition_date": date,
                "extra": _extra(extra),
                "id": id,
            }
            asyncio.run(_send(producer, iter([("", fields)])))
    except (TidegateError, KafkaError, OSError) as error:
        typer.echo(f"{producer.acknowledged} acknowledged", err=True)
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{producer.acknowledged} acknowledged")


async def _send(producer: AssetEventProducer, events: Iterator[tuple[str, dict[str, Any]]]) -> None:
    async with producer:
        try:
            for where, fields in events:
                try:
                    name, uri = fields.pop("asset"), fields.pop("asset_uri", None)
                    await producer.send(name if uri is None else Asset.ref(uri=uri), **fields)
                except TidegateError as error:
                    raise TidegateError(f"{where}{error}") from error
        finally:
            await producer.flush()  # what came before a bad line is sent and counted


def _from_lines(lines: IO[str], asset: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"line {number}: "
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TidegateError(f"{where}not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise TidegateError(f"{where}must be a JSON object, not {line.strip():.60}")
        if unknown := fields.keys() - set(_FIELDS):
            raise TidegateError(f"{where}field {min(unknown)!r} is not known: use {', '.join(_FIELDS)}")
        if fields.get("asset_uri") is not None:
            if fields.setdefault("asset") is not None or not isinstance(fields["asset_uri"], str):
                raise TidegateError(f"{where}field 'asset_uri' must be a URI, and 'asset' left out beside it")
        elif not isinstance(fields.setdefault("asset", asset), str):
            raise TidegateError(f"{where}field 'asset' must be the name of an asset")
        if fields.get("aliases", ()) is None:
            del fields["aliases"]
        if not isinstance(fields.get("extra") or {}, dict):
            raise TidegateError(f"{where}field 'extra' must be a JSON object")
        yield where, fields


def _extra(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--extra is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"--extra must be a JSON object such as '{{\"rows\": 3}}', not {text:.60}")
    return value
