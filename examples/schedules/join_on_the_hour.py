"""A run for every hour for which three assets are in, whatever minute each of them names."""

from tidegate import Asset, Job, PartitionedAssetTimetable, StartOfHourMapper

orders, payments, shipments = Asset("orders"), Asset("payments"), Asset("shipments")

reconcile = Job(
    "reconcile",
    schedule=PartitionedAssetTimetable(
        assets=orders & payments & shipments, default_partition_mapper=StartOfHourMapper()
    ),
)
