"""One run a day, once every hour of the day is in.

Airflow's code and Airflow's documentation spell this in two ways; both give the same runs.
"""

from tidegate import (
    Asset,
    DayWindow,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
)

hourly_sales = Asset("hourly_sales")

daily_report = Job(
    "daily_report",
    schedule=PartitionedAssetTimetable(
        assets=hourly_sales,
        default_partition_mapper=RollupMapper(upstream_mapper=StartOfDayMapper(), window=DayWindow()),
    ),
)

daily_report_as_documented = Job(
    "daily_report_as_documented",
    schedule=PartitionedAssetTimetable(
        assets=hourly_sales,
        default_partition_mapper=RollupMapper(upstream_mapper=StartOfHourMapper(), window=DayWindow()),
    ),
)
