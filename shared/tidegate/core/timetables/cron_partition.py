"""The timetable that starts a run per partition at the ticks of cron expressions (AIP-76)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final
from zoneinfo import ZoneInfo

from tidegate.core.cron import Cron, Crons
from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.keys import validate_key
from tidegate.core.plain import check_fields, from_plain
from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, TimeRestriction
from tidegate.core.timetables.first_tick import RunImmediately, check_run_immediately, next_tick
from tidegate.core.timetables.spans import check_span
from tidegate.core.zones import local, real_instant, zone_name, zone_named

DEFAULT_KEY_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
MAX_OFFSET: Final = 10_000

_OFFSET: Final = re.compile(r"[+-]\d{2}:?\d{2}(:?\d{2})?\Z", re.ASCII)
_WITHIN_A_DAY: Final = re.compile(r"%[HIMSfcXTRr]")


@dataclass(frozen=True, init=False)
class CronPartitionTimetable(BuiltInTimetable):
    """A run at every tick of any of `crons`, for the partition that the tick names.

    The key is the partition's wall clock in `timezone` as `key_format`; the second occurrence of a repeated hour
    carries its offset, `2026-11-01T01:00:00-0500`, unless the format has one (F08). `run_offset` names another tick
    than the run's own, counted in scheduled ticks: -1 at the tick of Tuesday is Monday's partition. `jitter` spreads
    the starts of jobs over a span after the tick, always the same for a job and a tick, and never moves the key.
    """

    crons: tuple[str, ...]
    timezone: str
    run_offset: int
    run_immediately: RunImmediately
    key_format: str
    jitter: timedelta

    partitioned = True
    run_ordering = ("partition_date", "run_after")

    def __init__(
        self,
        *crons: str | Iterable[str],
        timezone: str | tzinfo = "UTC",
        run_offset: int | None = None,
        run_immediately: RunImmediately = False,
        key_format: str = DEFAULT_KEY_FORMAT,
        jitter: timedelta = timedelta(0),
    ) -> None:
        each: list[str] = []
        for cron in crons:
            each += (cron,) if isinstance(cron, str) or not isinstance(cron, Iterable) else cron
        if not each:
            raise DefinitionError("CronPartitionTimetable needs at least one cron expression")
        values = {
            "crons": tuple(each),
            "timezone": zone_name(timezone),
            "run_offset": _checked_offset(run_offset),
        }
        values |= {"run_immediately": run_immediately, "key_format": key_format, "jitter": jitter}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_run_immediately(run_immediately, "CronPartitionTimetable.run_immediately")
        if not isinstance(jitter, timedelta):
            raise DefinitionTypeError(f"CronPartitionTimetable.jitter must be a timedelta, not {jitter!r}")
        check_span(jitter, "CronPartitionTimetable.jitter", zero=True)
        if not isinstance(key_format, str):
            raise DefinitionTypeError(
                f"CronPartitionTimetable.key_format must be a format, not {key_format!r}"
            )
        _ = self._ticks
        try:
            validate_key(self.key_of(datetime(2026, 1, 1, tzinfo=UTC)))
        except ValueError as error:
            raise DefinitionError(
                f"CronPartitionTimetable.key_format {key_format!r} makes no key: {error}"
            ) from error

    @property
    def summary(self) -> str:
        return ", ".join(self.crons)

    @cached_property
    def _ticks(self) -> Crons:
        return Crons(tuple(Cron(cron, self.timezone) for cron in self.crons))

    @property
    def _zone(self) -> ZoneInfo:
        return zone_named(self.timezone)

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        last = self._tick_of(last_dagrun_info) if last_dagrun_info else None
        tick = next_tick(self._ticks, last, restriction, self.run_immediately)
        if tick is None:
            return None
        partition = self._moved(tick, self.run_offset)
        return None if partition is None else self._run(tick + self._delay(tick, restriction.job), partition)

    def partitions_between(self, earliest: datetime, latest: datetime) -> Iterator[DagRunInfo]:
        """The run of every partition from `earliest` to `latest`; their wall clocks are read in the own zone."""
        first = real_instant(earliest.replace(tzinfo=None), self._zone)
        last = real_instant(latest.replace(tzinfo=None), self._zone, last=True)
        for tick in self._ticks.between(first, last):
            yield self._run(tick, tick)

    def resolve_partition_date(self, key: str | None) -> datetime | None:
        """The instant that a key names; raises InvalidPartitionKeyError for one that is not in `key_format`."""
        if key is None:
            return None
        form = self.key_format
        if "%z" not in form and _OFFSET.search(key) and self._is_readable(key, form + "%z"):
            form += "%z"
        if not self._is_readable(key, form):
            example = self.key_of(datetime(2026, 3, 10, 9, tzinfo=UTC))
            raise InvalidPartitionKeyError(
                f"partition key {key!r} is not in the form {self.key_format!r} of the schedule: use for example"
                f" {example!r}"
            )
        read = datetime.strptime(key, form)
        try:
            return real_instant(read, self._zone) if read.tzinfo is None else read.astimezone(UTC)
        except OverflowError as error:
            raise InvalidPartitionKeyError(f"partition key {key!r} lies at an end of the calendar") from error

    def is_shifted(self, partition_date: datetime) -> bool:
        """Whether a partition stands for a time that a clock change skipped; worth an audit entry (B024)."""
        return self._ticks.is_shifted(partition_date)

    def key_of(self, partition_date: datetime) -> str:
        """The key of the partition at an instant."""
        wall = local(partition_date, self._zone)
        key = wall.strftime(self.key_format)
        if wall.fold and "%z" not in self.key_format and _WITHIN_A_DAY.search(self.key_format):
            return key + wall.strftime("%z")
        return key

    def _run(self, start: datetime, partition: datetime) -> DagRunInfo:
        return DagRunInfo(start, None, partition, self.key_of(partition))

    def _tick_of(self, run: DagRunInfo) -> datetime:
        """The tick that gave a run."""
        if self.jitter and run.partition_date is not None:
            return self._moved(run.partition_date, -self.run_offset) or run.run_after
        return run.run_after

    def _moved(self, tick: datetime, steps: int) -> datetime | None:
        """The tick that is `steps` scheduled ticks later, or earlier."""
        found: datetime | None = tick
        for _ in range(abs(steps)):
            if found is None:
                break
            found = self._ticks.next(found) if steps > 0 else self._ticks.previous(found)
        return found

    def _delay(self, tick: datetime, job: str) -> timedelta:
        whole = int(self.jitter.total_seconds())
        if not whole:
            return timedelta(0)
        made_of = f"{job}\n{self.timezone}\n{tick.isoformat()}".encode()
        return timedelta(seconds=int.from_bytes(blake2b(made_of, digest_size=8).digest()) % (whole + 1))

    def _is_readable(self, key: str, form: str) -> bool:
        if not key.isascii() and form.isascii():
            return False
        try:
            datetime.strptime(key, form)
        except (ValueError, re.error):
            return False
        return True

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "CronPartitionTimetable":
        check_fields(cls, data)
        values = {name: from_plain(value) for name, value in data.items()}
        return cls(*values.pop("crons", ()), **values)


def _checked_offset(run_offset: object) -> int:
    if run_offset is None:
        return 0
    if not isinstance(run_offset, int) or isinstance(run_offset, bool):
        raise DefinitionError(
            f"CronPartitionTimetable.run_offset must be a whole number of ticks, not {run_offset!r}: -1 is the"
            " partition before"
        )
    if abs(run_offset) > MAX_OFFSET:
        raise DefinitionError(
            f"CronPartitionTimetable.run_offset {run_offset} must lie between -{MAX_OFFSET} and {MAX_OFFSET} ticks,"
            " since they are counted one by one"
        )
    return run_offset
