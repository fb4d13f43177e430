"""Packed records: everything that one source batch gave for one partition, split by bytes (rule E4)."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tidegate.contracts.topics import PACK_BYTES

Entry = TypeVar("Entry")


def pack(
    entries: Sequence[Entry], encode: Callable[[Sequence[Entry]], bytes], limit: int = PACK_BYTES
) -> Iterator[bytes]:
    """`entries` in order as one record or more, each at most `limit` bytes unless one entry alone is larger."""
    raw = encode(entries)
    if len(raw) <= limit or len(entries) == 1:
        yield raw
        return
    half = len(entries) // 2
    yield from pack(entries[:half], encode, limit)
    yield from pack(entries[half:], encode, limit)
