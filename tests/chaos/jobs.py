"""The jobs of a chaos run, twice: as definitions for Tidegate, and as plain facts for the oracle.

The facts are written down by hand next to each definition; the oracle reads nothing else, so a fault of the product's
own mapping cannot hide behind itself.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
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

NORTH, SOUTH, LEFT, RIGHT, ORDERS, REGIONS, GAPPY, DAYS = (
    "north_hourly",
    "south_hourly",
    "left",
    "right",
    "orders",
    "regions",
    "gappy_hourly",
    "north_days",
)
DEADLINE_S: Final = 6.0
"""After its first member, a round with a deadline ends."""
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
    after: Literal["ignore", "refire", "new_round"] = "new_round"
    """What an event does whose round has fired."""
    outlet: str | None = None
    deadline: Literal["fire", "fail", "drop"] | None = None
    """What happens to a round DEADLINE_S after its first member."""
    actions: tuple[Literal["fire", "discard", "withdraw"], ...] = ()
    """What people do to its rounds. Never both of the latter, and `discard` only where a day fires once: how the
    rounds of a key follow each other can then be told from what came out."""
    changes: tuple[int, ...] = ()
    """Where the definition changes while events come: how many assets or segments each variant waits for, the first of
    `assets` or SEGMENTS. Where that leaves open what becomes of an event, it must still have one fate."""


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
    "day_again": Facts((GAPPY,), "day", 24, 24, "refire"),
    "day_soon": Facts((GAPPY,), "day", 24, 24, "ignore", deadline="fire"),
    "day_failed": Facts((GAPPY,), "day", 24, 24, "ignore", deadline="fail"),
    "day_dropped": Facts((GAPPY,), "day", 24, 24, "ignore", deadline="drop"),
    "day_acted": Facts((GAPPY,), "day", 24, 24, "ignore", actions=("fire", "discard")),
    "day_withdrawn": Facts((GAPPY,), "day", 24, 24, "ignore", actions=("fire", "withdraw")),
    "fewer_regions": Facts((REGIONS,), "segments", changes=(8, 7, 6, 5)),
    "fewer_assets": Facts((LEFT, RIGHT), "each", changes=(2, 1)),
}


WORKED: Final = frozenset({"day_north", "follow_days", "pair", "every_order", "most_regions"})
"""Jobs that have workers; the commands of the others stay where they are."""

Build = Callable[[str, int], Job]
"""A job by its name and the number of its variant."""


def _days(
    *assets: str, needed: int | None = None, outlet: str | None = None, rerun: RerunPolicy | None = None
) -> Build:
    policy = WaitForAll() if needed is None else MinimumCount(needed)

    def build(name: str, variant: int) -> Job:
        condition = Asset(assets[0]) if len(assets) == 1 else Asset(assets[0]) & Asset(assets[1])
        then = FACTS[name].deadline
        waits = policy if then is None else policy.or_after(timedelta(seconds=DEADLINE_S), then=then)
        mapper = RollupMapper(StartOfDayMapper(), DayWindow(), waits)
        outlets = [] if outlet is None else [Asset(outlet)]
        schedule = PartitionedAssetTimetable(
            assets=condition, default_partition_mapper=mapper, rerun_policy=rerun
        )
        return Job(id=name, schedule=schedule, outlets=outlets)

    return build


def _each(*assets: str) -> Build:
    def build(name: str, variant: int) -> Job:
        changes = FACTS[name].changes
        several = len(assets) > 1 and (not changes or changes[variant % len(changes)] > 1)
        condition = Asset(assets[0]) & Asset(assets[1]) if several else Asset(assets[0])
        return Job(id=name, schedule=PartitionedAssetTimetable(assets=condition))

    return build


def _segments(needed: int | None = None) -> Build:
    policy = WaitForAll() if needed is None else MinimumCount(needed)

    def build(name: str, variant: int) -> Job:
        changes = FACTS[name].changes
        segments = SEGMENTS[: changes[variant % len(changes)]] if changes else SEGMENTS
        mapper = RollupMapper(FixedKeyMapper(BUCKET), SegmentWindow(segments), policy)
        schedule = PartitionedAssetTimetable(
            assets=Asset(REGIONS), default_partition_mapper=mapper, rerun_policy=RerunPolicy.NEW_ROUND
        )
        return Job(id=name, schedule=schedule)

    return build


_BUILD: Final[dict[str, Build]] = {
    "day_north": _days(NORTH, outlet=DAYS),
    "day_both": _days(NORTH, SOUTH),
    "day_most": _days(SOUTH, needed=20),
    "pair": _each(LEFT, RIGHT),
    "every_left": _each(LEFT),
    "every_order": _each(ORDERS),
    "follow_days": _each(DAYS),
    "most_regions": _segments(needed=5),
    "all_regions": _segments(),
    "day_again": _days(GAPPY, rerun=RerunPolicy.REFIRE),
    **dict.fromkeys(("day_soon", "day_failed", "day_dropped", "day_acted", "day_withdrawn"), _days(GAPPY)),
    "fewer_regions": _segments(),
    "fewer_assets": _each(LEFT, RIGHT),
}


def definitions(names: Collection[str], variant: int = 0) -> tuple[Job, ...]:
    """The jobs as `tidegate apply` takes them; those that change, in one of their variants."""
    return tuple(_BUILD[name](name, variant) for name in names)


def commands_topic(job: str) -> str:
    return f"run-commands.{job}"
