"""Which tick a cron trigger begins with, and which one comes after a pause."""

from datetime import datetime, timedelta
from typing import Final, TypeAlias

from dateutil.relativedelta import relativedelta

from tidegate.core.cron import Cron, Crons
from tidegate.core.errors import DefinitionTypeError
from tidegate.core.timetables.base import TimeRestriction
from tidegate.core.timetables.spans import Span

RunImmediately: TypeAlias = bool | Span | None

_SHORTEST_BUFFER: Final = timedelta(minutes=5)


def check_run_immediately(value: object, field: str) -> None:
    """Raises DefinitionTypeError for anything but true, false, null or a span of time."""
    if value is not None and not isinstance(value, bool | timedelta | relativedelta):
        raise DefinitionTypeError(f"{field} must be true, false, None or a span of time, not {value!r}")


def next_tick(
    cron: Cron | Crons, last: datetime | None, restriction: TimeRestriction, run_immediately: RunImmediately
) -> datetime | None:
    """The tick of the run after the one at `last`, None before the first; None where there is no more.

    With catchup every tick from the start date on is run. Without, ticks before the last one that is due are left out.
    """
    after_last = cron.next(last) if last is not None else None
    if last is not None and after_last is None:
        return None
    from_start = cron.at_or_after(restriction.earliest) if restriction.earliest is not None else None
    if restriction.catchup:
        tick = after_last or from_start
        if tick is None and restriction.earliest is None:
            tick = _first(cron, restriction.present, run_immediately)
    else:
        candidates = [cron.at_or_before(restriction.present), after_last, from_start]
        if last is None and restriction.earliest is None:
            candidates.append(_first(cron, restriction.present, run_immediately))
        tick = max((at for at in candidates if at is not None), default=None)
    return None if tick is None or restriction.is_past_end(tick) else tick


def _first(cron: Cron | Crons, now: datetime, run_immediately: RunImmediately) -> datetime | None:
    """The first tick where no start date says it: the one that has just passed, or the next.

    `run_immediately` takes the past one always (True), or if it is no longer ago than a span; otherwise it is taken
    within a tenth of the distance between the two, and at least within five minutes.
    """
    past, coming = cron.at_or_before(now), cron.at_or_after(now)
    if past is None or run_immediately is True:
        return past or coming
    if isinstance(run_immediately, timedelta | relativedelta):
        is_recent = now <= past + run_immediately
    else:
        is_recent = coming is None or now - past <= max((coming - past) / 10, _SHORTEST_BUFFER)
    return past if is_recent else coming
