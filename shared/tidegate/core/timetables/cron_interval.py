"""The timetable of intervals between the ticks of a cron expression."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from tidegate.core.cron import Cron
from tidegate.core.errors import DefinitionError
from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, DataInterval, TimeRestriction
from tidegate.core.zones import zone_name


@dataclass(frozen=True)
class CronDataIntervalTimetable(BuiltInTimetable):
    """A run about every stretch from one tick to the next, at its end."""

    cron: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "timezone", zone_name(self.timezone))
        _ = self._cron

    @property
    def summary(self) -> str:
        return self.cron

    @cached_property
    def _cron(self) -> Cron:
        return Cron(self.cron, self.timezone)

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        earliest = self._cron.at_or_after(restriction.earliest) if restriction.earliest is not None else None
        if not restriction.catchup:
            latest_complete = self._latest_complete(restriction.present)
            earliest = max(earliest, latest_complete) if earliest is not None else latest_complete
        start = earliest
        if last_dagrun_info is not None:
            after_last = self._start_after(last_dagrun_info)
            start = after_last if earliest is None else max(after_last, earliest)
        if start is None or restriction.is_past_end(start):
            return None
        end = self._cron.next(start)
        return None if end is None else DagRunInfo.interval(start, end)

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        """The last complete interval."""
        end = self._tick_at_or_before(run_after)
        return DataInterval(self._tick_before(end), end)

    def _start_after(self, last: DagRunInfo) -> datetime:
        """Where the interval after the last run begins, on a tick though the schedule may have changed since.

        The last run's own time is not covered a second time: an interval that begins before it is left out.
        """
        start = self._tick_at_or_before(last.last_end)
        if last.data_interval is not None and start < last.data_interval.start:
            return self._certain(self._cron.next(start), start)
        return start

    def _latest_complete(self, now: datetime) -> datetime:
        """The start of the last interval that has ended by now."""
        return self._tick_before(self._tick_at_or_before(now))

    def _tick_at_or_before(self, at: datetime) -> datetime:
        return self._certain(self._cron.at_or_before(at), at)

    def _tick_before(self, at: datetime) -> datetime:
        return self._certain(self._cron.previous(at), at)

    def _certain(self, tick: datetime | None, at: datetime) -> datetime:
        if tick is None:
            raise DefinitionError(f"cron {self.cron!r} has no tick around {at}: give another time")
        return tick
