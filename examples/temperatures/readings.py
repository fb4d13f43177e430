"""The files as asset events, and the days and months that must come of them."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from examples.temperatures.definitions import daily_temperatures, monthly_temperatures
from tidegate import Job, PartitionedAssetTimetable, RollupMapper

DATA: Final = Path(__file__).parent / "data"
CITIES: Final = ("seattle", "san_francisco")


class DataError(ValueError):
    """A folder or a row that is not of the expected form."""


class Reading(NamedTuple):
    """One hour of one city, and the asset event that says so."""

    asset: str
    partition_key: str
    """Wall clock, as in the file."""
    fahrenheit: float

    @property
    def extra(self) -> dict[str, float]:
        return {"fahrenheit": self.fahrenheit}


class Due(NamedTuple):
    """The partition keys whose windows are complete."""

    days: frozenset[str]
    months: frozenset[str]


def readings(folder: Path = DATA) -> list[Reading]:
    """Every row of `seattle.csv` and `san_francisco.csv`, hour by hour; raises DataError."""
    found: list[Reading] = []
    for city in CITIES:
        file = folder / f"{city}.csv"
        if not file.is_file():
            raise DataError(
                f"{file} does not exist: the folder must hold {' and '.join(f'{c}.csv' for c in CITIES)}"
            )
        with file.open(newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.DictReader(lines), start=2):
                try:
                    found.append(Reading(f"{city}_hourly", row["local_time"], float(row["fahrenheit"])))
                except (KeyError, TypeError, ValueError) as error:
                    raise DataError(
                        f"{file}, line {number}: columns local_time and fahrenheit are needed, found {row}"
                    ) from error
    return sorted(found, key=lambda each: each.partition_key)


def due(found: Iterable[Reading]) -> Due:
    """The days on which every hour of both cities is among `found`, and the months all of whose days are."""
    hours: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    sizes: dict[str, int] = {}
    by_day, by_month = _mapper(daily_temperatures), _mapper(monthly_temperatures)
    for each in found:
        for placement in by_day.placements(each.partition_key):
            hours[placement.key][each.asset].add(placement.member)
            sizes[placement.key] = placement.size
    days = frozenset(
        day
        for day, cities in hours.items()
        if all(len(cities[f"{city}_hourly"]) == sizes[day] for city in CITIES)
    )
    months = Counter(placement for day in days for placement in _months(by_month, day))
    return Due(days, frozenset(month for (month, size), count in months.items() if count == size))


def _months(mapper: RollupMapper, day: str) -> list[tuple[str, int]]:
    return [(placement.key, placement.size) for placement in mapper.placements(day)]


def _mapper(job: Job) -> RollupMapper:
    assert isinstance(job.schedule, PartitionedAssetTimetable)
    mapper = job.schedule.default_partition_mapper
    assert isinstance(mapper, RollupMapper)
    return mapper
