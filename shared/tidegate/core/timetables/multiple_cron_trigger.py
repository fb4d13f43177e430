"""The timetable that starts a run at every tick of several cron expressions."""

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from tidegate.core.errors import DefinitionError
from tidegate.core.plain import check_fields, from_plain
from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, DataInterval, TimeRestriction
from tidegate.core.timetables.cron_trigger import CronTriggerTimetable
from tidegate.core.timetables.first_tick import RunImmediately
from tidegate.core.timetables.spans import Span
from tidegate.core.zones import zone_name


@dataclass(frozen=True, init=False)
class MultipleCronTriggerTimetable(BuiltInTimetable):
    """A run at every tick of any of `crons`, one where several tick at once."""

    crons: tuple[str, ...]
    timezone: str
    interval: Span
    run_immediately: RunImmediately

    def __init__(
        self,
        *crons: str,
        timezone: str | tzinfo = "UTC",
        interval: Span = timedelta(0),
        run_immediately: RunImmediately = False,
    ) -> None:
        if not crons:
            raise DefinitionError("MultipleCronTriggerTimetable needs at least one cron expression")
        values = {"crons": crons, "timezone": zone_name(timezone), "interval": interval}
        for name, value in (values | {"run_immediately": run_immediately}).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_each", tuple(self._one(cron) for cron in crons))

    def _one(self, cron: str) -> CronTriggerTimetable:
        return CronTriggerTimetable(
            cron, timezone=self.timezone, interval=self.interval, run_immediately=self.run_immediately
        )

    @property
    def summary(self) -> str:
        return ", ".join(self.crons)

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        each: tuple[CronTriggerTimetable, ...] = self.__dict__["_each"]
        runs = [
            one.next_dagrun_info_v2(last_dagrun_info=last_dagrun_info, restriction=restriction)
            for one in each
        ]
        found = [run for run in runs if run is not None]
        if not restriction.catchup:
            # Of several that are due only the latest is run: the others were missed (B072). As in Airflow, a run is
            # due when its interval has begun.
            due = [run for run in found if _start(run) <= restriction.present]
            if due:
                return max(due, key=_start)
        return min(found, key=_start, default=None)

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval(run_after - self.interval, run_after)

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "MultipleCronTriggerTimetable":
        check_fields(cls, data)
        values = {name: from_plain(value) for name, value in data.items()}
        return cls(*values.pop("crons", ()), **values)


def _start(run: DagRunInfo) -> datetime:
    return run.logical_date or run.run_after
