"""What must come out, computed from the files by hand: no part of Tidegate is used here."""

import csv
import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

EXAMPLE = Path(__file__).parents[2] / "examples" / "temperatures"
CITIES = ("seattle", "san_francisco")
ZONE = ZoneInfo("America/Los_Angeles")
SHORT_DAY = "2010-03-14"
SOURCE = "/tests/readings"

# month -> hours, mean of Seattle, mean of San Francisco: copied from the README of the data, which others computed
MONTHS = {
    "2010-01": (744, "41.7040", "49.9841"),
    "2010-02": (672, "42.9960", "52.2439"),
    "2010-03": (743, "45.9331", "53.9565"),
    "2010-04": (720, "49.6560", "55.6331"),
    "2010-05": (744, "55.2063", "57.9710"),
    "2010-06": (720, "60.0118", "60.4447"),
    "2010-07": (744, "64.8876", "61.7655"),
    "2010-08": (744, "65.1312", "62.4054"),
    "2010-09": (720, "60.2113", "62.4871"),
    "2010-10": (744, "52.2316", "60.2531"),
    "2010-11": (720, "45.1774", "55.1851"),
    "2010-12": (744, "40.5319", "50.4983"),
}


class Reading(NamedTuple):
    """One row of one city's file."""

    hour: str
    """As in the file, `2010-03-14T02:00:00`."""
    city: str
    fahrenheit: float

    @property
    def asset(self) -> str:
        return f"{self.city}_hourly"

    @property
    def id(self) -> str:
        return f"{self.city}-{self.hour}"

    @property
    def event(self) -> bytes:
        """The reading as a CloudEvent, written out by hand."""
        return json.dumps(
            {
                "specversion": "1.0",
                "id": self.id,
                "source": SOURCE,
                "type": "dev.tidegate.asset.updated.v1",
                "data": {
                    "asset": self.asset,
                    "partition_key": self.hour,
                    "extra": {"fahrenheit": self.fahrenheit},
                },
            }
        ).encode()


@cache
def all_readings() -> tuple[Reading, ...]:
    """Both cities' year, hour by hour."""
    found = []
    for city in CITIES:
        (path,) = EXAMPLE.rglob(f"{city}.csv")
        with path.open(newline="") as file:
            found += [
                Reading(row["local_time"], city, float(row["fahrenheit"])) for row in csv.DictReader(file)
            ]
    return tuple(sorted(found))


def shuffled(readings: Sequence[Reading], seed: int) -> list[Reading]:
    """All of them in any order."""
    mixed = list(readings)
    random.Random(seed).shuffle(mixed)
    return mixed


def doubled(readings: Iterable[Reading], seed: int) -> list[Reading]:
    """Every reading twice: about half of the copies follow at once, the others when everything has been sent."""
    dice = random.Random(seed)
    sent: list[Reading] = []
    later: list[Reading] = []
    for each in readings:
        sent.append(each)
        (sent if dice.random() < 0.5 else later).append(each)
    return sent + later


class Expected(NamedTuple):
    """What a set of distinct readings must lead to."""

    days: dict[str, dict[str, tuple[Reading, ...]]]
    """Complete days: the readings of each by city, in the order of the file."""
    months: dict[str, tuple[str, ...]]
    """Complete months with their days."""


def expected(readings: Collection[Reading]) -> Expected:
    """A day is complete when no city lacks a row that its file has, a month when no day is missing."""
    rows: dict[str, dict[str, list[Reading]]] = defaultdict(lambda: defaultdict(list))
    for each in sorted(readings):
        rows[each.hour[:10]][each.city].append(each)
    needed = Counter((each.hour[:10], each.city) for each in all_readings())
    every_day = sorted({day for day, _ in needed})
    days = {
        day: {city: tuple(rows[day][city]) for city in CITIES}
        for day in every_day
        if all(len(rows[day][city]) == needed[day, city] for city in CITIES)
    }
    months = {}
    for month in MONTHS:
        of_month = tuple(day for day in every_day if day.startswith(month))
        if all(day in days for day in of_month):
            months[month] = of_month
    return Expected(days, months)


def midnight(day: str) -> datetime:
    """The first instant of a local day, in UTC; on this coast midnight always exists."""
    return datetime.fromisoformat(day).replace(tzinfo=ZONE).astimezone(UTC)
