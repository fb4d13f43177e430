"""Timetables: the protocol, the values, and what every built-in one shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from dateutil.relativedelta import relativedelta

from tidegate import (
    Asset,
    AssetOrTimeSchedule,
    AssetTriggeredTimetable,
    ContinuousTimetable,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    CronTriggerTimetable,
    DagRunInfo,
    DataInterval,
    DefinitionError,
    DefinitionTypeError,
    DeltaDataIntervalTimetable,
    DeltaTriggerTimetable,
    EventsTimetable,
    MultipleCronTriggerTimetable,
    NotPartitionedError,
    NullTimetable,
    OnceTimetable,
    PartitionedAssetTimetable,
    PartitionedAtRuntime,
    TimeRestriction,
    Timetable,
)
from tidegate.core.conditions import Condition
from tidegate.core.plain import from_plain, plain
from tidegate.core.timetables import next_run, partitions_between, resolve_partition_date, summary_of
from tidegate.core.timetables.switching import restriction_when_switched_on, run_when_switched_on

NEW_YORK = "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def restriction(
    earliest: str | None = None, latest: str | None = None, *, catchup: bool = True, now: str | None = None
) -> TimeRestriction:
    return TimeRestriction(
        at(earliest) if earliest else None, at(latest) if latest else None, catchup, at(now) if now else None
    )


def run_after(timetable: Timetable, last: DagRunInfo | None, given: TimeRestriction) -> str | None:
    run = next_run(timetable, last, given)
    return None if run is None else run.run_after.strftime("%m-%d %H:%M")


EVERY = [
    NullTimetable(),
    OnceTimetable(),
    ContinuousTimetable(),
    CronDataIntervalTimetable("0 2 * * *", NEW_YORK),
    DeltaDataIntervalTimetable(timedelta(minutes=37)),
    DeltaDataIntervalTimetable(relativedelta(months=1)),
    CronTriggerTimetable("@daily", timezone=NEW_YORK, interval=relativedelta(days=1), run_immediately=True),
    DeltaTriggerTimetable(timedelta(hours=1), interval=timedelta(minutes=5)),
    MultipleCronTriggerTimetable("0 8 * * 2", "0 11 * * 4", run_immediately=timedelta(minutes=3)),
    EventsTimetable([at("2026-03-10T09:00"), at("2026-03-08T03:00")], restrict_to_events=True),
    AssetTriggeredTimetable(Asset("a") & Asset("b")),
    AssetOrTimeSchedule(timetable=CronTriggerTimetable("@hourly"), assets=[Asset("a"), Asset("b")]),
    CronPartitionTimetable(
        "0 8 * * 2", "0 11 * * 4", run_offset=-1, jitter=timedelta(minutes=5), key_format="%Y-%m-%d"
    ),
    PartitionedAtRuntime(),
    PartitionedAssetTimetable(Asset("a") | Asset.ref(name="b")),
]


@pytest.mark.parametrize("timetable", EVERY, ids=lambda timetable: type(timetable).__name__)
def test_every_timetable_is_one_and_comes_back_from_plain_data(timetable: Timetable) -> None:
    assert isinstance(timetable, Timetable)
    data = plain(timetable)
    again = from_plain(data)
    assert again == timetable
    assert plain(again) == data
    assert summary_of(timetable)
    timetable.validate()


def test_intervals_are_instants_in_order() -> None:
    tokyo = timezone(timedelta(hours=9))
    interval = DataInterval(datetime(2026, 3, 10, 9, tzinfo=tokyo), at("2026-03-10T01:00"))
    assert interval.start == at("2026-03-10T00:00")
    assert interval.start.tzinfo is UTC
    with pytest.raises(DefinitionError, match="no offset"):
        DataInterval(datetime(2026, 3, 10), at("2026-03-10T01:00"))
    with pytest.raises(DefinitionError, match="before its start"):
        DataInterval(at("2026-03-10T01:00"), at("2026-03-10T00:00"))


def test_the_present_must_be_given_where_it_matters() -> None:
    with pytest.raises(DefinitionError, match=r"TimeRestriction\.now"):
        next_run(OnceTimetable(), None, restriction())
    assert run_after(OnceTimetable(), None, restriction("2026-03-10T00:00")) == "03-10 00:00"


# ---- custom timetables, in every shape that Airflow knows (rule D28) ----


class OlderForm(Timetable):
    """Asked with the last interval."""

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        last = last_automated_data_interval
        start = last.end if last else restriction.earliest
        assert start is not None
        return DagRunInfo.interval(start, start + timedelta(days=2))


@dataclass(frozen=True)
class NewerForm(Timetable):
    """Asked with the last run, so that it can give keys."""

    first: int = 1

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        number = self.first if last_dagrun_info is None else int(last_dagrun_info.partition_key or 0) + 1
        return DagRunInfo(at("2026-03-10T00:00"), partition_key=str(number))


class ByShapeAlone:
    """No subclass of anything of Tidegate's."""

    description = "by shape"
    periodic = True
    can_be_scheduled = True
    run_ordering: Sequence[str] = ("run_after",)
    active_runs_limit: int | None = None
    asset_condition: Condition | None = None
    partitioned = False
    partitioned_at_runtime = False

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> DagRunInfo | None:
        return None if last_automated_data_interval else DagRunInfo.exact(at("2026-03-10T00:00"))

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval.exact(run_after)

    def validate(self) -> None: ...

    def serialize(self) -> dict[str, Any]:
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "ByShapeAlone":
        return cls()


def test_a_custom_timetable_may_answer_the_older_form() -> None:
    timetable = OlderForm()
    first = next_run(timetable, None, restriction("2026-03-10T00:00"))
    assert first is not None
    assert run_after(timetable, first, restriction("2026-03-10T00:00")) == "03-14 00:00"
    assert isinstance(from_plain(plain(timetable)), OlderForm)


def test_a_custom_timetable_may_answer_the_newer_form() -> None:
    first = next_run(NewerForm(7), None, restriction())
    second = next_run(NewerForm(7), first, restriction())
    assert second is not None
    assert second.partition_key == "8"
    assert from_plain(plain(NewerForm(7))) == NewerForm(7)


def test_a_custom_timetable_may_be_one_by_its_shape() -> None:
    timetable = ByShapeAlone()
    assert isinstance(timetable, Timetable)
    assert run_after(timetable, None, restriction()) == "03-10 00:00"
    assert not isinstance(object(), Timetable)


def test_a_custom_timetable_cannot_take_the_name_of_a_built_in_one() -> None:
    with pytest.raises(DefinitionError, match="rename it"):
        type("OnceTimetable", (Timetable,), {"__module__": "mine"})


def test_one_that_answers_neither_form_says_so() -> None:
    class Neither(Timetable):
        pass

    with pytest.raises(NotImplementedError, match="must define next_dagrun_info"):
        next_run(Neither(), None, restriction())


# ---- built-in ones ----


def test_once_runs_once() -> None:
    first = next_run(OnceTimetable(), None, restriction("2026-03-10T00:00"))
    assert next_run(OnceTimetable(), first, restriction("2026-03-10T00:00")) is None


def test_continuous_runs_are_about_the_time_since_the_last_one() -> None:
    timetable = ContinuousTimetable()
    first = next_run(timetable, None, restriction("2026-03-10T00:00", now="2026-03-10T12:00"))
    second = next_run(timetable, first, restriction("2026-03-10T00:00", now="2026-03-10T12:05"))
    assert second is not None
    assert second.data_interval == DataInterval(at("2026-03-10T12:00"), at("2026-03-10T12:05"))
    assert timetable.active_runs_limit == 1


def test_end_dates_are_inclusive() -> None:
    timetable = CronTriggerTimetable("@daily")
    given = restriction("2026-03-10T00:00", "2026-03-11T00:00")
    first = next_run(timetable, None, given)
    assert run_after(timetable, first, given) == "03-11 00:00"
    assert next_run(timetable, next_run(timetable, first, given), given) is None


def test_without_catchup_only_the_latest_missed_tick_is_run() -> None:
    given = restriction("2026-01-01T00:00", catchup=False, now="2026-03-10T12:00")
    assert run_after(CronTriggerTimetable("@daily"), None, given) == "03-10 00:00"
    assert run_after(CronDataIntervalTimetable("@daily"), None, given) == "03-10 00:00"
    assert run_after(DeltaTriggerTimetable(timedelta(days=1)), None, given) == "03-10 12:00"


def test_events_are_sorted_and_each_is_run_once() -> None:
    timetable = EventsTimetable([at("2026-03-12T00:00"), at("2026-03-10T00:00")])
    first = next_run(timetable, None, restriction())
    second = next_run(timetable, first, restriction())
    assert [
        run and run.run_after.day for run in (first, second, next_run(timetable, second, restriction()))
    ] == [
        10,
        12,
        None,
    ]


@pytest.mark.parametrize(
    "build",
    [
        lambda: DeltaDataIntervalTimetable(timedelta(0)),
        lambda: DeltaTriggerTimetable(timedelta(seconds=-1)),
        lambda: DeltaDataIntervalTimetable(relativedelta(months=-1)),
        lambda: CronTriggerTimetable("@daily", interval=timedelta(days=-1)),
        MultipleCronTriggerTimetable,
        CronPartitionTimetable,
        lambda: CronPartitionTimetable("@daily", run_offset=1.5),  # type: ignore[arg-type]
        lambda: CronPartitionTimetable("@daily", key_format=""),
        lambda: CronPartitionTimetable("@daily", timezone="Mars/Olympus"),
        lambda: EventsTimetable([datetime(2026, 3, 10)]),
    ],
)
def test_values_that_cannot_work_are_refused_where_they_are_declared(build: Any) -> None:
    with pytest.raises(DefinitionError):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: DeltaTriggerTimetable("1h"),
        lambda: CronTriggerTimetable("@daily", run_immediately="yes"),
        lambda: CronTriggerTimetable(5),  # type: ignore[arg-type]
        lambda: CronPartitionTimetable("@daily", jitter=5),  # type: ignore[arg-type]
        lambda: CronPartitionTimetable("@daily", key_format=5),  # type: ignore[arg-type]
        lambda: EventsTimetable(["2026-03-10"]),  # type: ignore[list-item]
        lambda: AssetOrTimeSchedule(timetable="@daily", assets=Asset("a")),  # type: ignore[arg-type]
        lambda: AssetTriggeredTimetable("a"),  # type: ignore[arg-type]
    ],
)
def test_values_of_the_wrong_type_are_refused_where_they_are_declared(build: Any) -> None:
    with pytest.raises(DefinitionTypeError):
        build()


def test_an_asset_or_time_schedule_ticks_like_its_timetable() -> None:
    schedule = AssetOrTimeSchedule(timetable=CronTriggerTimetable("@hourly"), assets=Asset("a"))
    assert run_after(schedule, None, restriction("2026-03-10T00:30")) == "03-10 01:00"
    assert schedule.asset_condition == Asset("a")
    with pytest.raises(DefinitionError, match="waits for assets itself"):
        AssetOrTimeSchedule(timetable=AssetTriggeredTimetable(Asset("b")), assets=Asset("a"))


def test_schedules_without_partitions_say_so() -> None:
    with pytest.raises(NotPartitionedError):
        partitions_between(CronTriggerTimetable("@daily"), at("2026-03-10T00:00"), at("2026-03-12T00:00"))
    assert resolve_partition_date(CronTriggerTimetable("@daily"), "2026-03-10") is None


# ---- cases.md ----


def test_b022_a_manual_run_on_the_spring_day_costs_no_scheduled_one() -> None:
    timetable = CronDataIntervalTimetable("0 2 * * *", NEW_YORK)
    manual = timetable.infer_manual_data_interval(run_after=at("2026-03-08T07:30"))
    assert manual == DataInterval(at("2026-03-07T07:00"), at("2026-03-08T07:00"))
    following = next_run(
        timetable, DagRunInfo.interval(manual.start, manual.end), restriction("2026-01-01T00:00")
    )
    assert following is not None
    assert following.data_interval == DataInterval(at("2026-03-08T07:00"), at("2026-03-09T06:00"))


def test_b023_no_run_on_the_autumn_day_lies_in_the_future() -> None:
    timetable = CronTriggerTimetable("0 1 * * *", timezone=NEW_YORK, run_immediately=True)
    first = next_run(timetable, None, restriction(catchup=False, now="2026-11-01T05:30"))
    assert first is not None
    assert first.run_after == at("2026-11-01T05:00")
    assert run_after(timetable, first, restriction(catchup=False, now="2026-11-01T05:30")) == "11-02 06:00"


def test_b072_several_crons_make_up_for_one_missed_tick_at_most() -> None:
    friday = restriction("2026-01-01T00:00", catchup=False, now="2026-03-13T12:00")
    monday = DagRunInfo.exact(at("2026-03-05T11:00"))
    for timetable in (
        MultipleCronTriggerTimetable("0 8 * * 2", "0 11 * * 4"),
        CronPartitionTimetable("0 8 * * 2", "0 11 * * 4"),
    ):
        first = next_run(timetable, monday, friday)
        assert first is not None
        assert first.run_after == at("2026-03-12T11:00")
        assert run_after(timetable, first, friday) == "03-17 08:00"


def test_b074_switching_on_says_before_what_will_happen() -> None:
    moscow = {"timezone": "Europe/Moscow"}
    switched_on = at("2026-03-09T06:00")  # Monday 09:00 local
    given = restriction("2026-01-01T00:00", catchup=False)
    trigger = run_when_switched_on(CronTriggerTimetable("45 20 * * 5", **moscow), None, given, switched_on)
    assert trigger is not None
    assert trigger.run_after == at("2026-03-13T17:45")  # next Friday
    interval = run_when_switched_on(
        CronDataIntervalTimetable("45 20 * * 5", **moscow), None, given, switched_on
    )
    assert interval is not None
    assert interval.data_interval == DataInterval(at("2026-02-27T17:45"), at("2026-03-06T17:45"))


def test_with_catchup_switching_on_leaves_the_restriction_as_it_is() -> None:
    given = restriction("2026-01-01T00:00")
    switched = restriction_when_switched_on(CronTriggerTimetable("@daily"), given, at("2026-03-09T06:00"))
    assert switched == given._replace(now=at("2026-03-09T06:00"))
