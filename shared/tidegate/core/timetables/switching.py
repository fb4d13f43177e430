"""What a schedule does when it is switched on (rule D10)."""

from datetime import datetime

from tidegate.core.timetables.base import DagRunInfo, TimeRestriction, Timetable, next_run
from tidegate.core.timetables.cron_interval import CronDataIntervalTimetable
from tidegate.core.timetables.delta_interval import DeltaDataIntervalTimetable


def restriction_when_switched_on(
    timetable: Timetable, restriction: TimeRestriction, at: datetime
) -> TimeRestriction:
    """The restriction of a job that is switched on at an instant.

    With catchup it is the job's own. Without, a trigger waits for its next tick and does not make up for one that it
    missed while it was off; a timetable of data intervals runs the latest complete interval, which is still due.
    """
    if restriction.catchup or isinstance(timetable, CronDataIntervalTimetable | DeltaDataIntervalTimetable):
        return restriction._replace(now=at)
    earliest = at if restriction.earliest is None else max(at, restriction.earliest)
    return restriction._replace(earliest=earliest, now=at)


def run_when_switched_on(
    timetable: Timetable, last: DagRunInfo | None, restriction: TimeRestriction, at: datetime
) -> DagRunInfo | None:
    """The run that switching a job on at an instant leads to."""
    return next_run(timetable, last, restriction_when_switched_on(timetable, restriction, at))
