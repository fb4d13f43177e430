"""What is measured: jobs, endless events for them, and the commands due, worked out without Tidegate's help."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple
from uuid import uuid4

from tidegate import (
    Asset,
    DayWindow,
    FanOutMapper,
    FixedKeyMapper,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    StartOfHourMapper,
    StartOfWeekMapper,
    WeekWindow,
)
from tidegate.contracts.events import EVENT_TYPE
from tidegate.contracts.topics import RUN_COMMANDS_PREFIX

_FIRST_DAY: Final = date(1970, 1, 1)
_FIRST_MONDAY: Final = date(1970, 1, 5)
_SEGMENTS: Final = tuple(f"m{number:04}" for number in range(1_440))
_BUCKET: Final = "all"


class Event(NamedTuple):
    """An update of an asset's partition."""

    asset: str
    key: str

    def to_bytes(self, at: str) -> bytes:
        """The value of its record, as the SDK writes it, with a new id of 36 characters; `at` is an ISO time."""
        return (
            f'{{"specversion":"1.0","id":"{uuid4()}","source":"/bench","type":"{EVENT_TYPE}","time":"{at}",'
            f'"datacontenttype":"application/json","data":{{"asset":"{self.asset}","partition_key":"{self.key}"}}}}'
        ).encode()


class Command(NamedTuple):
    """A run command, as far as one can be told from another beforehand."""

    topic: str
    key: str


class Step(NamedTuple):
    """Consecutive events, and what is due once the last of them is in."""

    events: tuple[Event, ...]
    due: tuple[Command, ...]


class Sizes(NamedTuple):
    """Bytes of one message on each topic of the road."""

    event: int
    accepted: int
    contribution: int
    request: int
    command: int


@dataclass(frozen=True)
class Workload:
    """Jobs, and the steps that feed them; no two steps share a key, but for fan-in, whose key recurs."""

    name: str
    title: str
    jobs: tuple[Job, ...]
    step: Callable[[int], Step]
    """Step by number, from 0; every step of a workload has as many events and commands."""
    spread: int
    """Contributions of one event."""
    weight: float = 1.0
    """How many events a run at full speed has, as a share of --events: the more comes of one, the fewer."""

    @cached_property
    def _first(self) -> Step:
        return self.step(0)

    @property
    def events_per_step(self) -> int:
        return len(self._first.events)

    @property
    def commands_per_step(self) -> int:
        return len(self._first.due)

    @property
    def keep(self) -> int:
        """Contributions of one command."""
        return self.events_per_step * self.spread // self.commands_per_step

    @property
    def topics(self) -> tuple[str, ...]:
        """On which commands are due."""
        return tuple(RUN_COMMANDS_PREFIX + job.id for job in self.jobs)

    @property
    def sizes(self) -> Sizes:
        """About what messages have, when those of a batch share what they can; runs measure them anew."""
        event = len(self._first.events[0].to_bytes(now()))
        run = 350 + 180 * self.keep
        return Sizes(event, 130, 80 + 120 // self.spread, run, run + 50)

    def steps(self, events: int) -> int:
        """How many steps have about so many events, at least one."""
        return max(1, round(events / self.events_per_step))


def now() -> str:
    return datetime.now(UTC).isoformat()


def events_of(steps: Iterable[Step]) -> Iterator[Event]:
    return chain.from_iterable(step.events for step in steps)


def days(jobs: int, asset: str = "hourly", prefix: str = "daily", weight: float = 1.0) -> Workload:
    """The 24 hours of one day after the other, for so many jobs on one asset."""
    schedule = PartitionedAssetTimetable(
        Asset(asset), default_partition_mapper=RollupMapper(StartOfHourMapper(), DayWindow())
    )
    ids = [f"{prefix}_{number:03}" for number in range(jobs)]

    def step(number: int) -> Step:
        day = str(_FIRST_DAY + timedelta(days=number))
        return Step(
            tuple(Event(asset, f"{day}T{hour:02}:00:00") for hour in range(24)),
            tuple(Command(RUN_COMMANDS_PREFIX + id, day) for id in ids),
        )

    title = f"24-member days, {jobs} job{'s' if jobs > 1 else ''}"
    return Workload(f"days-{jobs}", title, tuple(Job(id, schedule) for id in ids), step, jobs, weight)


def identity(weight: float = 1.0) -> Workload:
    """Every event is a run."""
    job = Job("each_order", PartitionedAssetTimetable(Asset("orders")))

    def step(number: int) -> Step:
        key = f"order-{number:08}"
        return Step((Event("orders", key),), (Command(RUN_COMMANDS_PREFIX + job.id, key),))

    return Workload("identity", "identity: every event a run", (job,), step, 1, weight)


def join(weight: float = 1.0) -> Workload:
    """A run once three assets have a key."""
    assets = ("left", "middle", "right")
    left, middle, right = map(Asset, assets)
    job = Job("joined", PartitionedAssetTimetable(left & middle & right))

    def step(number: int) -> Step:
        key = f"part-{number:08}"
        return Step(
            tuple(Event(asset, key) for asset in assets), (Command(RUN_COMMANDS_PREFIX + job.id, key),)
        )

    return Workload("join", "three-asset join", (job,), step, 1, weight)


def fan_in(jobs: int = 1, weight: float = 1.0) -> Workload:
    """1,440 members to one run, of the same key again and again, for so many jobs on one asset."""
    mapper = RollupMapper(FixedKeyMapper(_BUCKET), SegmentWindow(_SEGMENTS))
    schedule = PartitionedAssetTimetable(Asset("minutes"), default_partition_mapper=mapper)
    ids = [f"gathered_{number:03}" for number in range(jobs)]
    whole = Step(
        tuple(Event("minutes", segment) for segment in _SEGMENTS),
        tuple(Command(RUN_COMMANDS_PREFIX + id, _BUCKET) for id in ids),
    )
    title = f"{len(_SEGMENTS):,}-member fan-in"
    return Workload(
        "fan-in", title, tuple(Job(id, schedule) for id in ids), lambda number: whole, jobs, weight
    )


def fan_out(weight: float = 1.0) -> Workload:
    """A week's event is a run for each of its days."""
    mapper = FanOutMapper(StartOfWeekMapper(), WeekWindow())
    job = Job("each_day", PartitionedAssetTimetable(Asset("weekly"), default_partition_mapper=mapper))
    topic = RUN_COMMANDS_PREFIX + job.id

    def step(number: int) -> Step:
        monday = _FIRST_MONDAY + timedelta(weeks=number)
        week = (monday + timedelta(days=day) for day in range(7))
        return Step((Event("weekly", str(monday)),), tuple(Command(topic, str(day)) for day in week))

    return Workload("fan-out", "weekly fan-out", (job,), step, 7, weight)


WORKLOADS: Final[Mapping[str, Callable[[], Workload]]] = {
    "a": lambda: days(1),
    "b10": lambda: days(10, weight=0.2),
    "b100": lambda: days(100, weight=0.03),
    "c": lambda: identity(weight=0.25),
    "d": lambda: join(weight=0.5),
    "e": fan_in,
    "f": lambda: fan_out(weight=0.05),
}
"""Those of `python -m bench pipeline`, by the letters of its documentation."""


def workload(letter: str) -> Workload:
    """Raises SystemExit for a letter that is none."""
    if letter not in WORKLOADS:
        raise SystemExit(f"no workload {letter!r}: use some of {','.join(WORKLOADS)}")
    return WORKLOADS[letter]()
