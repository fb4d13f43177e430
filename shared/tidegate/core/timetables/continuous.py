"""The timetable of a job that is always running."""

from dataclasses import dataclass

from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, TimeRestriction


@dataclass(frozen=True)
class ContinuousTimetable(BuiltInTimetable):
    """A run as soon as the one before has ended, about the time since then; never two at once."""

    description = "As frequently as possible, but only one run at a time."
    periodic = False
    active_runs_limit = 1

    @property
    def summary(self) -> str:
        return "@continuous"

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        now = restriction.present
        start = last_dagrun_info.last_end if last_dagrun_info is not None else restriction.earliest or now
        end = max(start, now)
        return None if restriction.is_past_end(end) else DagRunInfo.interval(start, end)
