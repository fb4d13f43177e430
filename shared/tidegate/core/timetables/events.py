"""The timetable of given dates."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tidegate.core.errors import DefinitionTypeError
from tidegate.core.plain import expect_flag, expect_text
from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, DataInterval, TimeRestriction, utc


@dataclass(frozen=True)
class EventsTimetable(BuiltInTimetable):
    """A run at every one of `event_dates`, which are put in order.

    With `restrict_to_events` a run that a person starts is about the last event before it, or the first one of all.
    With `presorted` the dates are taken in the order given, and one that lies before its forerunner is never run.
    """

    event_dates: Iterable[datetime]
    restrict_to_events: bool = False
    presorted: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.event_dates, str) or not isinstance(self.event_dates, Iterable):
            raise DefinitionTypeError(
                f"EventsTimetable.event_dates must be a list of datetimes, not {self.event_dates!r:.200}"
            )
        expect_flag(self.restrict_to_events, "EventsTimetable.restrict_to_events")
        expect_flag(self.presorted, "EventsTimetable.presorted")
        expect_text(self.description, "EventsTimetable.description")
        dates = tuple(self.event_dates)
        for at in dates:
            if not isinstance(at, datetime):
                raise DefinitionTypeError(
                    f"EventsTimetable.event_dates must hold aware datetimes, not {at!r}"
                )
        instants = [utc(at, "EventsTimetable.event_dates") for at in dates]
        object.__setattr__(self, "event_dates", tuple(instants if self.presorted else sorted(instants)))
        if not self.description:
            object.__setattr__(self, "description", self.summary)

    @property
    def summary(self) -> str:
        return f"{len(tuple(self.event_dates))} events"

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        earliest = restriction.earliest
        if not restriction.catchup:
            earliest = restriction.present if earliest is None else max(earliest, restriction.present)
        for at in self.event_dates:
            if earliest is not None and at < earliest:
                continue
            if last_dagrun_info is not None and at <= last_dagrun_info.last_end:
                continue
            return None if restriction.is_past_end(at) else DagRunInfo.exact(at)
        return None

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        dates = tuple(self.event_dates)
        if not self.restrict_to_events or not dates:
            return DataInterval.exact(run_after)
        return DataInterval.exact(max((at for at in dates if at <= run_after), default=dates[0]))
