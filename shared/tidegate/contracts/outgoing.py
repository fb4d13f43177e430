"""A record on its way out, as decisions hand it to whoever sends it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

HEADROOM: Final = 32 * 1024
"""Bytes that a record's key, headers and framing may take beside the largest value."""


class Outgoing(NamedTuple):
    """One record to send."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    audited: tuple[str, str] | None = None
    """Kind and service of an audit entry, which a metric counts once it is acknowledged."""
