"""A shell command that is run for a day, with the date in its arguments."""

from tidegate import Asset, Job, PartitionedAssetTimetable, StartOfDayMapper

COMMAND = "./report.sh --day {{ partition_date | ds }} --key {{ partition_key }}"
"""For `tidegate exec report -- ...`."""

report = Job(
    "report",
    schedule=PartitionedAssetTimetable(assets=Asset("sales"), default_partition_mapper=StartOfDayMapper()),
)
