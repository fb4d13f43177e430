"""A year of hourly events to twelve months of means, on the real services. `scripts/demo` runs it."""

import asyncio
import fcntl
import json
import shutil
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.temperatures.readings import CITIES, DATA, DataError, Due, Reading, due, readings
from examples.temperatures.watching import Arrivals, arrivals
from tidegate import TidegateError, load_definitions
from tidegate.runtime.supervisor import Up, running
from tidegate.sdk import AssetEventProducer

_HERE: Final = Path(__file__).parent
_DEFAULT_FOLDER: Final = _HERE.parents[1] / ".tidegate" / "demo"
_STALLED_AFTER_S: Final = 30.0
_SETTLE_S: Final = 1.0  # a command too many would come in this time
_LOOK_EVERY_S: Final = 0.1

console = Console(highlight=False, soft_wrap=True)


def main(
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="seattle.csv and san_francisco.csv of the same form.")
    ] = DATA,
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where data and logs go; a run starts by emptying it.")
    ] = _DEFAULT_FOLDER,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use this Kafka; needs --redis.")
    ] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="Use this Redis; needs --kafka.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Continue on what an earlier run left.")] = False,
) -> None:
    """Publish the events of a year, and show what comes of them."""
    if (kafka is None) != (redis is None):
        raise typer.BadParameter("give both --kafka and --redis, or neither")
    try:
        rows = readings(data)
        _prepare(folder, continues=keep or kafka is not None)
        sys.exit(asyncio.run(_demo(rows, folder.absolute(), kafka, redis)))
    except (TidegateError, DataError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


MARK = "temperatures-demo"
"""The file by which a folder of the demo is known: no other folder is emptied."""


def _prepare(folder: Path, *, continues: bool) -> None:
    if continues:
        console.print(
            "continuing: events that were accepted before are repeats, and everything is counted from the logs"
        )
    elif folder.exists():
        if any(folder.iterdir()) and not (folder / MARK).is_file():
            raise DataError(f"{folder} holds other things than a demo: name another folder")
        _refuse_if_running(folder)
        shutil.rmtree(folder)
        console.print("starting clean: what an earlier run left was removed (--keep continues it)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    console.print(f"data and logs: {folder.absolute()}")


def _refuse_if_running(folder: Path) -> None:
    lock = folder / "broker" / "lock"
    if lock.exists():
        with lock.open() as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError(f"a demo is running in {folder}: stop it, or name another folder") from error


async def _demo(rows: list[Reading], folder: Path, kafka: str | None, redis: str | None) -> int:
    began = monotonic()
    expected, results = due(rows), folder / "results"
    async with running(
        folder,
        kafka=kafka,
        redis=redis,
        definitions=load_definitions(_HERE / "definitions.py"),
        workers=[str(_HERE / "worker.py")],
        env={"TEMPERATURES_RESULTS": str(results)},
        notice=console.print,
    ) as up:
        console.print(f"up after {monotonic() - began:.1f} s: Kafka {up.kafka}, Redis {up.redis}")
        async with arrivals(up.kafka, {row.asset for row in rows}) as (arrived, reading):
            missing = await _follow(up, rows, expected, arrived, reading, results)
        if not missing:
            _show(results, expected)
    for line in missing:
        console.print(f"missing: {line}")
    daily, monthly = (len(keys) for keys in arrived.commands.values())
    print(
        f"events={arrived.accepted} daily={daily} monthly={monthly}"
        f" duplicates={arrived.duplicates} seconds={monotonic() - began:.1f}"
    )
    return 1 if missing or arrived.duplicates else 0


async def _follow(
    up: Up,
    rows: list[Reading],
    expected: Due,
    arrived: Arrivals,
    reading: "asyncio.Task[None]",
    results: Path,
) -> list[str]:
    """Publish, and watch until everything due is in; what is missing when nothing has moved for 30 s."""
    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars = [
            progress.add_task("events sent", total=len(rows)),
            progress.add_task("events accepted", total=len(rows)),
            progress.add_task("days", total=len(expected.days)),
            progress.add_task("months", total=len(expected.months)),
        ]
        sending = asyncio.create_task(_publish(up.kafka, rows, progress, bars[0]))
        try:
            moved, before, done_at = monotonic(), (0,) * 5, None
            while True:
                await asyncio.sleep(_LOOK_EVERY_S)
                for task in (sending, reading, up.broken):
                    if task.done():
                        task.result()
                written = _written(results) & expected.months
                daily, monthly = (len(keys) for keys in arrived.commands.values())
                now = (arrived.accepted, daily, monthly, len(written), int(progress.tasks[0].completed))
                for bar, count in zip(bars[1:], now, strict=False):
                    progress.update(bar, completed=count)
                if now != before:
                    moved, before = monotonic(), now
                missing = _missing(rows, expected, arrived, written)
                if missing or not sending.done():
                    if monotonic() - moved > _STALLED_AFTER_S:
                        return [f"nothing has moved for {_STALLED_AFTER_S:g} s", *missing]
                elif done_at is None:
                    done_at = monotonic()
                elif monotonic() - done_at > _SETTLE_S:
                    return []
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


def _written(results: Path) -> set[str]:
    return {file.stem for file in results.glob("*.json")}


async def _publish(kafka: str, rows: list[Reading], progress: Progress, bar: TaskID) -> None:
    async with AssetEventProducer(kafka, "/examples/temperatures", deterministic_ids=True) as producer:
        for number, row in enumerate(rows, start=1):
            await producer.send(row.asset, partition_key=row.partition_key, extra=row.extra)
            if number % 100 == 0:
                progress.update(bar, completed=number)
        await producer.flush()
    progress.update(bar, completed=len(rows))


def _missing(rows: list[Reading], expected: Due, arrived: Arrivals, written: set[str]) -> list[str]:
    found = []
    if arrived.accepted < len(rows):
        found.append(f"{len(rows) - arrived.accepted} of {len(rows)} events")
    daily, monthly = arrived.commands.values()
    for what, wanted, have in (
        ("commands for days", expected.days, daily.keys()),
        ("commands for months", expected.months, monthly.keys()),
        ("results of months", expected.months, written),
    ):
        if names := sorted(wanted - have):
            found.append(f"{len(names)} {what}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}")
    return found


def _show(results: Path, expected: Due) -> None:
    table = Table("month", "days", title="mean temperatures, Fahrenheit, over all hours")
    for city in CITIES:
        table.add_column(f"{city.replace('_', ' ')}: hours", justify="right")
        table.add_column("mean", justify="right")
    for month in sorted(expected.months):
        found = json.loads((results / f"{month}.json").read_text(encoding="utf-8"))
        cells = [cell for city in CITIES for cell in _cells(found["cities"][city])]
        table.add_row(month, str(found["days"]), *cells)
    console.print(table)


def _cells(result: dict[str, float]) -> tuple[str, str]:
    mean = Decimal(str(result["total"])) / int(result["hours"])
    return str(result["hours"]), str(mean.quantize(Decimal("0.0001"), ROUND_HALF_UP))


if __name__ == "__main__":
    typer.run(main)
