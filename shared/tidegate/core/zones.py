"""Instants and local calendars: the only place that knows how clocks change.

An instant is an aware `datetime` in UTC. Zones come from zoneinfo. A local day is a date, not a midnight: where
midnight is skipped or repeated, the day starts at its first real instant (docs/rules.md, Meaning).
"""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from tidegate.core.errors import DefinitionError, DefinitionTypeError

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """The zone of an IANA name such as `America/Los_Angeles`; raises DefinitionError for any other text."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise DefinitionError(
            f"timezone {name!r:.200} is not known: use an IANA name such as 'UTC' or 'Europe/Berlin'"
        ) from error


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The UTC instant of a wall-clock time; an aware one keeps its own offset.

    A repeated time is its first occurrence; a time that was skipped counts from the offset before the change, so
    02:00 in a gap from 02:00 to 03:00 is the instant that the wall clock calls 03:00 (PEP 495, fold 0).
    """
    return (wall if wall.tzinfo else wall.replace(tzinfo=zone, fold=0)).astimezone(UTC)


def real_instant(wall: datetime, zone: ZoneInfo, *, last: bool = False) -> datetime:
    """The UTC instant of a wall-clock time without an offset, a skipped one being the first instant after the gap.

    A repeated time is its first occurrence, or its last.
    """
    at = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    other = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if other < at:  # only a skipped time is earlier by the offset after the change
        return transition_between(other, at, zone)
    return other if last else at


def zone_name(zone: str | tzinfo) -> str:
    """The IANA name of a zone given by name or as an object of any zone library; raises DefinitionTypeError."""
    if isinstance(zone, str):
        return zone
    if name := getattr(zone, "key", None) or getattr(zone, "name", None):
        return str(name)
    if zone is UTC:
        return "UTC"
    raise DefinitionTypeError(f"timezone must be an IANA name or a zone that has one, not {zone!r:.200}")


def local(at: datetime, zone: ZoneInfo) -> datetime:
    """The wall clock of `zone` at an instant."""
    return at.astimezone(zone)


@lru_cache(maxsize=16_384)
def first_instant(day: date, zone: ZoneInfo) -> datetime:
    """The first instant whose local date is `day` or later (a zone may skip a whole date)."""
    midnight = datetime.combine(day, time.min, zone)
    other = midnight.replace(fold=1)
    at = midnight.astimezone(UTC)
    # PEP 495: the two differ where midnight is repeated or skipped; the second is the earlier one where it is skipped.
    if midnight.utcoffset() == other.utcoffset() or (before := other.astimezone(UTC)) > at:
        return at
    return transition_between(before, at, zone)


def steady_offset(wall: datetime, zone: ZoneInfo) -> timedelta | None:
    """The offset from UTC that `zone` keeps on the local date of a wall-clock time and on the days around it.

    None where its clocks change there, or the calendar ends. With one, every time of that date is shown once, and its
    instant is the time less the offset: plain arithmetic, a tenth of what zoneinfo takes.
    """
    if (offset := _kept(wall.year, wall.month, None, zone)) is None:
        offset = _kept(wall.year, wall.month, wall.day, zone)
    return offset


@lru_cache(maxsize=16_384)
def _kept(year: int, month: int, day: int | None, zone: ZoneInfo) -> timedelta | None:
    """The offset of a date, or of a whole month, with two days on either side; None where it changes.

    One look a day is enough, since no zone changes its clocks to and fro within a day. Two days are more than any
    change ever skipped or repeated.
    """
    days = range(-2, 34) if day is None else range(-2, 4)
    try:
        start = datetime(year, month, day or 1, tzinfo=zone).astimezone(UTC)
        offsets = {(start + n * _DAY).astimezone(zone).utcoffset() for n in days}
    except (OverflowError, ValueError):
        return None
    return offsets.pop() if len(offsets) == 1 else None


def transition_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The instant in (before, after] from which `zone` has the offset that it has at `after`.

    The caller knows that exactly one change lies there. Transitions of the IANA database fall on whole seconds.
    """
    before, after = before.replace(microsecond=0), after.replace(microsecond=0)
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
