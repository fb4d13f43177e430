"""The mapper that leaves keys as they are."""

from dataclasses import dataclass
from datetime import datetime

from tidegate.core.mappers.base import PartitionMapper


@dataclass(frozen=True)
class IdentityMapper(PartitionMapper):
    """Downstream key = upstream key; the producer's partition date is carried along."""

    def to_downstream(self, key: str) -> str:
        return key

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        return source_partition_date
