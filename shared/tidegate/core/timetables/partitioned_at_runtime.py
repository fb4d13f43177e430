"""The timetable of jobs whose runs decide their own partition keys."""

from dataclasses import dataclass

from tidegate.core.timetables.base import UntimedTimetable


@dataclass(frozen=True)
class PartitionedAtRuntime(UntimedTimetable):
    """Never by itself; a run adds its keys with `outlet_events[...].add_partitions`."""

    description = "Partition keys are determined at runtime"
    periodic = False
    can_be_scheduled = False
    partitioned_at_runtime = True
