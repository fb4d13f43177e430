"""`python -m bench core`: how long the core takes for one key, in microseconds of processor time.

Method: every measurement goes through its inputs in rounds of equal size, so that each input is used once; the
processor time of a round (time.process_time, so that other programs on the machine count less) is divided by its
number of inputs, and the median of the rounds is given, with the fastest and the slowest. The loop itself is measured
in the same way and printed first; it is not taken off. Included: the key's text to the downstream key, member index,
window size and date, as the mapper service asks for them. Not included: reading and writing messages.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from time import process_time
from typing import Any

from bench.common.results import Report, Table, add_json_option, finish
from tidegate import (
    Asset,
    DayWindow,
    IdentityMapper,
    Job,
    PartitionedAssetTimetable,
    PartitionMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    StartOfWeekMapper,
)
from tidegate.core.zones import zone_named
from tidegate.definitions.routes import JobRoutes, Route

ZONE = "America/New_York"
ROUNDS = 15
FIRST = datetime(1990, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table; times in microseconds."""

    name: str
    median_us: float
    fastest_us: float
    slowest_us: float
    target_us: float | None = None


def measure(
    name: str, work: Callable[[Any], object], inputs: Sequence[Any], target_us: float | None = None
) -> Measured:
    """The time that `work` takes for one input; `inputs` are as many rounds as there are, each input used once."""
    each = []
    for number in range(ROUNDS):
        some = inputs[number::ROUNDS]
        began = process_time()
        for one in some:
            work(one)
        each.append((process_time() - began) / len(some) * 1e6)
    return Measured(name, round(median(each), 2), round(min(each), 2), round(max(each), 2), target_us)


def hourly_keys(count: int) -> list[str]:
    return [(FIRST + timedelta(hours=n)).strftime("%Y-%m-%dT%H:%M:%S") for n in range(count)]


def route_of(mapper: PartitionMapper) -> Route:
    (route,) = JobRoutes(Job("job", PartitionedAssetTimetable(Asset("a"), mapper))).routes
    return route


def run(keys: int) -> Iterable[Measured]:
    """Every measurement, each with about `keys` inputs."""
    new = hourly_keys(keys)
    yield measure("an empty loop", lambda key: None, new)
    for mapper in (IdentityMapper(), RollupMapper(StartOfHourMapper(timezone=ZONE), DayWindow())):
        route = route_of(mapper)
        for key in new[:10_000]:
            route.take(key, None)
        seen = (new[:10_000] * (keys // 10_000 + 1))[:keys]

        def take(key: str, route: Route = route) -> object:
            return route.take(key, None)

        yield measure(f"a key already seen, {type(mapper).__name__}", take, seen, 2)
    kinds = (StartOfHourMapper, StartOfDayMapper, StartOfWeekMapper, StartOfMonthMapper)
    for kind in kinds:
        yield measure(f"a new key, {kind.__name__}", kind(timezone=ZONE).to_downstream, new, 20)
    rollup = RollupMapper(StartOfHourMapper(timezone=ZONE), DayWindow())
    yield measure("a new key, RollupMapper of a day", rollup.placements, new, 20)
    zone, window = zone_named(ZONE), DayWindow()
    noons = [FIRST + timedelta(days=n, hours=17) for n in range(max(ROUNDS, keys // 10))]
    days = [window.period.floor(noon, zone) for noon in noons]
    yield measure("the members of a day", lambda day: window.members(day, zone), days, 100)


def report(keys: int) -> Report:
    """Every measurement as a table."""
    found = Report("core", __doc__ or "", {"keys": keys})
    found.tables = [Table("Microseconds a key", [asdict(each) for each in run(max(keys, ROUNDS))])]
    return found


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=60_000, metavar="N", help="inputs of each measurement")
    add_json_option(parser)
    parser.set_defaults(run=lambda arguments: finish(report(arguments.keys), arguments.json))
