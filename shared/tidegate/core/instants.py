"""Instants as whole numbers, the form in which messages and Redis hold them.

Milliseconds since 1970 for the times of records, as Kafka has them; microseconds for partition dates.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def from_ms(ms: int) -> datetime:
    """The UTC instant of a number of milliseconds since 1970."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def to_ms(at: datetime) -> int:
    """Milliseconds since 1970 of an aware instant."""
    return round(at.timestamp() * 1000)


def from_us(us: int) -> datetime:
    """The UTC instant of a number of microseconds since 1970."""
    return _EPOCH + us * _MICROSECOND


def to_us(at: datetime) -> int:
    """Microseconds since 1970 of an aware instant; nothing is lost, since partition dates are compared.

    Raises OverflowError for one that lies outside the years 1 to 9999 in UTC, which could not be read again.
    """
    us = (at - _EPOCH) // _MICROSECOND
    from_us(us)
    return us
