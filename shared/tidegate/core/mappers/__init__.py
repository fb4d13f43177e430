"""Mappers, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.mappers.allowed_key import AllowedKeyMapper
from tidegate.core.mappers.base import MAX_DOWNSTREAM_KEYS, PartitionMapper, Placement
from tidegate.core.mappers.chain import ChainMapper
from tidegate.core.mappers.fan_out import FanOutMapper
from tidegate.core.mappers.fixed_key import FixedKeyMapper
from tidegate.core.mappers.identity import IdentityMapper
from tidegate.core.mappers.product import ProductMapper
from tidegate.core.mappers.rollup import RollupMapper
from tidegate.core.mappers.temporal import (
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    StartOfQuarterMapper,
    StartOfWeekMapper,
    StartOfYearMapper,
    TemporalMapper,
)

__all__ = [
    "MAX_DOWNSTREAM_KEYS",
    "AllowedKeyMapper",
    "ChainMapper",
    "FanOutMapper",
    "FixedKeyMapper",
    "IdentityMapper",
    "PartitionMapper",
    "Placement",
    "ProductMapper",
    "RollupMapper",
    "StartOfDayMapper",
    "StartOfHourMapper",
    "StartOfMonthMapper",
    "StartOfQuarterMapper",
    "StartOfWeekMapper",
    "StartOfYearMapper",
    "TemporalMapper",
]
