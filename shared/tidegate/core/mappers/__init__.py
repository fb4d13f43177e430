"""Mappers, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.mappers.base import PartitionMapper, Placement
from tidegate.core.mappers.identity import IdentityMapper
from tidegate.core.mappers.rollup import RollupMapper
from tidegate.core.mappers.temporal import (
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    TemporalMapper,
)

__all__ = [
    "IdentityMapper",
    "PartitionMapper",
    "Placement",
    "RollupMapper",
    "StartOfDayMapper",
    "StartOfHourMapper",
    "StartOfMonthMapper",
    "TemporalMapper",
]
