"""Where to start reading, and what is remembered beside an offset (rule E1, E2)."""

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Final
from zlib import compress, decompress

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupLoadInProgressError
from aiokafka.structs import OffsetAndMetadata

_ANSWER_DEADLINE_S: Final = 10.0
_ANSWER_POLL_S: Final = 0.1
_PLAIN_BYTES: Final = 1_500
"""Longer metadata is packed and compressed: brokers allow 4,096 bytes (offset.metadata.max.bytes)."""

_OFFSET_BYTES: Final = 8
_ORDINAL_BYTES: Final = 4
_INCARNATION: Final = re.compile(r"~(\d+)(?=#\d+$|$)")


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
        """As readable JSON; where it is long, with the coordinates behind it as columns of bytes, all compressed."""
        head = {"t": self.at} | ({"i": self.incarnation} if self.incarnation else {})
        highs = sorted(self.highs.items())
        text = _json(
            head | {"h": ",".join(f"{name}={offset}.{ordinal}" for name, (offset, ordinal) in highs)}
        )
        if len(text) > _PLAIN_BYTES:
            names = _json(head | {"h": ",".join(name for name, _ in highs)})
            columns = _columns((offset for _, (offset, _) in highs), _OFFSET_BYTES)
            columns += _columns((ordinal for _, (_, ordinal) in highs), _ORDINAL_BYTES)
            # Apart, since names repeat and coordinates do not.
            text = f"z{_squeezed(names.encode())}.{_squeezed(columns)}"
        return OffsetAndMetadata(self.offset, text)

    @classmethod
    def from_kafka(cls, committed: OffsetAndMetadata) -> "Position":
        if not committed.metadata:  # committed by another tool
            return cls(committed.offset)
        text = committed.metadata
        if not text.startswith("z"):
            data = json.loads(text)
            highs = {}
            for item in filter(None, data["h"].split(",")):
                source, _, coordinates = item.rpartition("=")
                offset, _, ordinal = coordinates.partition(".")
                highs[source] = (int(offset), int(ordinal))
            return cls(committed.offset, data["t"], highs, data.get("i", 0))
        head, columns = (decompress(b64decode(part)) for part in text[1:].split("."))
        data = json.loads(head)
        names = data["h"].split(",")
        split = len(names) * _OFFSET_BYTES
        offsets, ordinals = (_read_columns(part, len(names)) for part in (columns[:split], columns[split:]))
        highs = dict(zip(names, zip(offsets, ordinals, strict=True), strict=True))
        return cls(committed.offset, data["t"], highs, data.get("i", 0))


def _json(data: Mapping[str, object]) -> str:
    return json.dumps(data, separators=(",", ":"))


def _squeezed(data: bytes) -> str:
    return b64encode(compress(data, 9)).decode()


def _columns(numbers: Iterable[int], width: int) -> bytes:
    """The first byte of every number, then the second of each: those that are 0 everywhere take next to nothing."""
    rows = b"".join(number.to_bytes(width, "big") for number in numbers)
    return b"".join(rows[n::width] for n in range(width))


def _read_columns(columns: bytes, count: int) -> list[int]:
    return [int.from_bytes(columns[n::count], "big") for n in range(count)]


def most_metadata(sources: Collection[str], *, with_ordinals: bool) -> int:
    """How many bytes the metadata of a position may take once something was read of all of `sources`.

    Taken at offsets up to a million millions, which compress badly, and at ordinals up to 65,535 where there are any.
    Of the 4,096 bytes that brokers allow unless told otherwise, 400 sources without ordinals take nearly all.
    """
    highs = {}
    for source in sources:
        random = blake2b(source.encode(), digest_size=7).digest()
        ordinal = int.from_bytes(random[5:], "big") if with_ordinals else 0
        highs[source] = (int.from_bytes(random[:5], "big"), ordinal)
    return len(Position(10**12, 10**13, highs, 9).to_kafka().metadata)


class Highs:
    """The highest coordinates read per source; says which entries are new.

    Where a log began anew, only the source of its newest incarnation is kept. What a process that lives on may still
    send of an older one is a repeat, or was read of a log that a person has given up by accepting the gap: its owner
    sends all that is left of the older log, acknowledged, before anything of the newer one. So once the newer one was
    seen, the older one is no input, and no coordinates of it are needed to tell.
    """

    def __init__(self, known: Mapping[str, tuple[int, int]]) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        self._newest: dict[str, tuple[int, str]] = {}
        """By log how often it was seen to have begun anew, and the source that says so."""
        for source, coordinates in known.items():
            if self._is_of_the_newest(source):
                self._known[source] = coordinates

    def is_new(self, source: str, offset: int, ordinal: int = 0) -> bool:
        """Whether (offset, ordinal) is above everything seen of `source`; if so it is now the highest."""
        known = self._known.get(source)
        if known is None and not self._is_of_the_newest(source):
            return False
        if known is not None and (offset, ordinal) <= known:
            return False
        self._known[source] = (offset, ordinal)
        return True

    def _is_of_the_newest(self, source: str) -> bool:
        """Whether no newer incarnation of its log was seen; if it is newer itself, the older one is forgotten."""
        found = _INCARNATION.search(source)
        log, incarnation = _INCARNATION.sub("", source), int(found[1]) if found else 0
        newest, of_the_newest = self._newest.get(log, (incarnation, source))
        if incarnation < newest:
            return False
        if incarnation > newest:
            self._known.pop(of_the_newest, None)
        self._newest[log] = (incarnation, source)
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
    """What a group of ours committed, without the partitions for which it never did; raises as `committed_offsets`."""
    found = await _committed(admin, group, partitions)
    return {tp: Position.from_kafka(each) for tp, each in found.items()}


async def committed_offsets(
    admin: AIOKafkaAdminClient, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that any group committed, without the partitions for which it never did.

    Raises GroupLoadInProgressError where the group's coordinator does not say, as just after Kafka was started.
    """
    return {tp: each.offset for tp, each in (await _committed(admin, group, partitions)).items()}


async def _committed(
    admin: AIOKafkaAdminClient, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    if not partitions:
        return {}
    # aiokafka 0.14 overlooks the error of an answer as a whole: such an answer leaves partitions out, where one that
    # says that nothing was committed has them with offset -1.
    asked = set(partitions)
    deadline = monotonic() + _ANSWER_DEADLINE_S
    while True:
        found = await admin.list_consumer_group_offsets(group, partitions=list(asked))
        if asked <= found.keys():
            return {tp: found[tp] for tp in partitions if found[tp].offset >= 0}
        if monotonic() > deadline:
            raise GroupLoadInProgressError(f"Kafka does not say yet what group {group!r} has committed")
        await asyncio.sleep(_ANSWER_POLL_S)


def partition_numbers(partitions: Iterable[TopicPartition], topic: str) -> set[int]:
    return {tp.partition for tp in partitions if tp.topic == topic}
