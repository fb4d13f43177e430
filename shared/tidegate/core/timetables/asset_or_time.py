"""The schedule of a job that runs by the clock and when assets are updated."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidegate.core.conditions import Condition
from tidegate.core.errors import DefinitionError
from tidegate.core.plain import expect
from tidegate.core.timetables.asset_triggered import as_condition
from tidegate.core.timetables.base import (
    BuiltInTimetable,
    DagRunInfo,
    DataInterval,
    TimeRestriction,
    Timetable,
    next_run,
    summary_of,
)


@dataclass(frozen=True, kw_only=True)
class AssetOrTimeSchedule(BuiltInTimetable):
    """Run at the times of `timetable`, and besides whenever `assets` is satisfied."""

    timetable: Timetable
    assets: Condition

    if TYPE_CHECKING:

        def __init__(self, *, timetable: Timetable, assets: Condition | Iterable[Condition]) -> None: ...

    def __post_init__(self) -> None:
        expect(self.timetable, Timetable, "AssetOrTimeSchedule.timetable")
        object.__setattr__(self, "assets", as_condition(self.assets, "AssetOrTimeSchedule.assets"))
        if self.timetable.asset_condition is not None:
            raise DefinitionError(
                f"AssetOrTimeSchedule.timetable {type(self.timetable).__name__} waits for assets itself: give a"
                " timetable of times, such as CronTriggerTimetable"
            )
        for name in ("active_runs_limit", "partitioned", "partitioned_at_runtime", "run_ordering"):
            object.__setattr__(self, name, getattr(self.timetable, name))
        object.__setattr__(
            self, "description", f"Triggered by assets or {self.timetable.description}".strip()
        )

    @property
    def summary(self) -> str:
        return f"Asset or {summary_of(self.timetable)}"

    @property
    def asset_condition(self) -> Condition:
        return self.assets

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        return next_run(self.timetable, last_dagrun_info, restriction)

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return self.timetable.infer_manual_data_interval(run_after=run_after)

    def validate(self) -> None:
        self.timetable.validate()
