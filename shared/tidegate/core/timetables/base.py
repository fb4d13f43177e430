"""What a timetable is: Airflow's protocol, and the values that flow through it (docs/rules.md, Meaning).

Nothing here reads a clock: where an answer depends on the present, the caller says what time it is in the restriction,
so that the same question always has the same answer.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, Self, cast, runtime_checkable

from tidegate.core.conditions import Condition
from tidegate.core.errors import DefinitionError, NotPartitionedError
from tidegate.core.plain import Plain, register_type


@dataclass(frozen=True, slots=True)
class DataInterval:
    """The stretch of time that a run is about, [start, end); both are instants, start <= end."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            object.__setattr__(self, name, utc(getattr(self, name), f"DataInterval.{name}"))
        if self.end < self.start:
            raise DefinitionError(
                f"DataInterval.end {self.end} lies before its start {self.start}: exchange them"
            )

    @classmethod
    def exact(cls, at: datetime) -> Self:
        """The empty interval at an instant."""
        return cls(at, at)


@dataclass(frozen=True, slots=True)
class DagRunInfo:
    """One run: when it may start, and what it is about."""

    run_after: datetime
    data_interval: DataInterval | None = None
    partition_date: datetime | None = None
    partition_key: str | None = None

    @classmethod
    def exact(cls, at: datetime) -> Self:
        return cls(at, DataInterval.exact(at))

    @classmethod
    def interval(cls, start: datetime, end: datetime) -> Self:
        """A run about [start, end) that may start at its end."""
        return cls(end, DataInterval(start, end))

    @property
    def logical_date(self) -> datetime | None:
        return self.data_interval.start if self.data_interval else None

    @property
    def last_end(self) -> datetime:
        """Where the run after this one begins to be looked for."""
        return self.data_interval.end if self.data_interval else self.run_after


class TimeRestriction(NamedTuple):
    """What bounds the next run; Airflow's three fields, and the present."""

    earliest: datetime | None
    latest: datetime | None
    """Start and end date of the job, both inclusive."""
    catchup: bool
    now: datetime | None = None
    """The present, where the answer depends on it: without catchup, and for a first run without a start date."""
    job: str = ""
    """Who asks; only jitter depends on it."""

    @property
    def present(self) -> datetime:
        """`now`; raises DefinitionError where the caller has not given it."""
        if self.now is None:
            raise DefinitionError("TimeRestriction.now is needed to find this run: give the present time")
        return self.now

    def is_past_end(self, at: datetime) -> bool:
        return self.latest is not None and at > self.latest


@runtime_checkable
class Timetable(Protocol):
    """When a job runs. A subclass gives `next_dagrun_info`, or the newer `next_dagrun_info_v2`, and is asked by either.

    The newer one is `next_dagrun_info_v2(*, last_dagrun_info, restriction)` and gets the last DagRunInfo whole; a
    schedule that gives its runs partition keys needs it (rules D28, F17).
    """

    description: str = ""
    """For people; empty where there is nothing to say."""
    periodic: bool = True
    """Whether runs come at regular times."""
    can_be_scheduled: bool = True
    """Whether the clock or an asset ever starts a run."""
    run_ordering: Sequence[str] = ("data_interval_end", "logical_date")
    """By which dates runs are listed."""
    active_runs_limit: int | None = None
    """How many runs may be active at once, whatever the job says; None for no limit."""
    partitioned: bool = False
    """Whether the schedule gives runs their partition keys."""
    partitioned_at_runtime: bool = False
    """Whether a run decides its partition keys itself."""

    def __init_subclass__(cls, *, is_base: bool = False) -> None:
        super().__init_subclass__()
        if not is_base and not getattr(cls, "_is_protocol", False):  # data can name only what can be built
            register_type(cls)

    @property
    def asset_condition(self) -> Condition | None:
        """The assets that start runs, None where time alone does."""
        return None

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The run after the one that had this interval, None before the first; None where there is no more."""
        newer = getattr(self, "next_dagrun_info_v2", None)
        if newer is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define next_dagrun_info or next_dagrun_info_v2"
            )
        last = last_automated_data_interval
        run = DagRunInfo.interval(last.start, last.end) if last else None
        return cast("DagRunInfo | None", newer(last_dagrun_info=run, restriction=restriction))

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        """What a run that a person starts at `run_after` is about."""
        return DataInterval.exact(run_after)

    def validate(self) -> None:
        """Raises DefinitionError where the timetable can never work; built-in ones already do when constructed."""
        return

    def serialize(self) -> dict[str, Any]:
        """Everything that tells this timetable from another of its class, as plain data."""
        return Plain.serialize(cast(Plain, self)) if is_dataclass(self) else {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Self:
        """The timetable whose `serialize` gave `data`."""
        if is_dataclass(cls):
            return cast(Self, cast(Any, Plain.deserialize).__func__(cls, data))
        return cls(**data)


class BuiltInTimetable(Timetable, Protocol):
    """A timetable that is asked with whole runs."""

    @property
    def summary(self) -> str:
        """A few words for lists."""
        return type(self).__name__

    @abstractmethod
    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The run after the last one, None before the first; None where there is no more."""


class UntimedTimetable(BuiltInTimetable, Protocol):
    """A timetable by which the clock starts no run: assets or people do."""

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        return None


def next_run(
    timetable: Timetable, last: DagRunInfo | None, restriction: TimeRestriction
) -> DagRunInfo | None:
    """The next run of any timetable, whichever form of the question it answers."""
    newer = getattr(timetable, "next_dagrun_info_v2", None)
    if newer is not None:
        return cast("DagRunInfo | None", newer(last_dagrun_info=last, restriction=restriction))
    interval = None if last is None else last.data_interval or DataInterval.exact(last.run_after)
    return timetable.next_dagrun_info(last_automated_data_interval=interval, restriction=restriction)


def summary_of(timetable: Timetable) -> str:
    """A few words about a timetable for lists."""
    return str(getattr(timetable, "summary", "") or type(timetable).__name__)


def resolve_partition_date(timetable: Timetable, key: str | None) -> datetime | None:
    """The date of a key that a person gives for a run, None where its keys carry none.

    Raises InvalidPartitionKeyError for a key that the schedule could not have given.
    """
    resolve = getattr(timetable, "resolve_partition_date", None)
    return None if resolve is None else cast("datetime | None", resolve(key))


def partitions_between(timetable: Timetable, earliest: datetime, latest: datetime) -> Iterator[DagRunInfo]:
    """The run of every partition in an inclusive range of dates, oldest first; for backfills.

    The wall clocks of both ends are read in the timetable's own zone. Raises NotPartitionedError.
    """
    between = getattr(timetable, "partitions_between", None)
    if between is None:
        raise NotPartitionedError(
            f"{type(timetable).__name__} has no partitions: backfill it by its data intervals"
        )
    return cast("Iterator[DagRunInfo]", between(earliest, latest))


def utc(at: datetime, field: str) -> datetime:
    """An instant in UTC; raises DefinitionError for a wall clock without a zone, and at the ends of the calendar."""
    if at.tzinfo is None:
        raise DefinitionError(f"{field} {at} has no offset from UTC: give an aware datetime")
    try:
        return at if at.tzinfo is UTC else at.astimezone(UTC)
    except OverflowError as error:
        raise DefinitionError(
            f"{field} {at} lies beyond the calendar in UTC: use a year from 2 to 9998"
        ) from error
