"""A job that the clock starts every hour, for the hour before; a day's job follows from its outlet."""

from datetime import UTC, datetime

from tidegate import (
    Asset,
    CronPartitionTimetable,
    DayWindow,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
)

hourly = Asset("hourly")

hourly_import = Job(
    "hourly_import",
    schedule=CronPartitionTimetable("0 * * * *", run_offset=-1),
    outlets=[hourly],
    start_date=datetime(2026, 3, 10, 1, tzinfo=UTC),
)

daily_sum = Job(
    "daily_sum",
    schedule=PartitionedAssetTimetable(
        assets=hourly,
        default_partition_mapper=RollupMapper(upstream_mapper=StartOfDayMapper(), window=DayWindow()),
    ),
)
