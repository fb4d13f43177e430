"""The timetable of jobs whose runs decide their own partition keys."""

from dataclasses import dataclass

from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, TimeRestriction


@dataclass(frozen=True)
class PartitionedAtRuntime(BuiltInTimetable):
    """Never by itself; a run adds its keys with `outlet_events[...].add_partitions`."""

    description = "Partition keys are determined at runtime"
    periodic = False
    can_be_scheduled = False
    partitioned_at_runtime = True

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        return None
