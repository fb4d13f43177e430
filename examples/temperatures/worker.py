"""What the example's jobs do. Run it with `tidegate worker examples/temperatures/worker.py`."""

import json
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.sdk import Run, Worker

CITIES = {"seattle": "seattle_hourly", "san_francisco": "san_francisco_hourly"}
RESULTS = Path(os.environ.get("TEMPERATURES_RESULTS", "results"))

worker = Worker(
    os.environ.get("TIDEGATE_KAFKA", "127.0.0.1:9092"),
    instance_id=os.environ.get("TIDEGATE_INSTANCE_ID"),
)


@worker.job("daily_temperatures")
def daily_temperatures(run: Run) -> None:
    """Mean, hours and total of each city's day, handed on as the day's own event."""
    cities = {}
    for city, asset in CITIES.items():
        values = [_decimal(event.extra["fahrenheit"]) for event in run.triggering_asset_events[asset]]
        cities[city] = _summary(len(values), sum(values, Decimal()))
    run.outlet_events["daily_temperatures"].extra = cities


@worker.job("monthly_temperatures")
def monthly_temperatures(run: Run) -> None:
    """The means over all hours, which the mean of the days' means is not: days have 23 or 24 hours."""
    days = [event.extra for event in run.triggering_asset_events["daily_temperatures"]]
    result = {
        city: _summary(
            sum(day[city]["hours"] for day in days),
            sum((_decimal(day[city]["total"]) for day in days), Decimal()),
        )
        for city in CITIES
    }
    _write(RESULTS / f"{run.partition_key}.json", {"days": len(days), "cities": result})


def _summary(hours: int, total: Decimal) -> dict[str, Any]:
    return {"hours": hours, "total": float(total), "mean": float(total / hours)}


def _decimal(value: float) -> Decimal:
    return Decimal(str(value))  # as written, so that sums are exact


def _write(file: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all; a run that is repeated writes the same again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(file)
