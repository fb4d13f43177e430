"""Jobs that need the plugin."""

from acme_partitions.timetables import NamespacedTimetable
from acme_partitions.windows import BusinessDaysOfMonth

from tidegate import Asset, Job, PartitionedAssetTimetable, RollupMapper, StartOfMonthMapper

copy = Job(id="copy", schedule=NamespacedTimetable(Asset("sales")))
month = Job(
    id="month",
    schedule=PartitionedAssetTimetable(
        assets=Asset("daily"),
        default_partition_mapper=RollupMapper(
            StartOfMonthMapper(), BusinessDaysOfMonth(holidays=("2026-05-25",))
        ),
    ),
)
