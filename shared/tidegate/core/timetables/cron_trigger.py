"""The timetable that starts a run at every tick of a cron expression."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from tidegate.core.cron import Cron
from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, DataInterval, TimeRestriction
from tidegate.core.timetables.first_tick import RunImmediately, check_run_immediately, next_tick
from tidegate.core.timetables.spans import Span, check_span
from tidegate.core.zones import zone_name


@dataclass(frozen=True)
class CronTriggerTimetable(BuiltInTimetable):
    """A run at every tick, about the `interval` before it; an empty one unless given.

    `run_immediately` says whether a first run without a start date takes the tick that has just passed.
    """

    cron: str
    timezone: str = field(default="UTC", kw_only=True)
    interval: Span = field(default=timedelta(0), kw_only=True)
    run_immediately: RunImmediately = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "timezone", zone_name(self.timezone))
        check_span(self.interval, "CronTriggerTimetable.interval", zero=True)
        check_run_immediately(self.run_immediately, "CronTriggerTimetable.run_immediately")
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
        last = last_dagrun_info.last_end if last_dagrun_info else None
        tick = next_tick(self._cron, last, restriction, self.run_immediately)
        return None if tick is None else DagRunInfo.interval(tick - self.interval, tick)

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval(run_after - self.interval, run_after)
