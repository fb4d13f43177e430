"""The timetable that starts a run every so often."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, DataInterval, TimeRestriction
from tidegate.core.timetables.spans import Span, check_span


@dataclass(frozen=True)
class DeltaTriggerTimetable(BuiltInTimetable):
    """A run every `delta` from the start date on, about the `interval` before it; an empty one unless given."""

    delta: Span
    interval: Span = field(default=timedelta(0), kw_only=True)

    def __post_init__(self) -> None:
        check_span(self.delta, "DeltaTriggerTimetable.delta", zero=False)
        check_span(self.interval, "DeltaTriggerTimetable.interval", zero=True)

    @property
    def summary(self) -> str:
        return str(self.delta)

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        after_last = last_dagrun_info.last_end + self.delta if last_dagrun_info else None
        if restriction.catchup:
            at = after_last or restriction.earliest or restriction.present
        else:
            at = max(
                each for each in (restriction.present, after_last, restriction.earliest) if each is not None
            )
        return None if restriction.is_past_end(at) else DagRunInfo.interval(at - self.interval, at)

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval(run_after - self.interval, run_after)
