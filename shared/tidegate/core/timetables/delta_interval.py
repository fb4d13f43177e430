"""The timetable of intervals of one length."""

from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.core.timetables.base import BuiltInTimetable, DagRunInfo, DataInterval, TimeRestriction
from tidegate.core.timetables.spans import Span, check_span, fixed_seconds


@dataclass(frozen=True)
class DeltaDataIntervalTimetable(BuiltInTimetable):
    """A run about every `delta` from the start date on, at its end."""

    delta: Span

    def __post_init__(self) -> None:
        check_span(self.delta, "DeltaDataIntervalTimetable.delta", zero=False)

    @property
    def summary(self) -> str:
        return str(self.delta)

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        earliest = restriction.earliest
        if not restriction.catchup:
            latest_complete = self._on_grid(restriction.present) - self.delta
            earliest = max(earliest, latest_complete) if earliest is not None else latest_complete
        start = earliest
        if last_dagrun_info is not None:
            after_last = last_dagrun_info.last_end
            start = after_last if earliest is None else max(after_last, earliest)
        if start is None or restriction.is_past_end(start):
            return None
        return DagRunInfo.interval(start, start + self.delta)

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval(run_after - self.delta, run_after)

    def _on_grid(self, at: datetime) -> datetime:
        """The last multiple of the delta since 1970, so that the moment of asking does not move the intervals.

        Months and years have no such grid: theirs begin at the moment of asking, as in Airflow.
        """
        length = fixed_seconds(self.delta)
        if not length:
            return at
        seconds = at.timestamp()
        return datetime.fromtimestamp(seconds - seconds % length, UTC)
