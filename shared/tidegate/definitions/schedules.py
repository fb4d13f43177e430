"""What may stand after `schedule=`: a timetable, or one of Airflow's short forms for one (rule D29)."""

from collections.abc import Collection
from datetime import timedelta
from typing import TypeAlias

from dateutil.relativedelta import relativedelta

from tidegate.core.conditions import Condition
from tidegate.core.errors import DefinitionTypeError
from tidegate.core.timetables import (
    AssetTriggeredTimetable,
    ContinuousTimetable,
    CronTriggerTimetable,
    DeltaTriggerTimetable,
    OnceTimetable,
    Timetable,
)

Schedule: TypeAlias = Timetable | Condition | Collection[Condition] | str | timedelta | relativedelta | None


def as_timetable(schedule: object) -> Timetable | None:
    """The timetable that a schedule means; None for none.

    Text is a cron expression, `@hourly` to `@yearly`, `@once` or `@continuous`; a span of time is how often; assets,
    also in a list, are all waited for. Raises DefinitionTypeError for anything else.
    """
    if schedule is None:
        return None
    if isinstance(schedule, str):
        if schedule in ("@once", "@continuous"):
            return OnceTimetable() if schedule == "@once" else ContinuousTimetable()
        return CronTriggerTimetable(schedule)
    if isinstance(schedule, timedelta | relativedelta):
        return DeltaTriggerTimetable(schedule)
    if isinstance(schedule, Condition):
        return AssetTriggeredTimetable(schedule)
    if isinstance(schedule, list | tuple | set | frozenset):
        return AssetTriggeredTimetable(schedule)
    if isinstance(schedule, Timetable):
        return schedule
    raise DefinitionTypeError(
        f"Job.schedule must be a timetable, a cron expression, a span of time, assets or None, not {schedule!r:.100}"
    )
