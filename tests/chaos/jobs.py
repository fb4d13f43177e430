"""The jobs of a chaos run, twice: as definitions for Tidegate, and as plain facts for the oracle.

The facts are written down by hand next to each definition; the oracle reads nothing else, so a fault of the product's
own mapping cannot hide behind itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tidegate import (
    Asset,
    DayWindow,
    FixedKeyMapper,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    WaitForAll,
)
from tidegate.core.rounds import RerunPolicy

SEGMENTS: Final = ("at", "be", "ch", "de", "es", "fr", "gb", "it")
BUCKET: Final = "all"

NORTH, SOUTH, LEFT, RIGHT, ORDERS, REGIONS, DAYS = (
    "north_hourly",
    "south_hourly",
    "left",
    "right",
    "orders",
    "regions",
    "north_days",
)
NOWHERE: Final = "nobody_waits_for_this"
"""An asset that no definition names."""

SCATTERED: Final = frozenset({SOUTH, ORDERS})
"""Assets whose events are spread over several partitions of `asset-events`, so that their order is not fixed."""

Kind = Literal["day", "each", "segments"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a job does, in the oracle's own words.

    `day`: 24 members of a UTC day, named by hours. `segments`: the members of SEGMENTS, under one key. `each`: one
    member, under the event's own key. A round fires when every asset has `needed` of its `size` members.
    """

    assets: tuple[str, ...]
    kind: Kind
    size: int = 1
    needed: int = 1
    after: Literal["ignore", "new_round"] = "new_round"
    """What an event does whose round has fired."""
    outlet: str | None = None


FACTS: Final[dict[str, Facts]] = {
    "day_north": Facts((NORTH,), "day", 24, 24, "ignore", outlet=DAYS),
    "day_both": Facts((NORTH, SOUTH), "day", 24, 24, "ignore"),
    "day_most": Facts((SOUTH,), "day", 24, 20, "ignore"),
    "pair": Facts((LEFT, RIGHT), "each"),
    "every_left": Facts((LEFT,), "each"),
    "every_order": Facts((ORDERS,), "each"),
    "follow_days": Facts((DAYS,), "each"),
    "most_regions": Facts((REGIONS,), "segments", len(SEGMENTS), 5),
    "all_regions": Facts((REGIONS,), "segments", len(SEGMENTS), len(SEGMENTS)),
}


def _days(*assets: str, needed: int | None = None, outlet: str | None = None) -> Callable[[str], Job]:
    policy = WaitForAll() if needed is None else MinimumCount(needed)

    def build(name: str) -> Job:
        condition = Asset(assets[0]) if len(assets) == 1 else Asset(assets[0]) & Asset(assets[1])
        mapper = RollupMapper(StartOfDayMapper(), DayWindow(), policy)
        outlets = [] if outlet is None else [Asset(outlet)]
        schedule = PartitionedAssetTimetable(assets=condition, default_partition_mapper=mapper)
        return Job(id=name, schedule=schedule, outlets=outlets)

    return build


def _each(*assets: str) -> Callable[[str], Job]:
    def build(name: str) -> Job:
        condition = Asset(assets[0]) if len(assets) == 1 else Asset(assets[0]) & Asset(assets[1])
        return Job(id=name, schedule=PartitionedAssetTimetable(assets=condition))

    return build


def _segments(needed: int | None = None) -> Callable[[str], Job]:
    policy = WaitForAll() if needed is None else MinimumCount(needed)

    def build(name: str) -> Job:
        mapper = RollupMapper(FixedKeyMapper(BUCKET), SegmentWindow(SEGMENTS), policy)
        schedule = PartitionedAssetTimetable(
            assets=Asset(REGIONS), default_partition_mapper=mapper, rerun_policy=RerunPolicy.NEW_ROUND
        )
        return Job(id=name, schedule=schedule)

    return build


_BUILD: Final[dict[str, Callable[[str], Job]]] = {
    "day_north": _days(NORTH, outlet=DAYS),
    "day_both": _days(NORTH, SOUTH),
    "day_most": _days(SOUTH, needed=20),
    "pair": _each(LEFT, RIGHT),
    "every_left": _each(LEFT),
    "every_order": _each(ORDERS),
    "follow_days": _each(DAYS),
    "most_regions": _segments(needed=5),
    "all_regions": _segments(),
}


def definitions(names: tuple[str, ...]) -> list[Job]:
    """The jobs as `tidegate apply` takes them."""
    return [_BUILD[name](name) for name in names]


def commands_topic(job: str) -> str:
    return f"run-commands.{job}"
