"""Schedules of the company."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from acme_partitions.mappers import StripNamespaceMapper
from tidegate import PartitionedAssetTimetable, PartitionMapper, Timetable
from tidegate.core.timetables import DagRunInfo, DataInterval


@dataclass(frozen=True)
class NamespacedTimetable(PartitionedAssetTimetable):
    """A schedule by assets whose keys all have a namespace before them."""

    default_partition_mapper: PartitionMapper = field(default_factory=StripNamespaceMapper)


@dataclass(frozen=True)
class WorkdayTimetable(Timetable):
    """One run at midnight (UTC) after every working day, for that day (Airflow's tutorial on custom timetables)."""

    description = "after every working day"
    periodic = True
    can_be_scheduled = True

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> DagRunInfo | None:
        if last_automated_data_interval is not None:
            day = last_automated_data_interval.start + timedelta(days=1)
        elif restriction.earliest is not None:
            day = restriction.earliest
        else:
            return None
        day = datetime(day.year, day.month, day.day, tzinfo=UTC)
        while day.weekday() > 4:
            day += timedelta(days=1)
        if restriction.latest is not None and day > restriction.latest:
            return None
        return DagRunInfo.interval(day, day + timedelta(days=1))

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval(run_after - timedelta(days=1), run_after)
