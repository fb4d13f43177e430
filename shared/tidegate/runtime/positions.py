"""Where to start reading, and what is remembered beside an offset (rule E1, E2)."""

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import compress, decompress

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

_PLAIN_BYTES: Final = 1_500
"""Longer metadata is compressed: brokers allow 4,096 bytes (offset.metadata.max.bytes)."""


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset with what its metadata holds."""

    offset: int
    """The next offset to read."""
    at: int = 0
    """Timestamp of the last record before it, milliseconds since 1970; 0 where none was read."""
    highs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The highest (offset, ordinal) seen per source: repeats are at or below it."""
    incarnation: int = 0
    """How often the partition's log was seen to have begun anew: its offsets then count from 0 again."""

    def to_kafka(self) -> OffsetAndMetadata:
        """As readable JSON, compressed where it is long."""
        highs = ",".join(f"{source}={offset}.{ordinal}" for source, (offset, ordinal) in self.highs.items())
        data = {"t": self.at, "h": highs} | ({"i": self.incarnation} if self.incarnation else {})
        text = json.dumps(data, separators=(",", ":"))
        if len(text) > _PLAIN_BYTES:
            text = "z" + b64encode(compress(text.encode())).decode()
        return OffsetAndMetadata(self.offset, text)

    @classmethod
    def from_kafka(cls, committed: OffsetAndMetadata) -> "Position":
        if not committed.metadata:  # committed by another tool
            return cls(committed.offset)
        text = committed.metadata
        data = json.loads(decompress(b64decode(text[1:])) if text.startswith("z") else text)
        highs = {}
        for item in filter(None, data["h"].split(",")):
            source, _, coordinates = item.rpartition("=")
            offset, _, ordinal = coordinates.partition(".")
            highs[source] = (int(offset), int(ordinal))
        return cls(committed.offset, data["t"], highs, data.get("i", 0))


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
    beginning: int = 0
    """Where reading goes on once a person has accepted the gap (tidegate.runtime.gaps)."""
    recreated: bool = False
    """Whether the log began anew, so that its coordinates must not be compared with older ones."""


def source_of(tp: TopicPartition, incarnation: int = 0) -> str:
    """What records made from `tp` name as their source: `<topic>/<partition>`, and `~<n>` once its log began anew.

    The suffix keeps the coordinates of a log that began anew apart from those of the old one, which readers compare
    by source (rule E1).
    """
    return f"{tp.topic}/{tp.partition}" + (f"~{incarnation}" if incarnation else "")


def decide_start(wanted: int | None, beginning: int, end: int) -> int | Gap:
    """The offset to read from: `wanted` where the log still holds it, the beginning where nothing was ever read."""
    if wanted is None:
        return beginning
    if wanted < beginning:
        return Gap(
            f"records {wanted} to {beginning - 1} are gone from the log before they were read", beginning
        )
    if wanted > end:
        reason = f"offset {wanted} lies beyond the end {end}: the topic was created again or lost records"
        return Gap(reason, beginning, recreated=True)
    return wanted


async def committed_positions(
    admin: AIOKafkaAdminClient, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Position]:
    """What `group` committed, without the partitions for which it never did."""
    found = await admin.list_consumer_group_offsets(group, partitions=list(partitions))
    return {tp: Position.from_kafka(each) for tp, each in found.items() if each.offset >= 0}


def partition_numbers(partitions: Iterable[TopicPartition], topic: str) -> set[int]:
    return {tp.partition for tp in partitions if tp.topic == topic}
