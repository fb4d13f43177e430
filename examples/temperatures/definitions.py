"""What the example declares: two hourly assets, a job a day, and a job a month that follows from the days."""

from tidegate import (
    Asset,
    DayWindow,
    Job,
    MonthWindow,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
    StartOfMonthMapper,
)

ZONE = "America/Los_Angeles"

seattle_hourly = Asset("seattle_hourly")
san_francisco_hourly = Asset("san_francisco_hourly")
daily_temperatures_asset = Asset("daily_temperatures")

daily_temperatures = Job(
    id="daily_temperatures",
    schedule=PartitionedAssetTimetable(
        assets=seattle_hourly & san_francisco_hourly,
        default_partition_mapper=RollupMapper(
            upstream_mapper=StartOfDayMapper(timezone=ZONE), window=DayWindow()
        ),
    ),
    outlets=[daily_temperatures_asset],
    description="Each city's mean of a day, once every hour of both cities is in.",
)

monthly_temperatures = Job(
    id="monthly_temperatures",
    schedule=PartitionedAssetTimetable(
        assets=daily_temperatures_asset,
        default_partition_mapper=RollupMapper(
            upstream_mapper=StartOfMonthMapper(timezone=ZONE), window=MonthWindow()
        ),
    ),
    description="Each city's mean over all hours of a month, once every day of it is in.",
)
