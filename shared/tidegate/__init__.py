"""Tidegate: event-driven, partition-aware scheduling on Kafka and Redis.

The public names are Airflow's: a schedule is ported by changing the import (rule D29).
"""

from tidegate.core.errors import (
    DefinitionError,
    DefinitionTypeError,
    InvalidEventError,
    InvalidPartitionKeyError,
    TidegateError,
)
from tidegate.core.mappers import (
    IdentityMapper,
    PartitionMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
)
from tidegate.core.policies import WaitForAll, WaitPolicy
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.core.windows import DayWindow, MonthWindow, Window
from tidegate.definitions import Asset, Job, load_definitions

__version__ = "0.1.0"

__all__ = [
    "Asset",
    "DayWindow",
    "DefinitionError",
    "DefinitionTypeError",
    "IdentityMapper",
    "InvalidEventError",
    "InvalidPartitionKeyError",
    "Job",
    "MonthWindow",
    "PartitionMapper",
    "PartitionedAssetTimetable",
    "RollupMapper",
    "StartOfDayMapper",
    "StartOfHourMapper",
    "StartOfMonthMapper",
    "TidegateError",
    "WaitForAll",
    "WaitPolicy",
    "Window",
    "load_definitions",
]
