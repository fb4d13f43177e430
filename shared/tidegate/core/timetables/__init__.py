"""Schedules, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.timetables.asset_or_time import AssetOrTimeSchedule
from tidegate.core.timetables.asset_triggered import AssetTriggeredTimetable
from tidegate.core.timetables.base import (
    DagRunInfo,
    DataInterval,
    TimeRestriction,
    Timetable,
    next_run,
    partitions_between,
    resolve_partition_date,
    summary_of,
)
from tidegate.core.timetables.continuous import ContinuousTimetable
from tidegate.core.timetables.cron_interval import CronDataIntervalTimetable
from tidegate.core.timetables.cron_partition import CronPartitionTimetable
from tidegate.core.timetables.cron_trigger import CronTriggerTimetable
from tidegate.core.timetables.delta_interval import DeltaDataIntervalTimetable
from tidegate.core.timetables.delta_trigger import DeltaTriggerTimetable
from tidegate.core.timetables.events import EventsTimetable
from tidegate.core.timetables.multiple_cron_trigger import MultipleCronTriggerTimetable
from tidegate.core.timetables.null import NullTimetable
from tidegate.core.timetables.once import OnceTimetable
from tidegate.core.timetables.partitioned_asset import PartitionedAssetTimetable
from tidegate.core.timetables.partitioned_at_runtime import PartitionedAtRuntime

__all__ = [
    "AssetOrTimeSchedule",
    "AssetTriggeredTimetable",
    "ContinuousTimetable",
    "CronDataIntervalTimetable",
    "CronPartitionTimetable",
    "CronTriggerTimetable",
    "DagRunInfo",
    "DataInterval",
    "DeltaDataIntervalTimetable",
    "DeltaTriggerTimetable",
    "EventsTimetable",
    "MultipleCronTriggerTimetable",
    "NullTimetable",
    "OnceTimetable",
    "PartitionedAssetTimetable",
    "PartitionedAtRuntime",
    "TimeRestriction",
    "Timetable",
    "next_run",
    "partitions_between",
    "resolve_partition_date",
    "summary_of",
]
