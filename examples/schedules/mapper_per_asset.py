"""Two assets with keys of their own kinds meet on the day: one asset has a mapper of its own."""

from tidegate import Asset, IdentityMapper, Job, PartitionedAssetTimetable, StartOfDayMapper

hourly_sales, daily_targets = Asset("hourly_sales"), Asset("daily_targets")

compare = Job(
    "compare",
    schedule=PartitionedAssetTimetable(
        assets=hourly_sales & daily_targets,
        default_partition_mapper=StartOfDayMapper(),
        partition_mapper_config={daily_targets: IdentityMapper()},
    ),
)
