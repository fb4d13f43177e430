"""One event may lead to seven runs and no more: a month, which would lead to 31, leads to none."""

from tidegate import (
    Asset,
    FanOutMapper,
    Job,
    MonthWindow,
    PartitionedAssetTimetable,
    StartOfMonthMapper,
    StartOfWeekMapper,
    WeekWindow,
)

by_month = Job(
    "by_month",
    schedule=PartitionedAssetTimetable(
        assets=Asset("monthly_plan"),
        default_partition_mapper=FanOutMapper(
            upstream_mapper=StartOfMonthMapper(), window=MonthWindow(), max_downstream_keys=7
        ),
    ),
)

by_week = Job(
    "by_week",
    schedule=PartitionedAssetTimetable(
        assets=Asset("weekly_plan"),
        default_partition_mapper=FanOutMapper(
            upstream_mapper=StartOfWeekMapper(), window=WeekWindow(), max_downstream_keys=7
        ),
    ),
)
