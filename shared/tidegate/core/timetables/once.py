"""The timetable of a single run."""

from dataclasses import dataclass

from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, TimeRestriction


@dataclass(frozen=True)
class OnceTimetable(BuiltInTimetable):
    """One run at the start date, or at once where there is none; catchup has no say."""

    description = "Once, as soon as possible"
    periodic = False

    @property
    def summary(self) -> str:
        return "@once"

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if last_dagrun_info is not None:
            return None
        at = restriction.earliest or restriction.present
        return None if restriction.is_past_end(at) else DagRunInfo.exact(at)
