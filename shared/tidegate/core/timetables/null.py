"""The timetable of jobs that only people start."""

from dataclasses import dataclass

from tidegate.core.timetables.base import UntimedTimetable


@dataclass(frozen=True)
class NullTimetable(UntimedTimetable):
    """Never; runs are started by people."""

    description = "Never, external triggers only"
    periodic = False
    can_be_scheduled = False

    @property
    def summary(self) -> str:
        return "None"
