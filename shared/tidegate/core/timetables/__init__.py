"""Schedules, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.timetables.base import Timetable
from tidegate.core.timetables.partitioned_asset import PartitionedAssetTimetable

__all__ = ["PartitionedAssetTimetable", "Timetable"]
