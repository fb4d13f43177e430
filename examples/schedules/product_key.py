"""Keys of two parts, region and time: `us|2026-03-10T09:00:00` leads to a run for `us|2026-03-10`."""

from tidegate import Asset, IdentityMapper, Job, PartitionedAssetTimetable, ProductMapper, StartOfDayMapper

region_and_day = ProductMapper(IdentityMapper(), StartOfDayMapper())

regional_report = Job(
    "regional_report",
    schedule=PartitionedAssetTimetable(
        assets=Asset("regional_sales"), default_partition_mapper=region_and_day
    ),
)

# Compound keys have no date of their own, unless one part is said to give it.
dated_regional_report = Job(
    "dated_regional_report",
    schedule=PartitionedAssetTimetable(
        assets=Asset("regional_sales"),
        default_partition_mapper=ProductMapper(IdentityMapper(), StartOfDayMapper(), date_from=1),
    ),
)
