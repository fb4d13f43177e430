"""The timetable of jobs that only people start."""

from dataclasses import dataclass

from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, TimeRestriction


@dataclass(frozen=True)
class NullTimetable(BuiltInTimetable):
    """Never; runs are started by people."""

    description = "Never, external triggers only"
    periodic = False
    can_be_scheduled = False

    @property
    def summary(self) -> str:
        return "None"

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        return None
