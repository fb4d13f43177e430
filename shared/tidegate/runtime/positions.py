"""Where to start reading, and what is remembered beside an offset (protocol.md E1, E2)."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset with what its metadata holds."""

    offset: int
    """The next offset to read."""
    at: int = 0
    """Timestamp of the last record before it, milliseconds since 1970; 0 where none was read."""
    highs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The highest (offset, ordinal) seen per source: repeats are at or below it."""

    def to_kafka(self) -> OffsetAndMetadata:
        """Compact, since brokers allow 4,096 bytes of metadata."""
        highs = ",".join(f"{source}={offset}.{ordinal}" for source, (offset, ordinal) in self.highs.items())
        return OffsetAndMetadata(self.offset, json.dumps({"t": self.at, "h": highs}, separators=(",", ":")))

    @classmethod
    def from_kafka(cls, committed: OffsetAndMetadata) -> "Position":
        if not committed.metadata:  # committed by another tool
            return cls(committed.offset)
        data = json.loads(committed.metadata)
        highs = {}
        for item in filter(None, data["h"].split(",")):
            source, _, coordinates = item.rpartition("=")
            offset, _, ordinal = coordinates.partition(".")
            highs[source] = (int(offset), int(ordinal))
        return cls(committed.offset, data["t"], highs)


class Highs:
    """The highest coordinates read per source; says which entries are new."""

    def __init__(self, known: Mapping[str, tuple[int, int]]) -> None:
        self._known = dict(known)

    def is_new(self, source: str, offset: int, ordinal: int = 0) -> bool:
        """Whether (offset, ordinal) is above everything seen of `source`; if so it is now the highest."""
        if (offset, ordinal) <= self._known.get(source, (-1, -1)):
            return False
        self._known[source] = (offset, ordinal)
        return True

    def snapshot(self) -> dict[str, tuple[int, int]]:
        return dict(self._known)


@dataclass(frozen=True, slots=True)
class Gap:
    """A start that would skip records in silence: the log no longer holds what comes next."""

    reason: str


def decide_start(wanted: int | None, beginning: int, end: int) -> int | Gap:
    """The offset to read from: `wanted` where the log still holds it, the beginning where nothing was ever read."""
    if wanted is None:
        return beginning
    if wanted < beginning:
        return Gap(f"records {wanted} to {beginning - 1} are gone from the log before they were read")
    if wanted > end:
        return Gap(f"offset {wanted} lies beyond the end {end}: the topic was created again or lost records")
    return wanted


async def committed_positions(
    admin: AIOKafkaAdminClient, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Position]:
    """What `group` committed, without the partitions for which it never did."""
    found = await admin.list_consumer_group_offsets(group, partitions=list(partitions))
    return {tp: Position.from_kafka(each) for tp, each in found.items() if each.offset >= 0}


def partition_numbers(partitions: Iterable[TopicPartition], topic: str) -> set[int]:
    return {tp.partition for tp in partitions if tp.topic == topic}
