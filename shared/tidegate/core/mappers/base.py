"""What a partition mapper is: the way from an upstream key to downstream keys."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tidegate.core.plain import Plain


class Placement(NamedTuple):
    """Where one upstream key counts: a downstream key, and the member of its window that the key stands for."""

    key: str
    member: int
    """Index of the member in the window, from 0."""
    size: int
    """How many members the window has."""
    needed: int
    """How many of them its wait policy asks for."""


@dataclass(frozen=True)
class PartitionMapper(Plain, ABC, is_base=True):
    """Turns an upstream partition key into downstream keys (AIP-76). Frozen, hashable, free of I/O and of clocks."""

    is_rollup = False

    @abstractmethod
    def to_downstream(self, key: str) -> str | Iterable[str]:
        """The downstream key or keys of `key`; raises InvalidPartitionKeyError for a key that it cannot map."""

    def placements(self, key: str) -> tuple[Placement, ...]:
        """Every window member that `key` counts for; a mapper that is no rollup has windows of one member."""
        keys = self.to_downstream(key)
        keys = (keys,) if isinstance(keys, str) else keys
        return tuple(Placement(downstream, 0, 1, 1) for downstream in dict.fromkeys(keys))

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        """The UTC instant that a downstream key stands for, None where keys carry no date."""
        return None

    def carry_partition_date(self, partition_date: datetime | None) -> datetime | None:
        """The date that the producer's own date becomes downstream; None drops it, as a key that changes must."""
        return None
