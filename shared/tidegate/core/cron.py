"""Cron expressions at real instants of a zone (rule D11); the only module that knows the cron library.

The library walks wall-clock times and is never told of the zone: its own rules for clock changes differ from ours (it
takes `*/30 2 * * *` for a wildcard, and such a run would be lost in the hour that a spring change skips).

Two kinds of expression. Where the hours are a wildcard, it ticks whenever the wall clock shows a matching time: a
skipped time is not run, since the real hours around it are, and a repeated one is run twice. Everywhere else each
matching time runs once: a repeated one at its first occurrence, a skipped one at the first instant after the gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.zones import local, real_instant, transition_between, zone_named

PRESETS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_ANY_MOMENT: Final = datetime(2000, 1, 1)
_FOLD_DISTANCE: Final = timedelta(hours=25)
"""No zone repeats more than a day, and none changes twice within one."""
_EVERY_HOUR: Final = frozenset(range(24))


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression of five fields, or six with the seconds last, in a zone.

    Raises DefinitionError where the expression cannot be read, never ticks, or the zone is not known.
    """

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise DefinitionTypeError(f"a cron expression must be text, not {self.expression!r}")
        zone_named(self.timezone)
        _parsed(self.expression)

    def next(self, after: datetime) -> datetime | None:
        """The first tick later than an instant; None where the calendar ends before."""
        try:
            ticks = self._every_real_hour(after) if self._is_wildcard else self._once_per_time(after)
            return next((at for at in ticks if at > after), None)
        except OverflowError:
            return None

    def previous(self, before: datetime) -> datetime | None:
        """The last tick earlier than an instant; None where the calendar begins after."""
        wall = local(before, self._zone)
        start = wall.replace(tzinfo=None)
        try:
            if wall.fold:  # earlier instants may show later times, up to where the clock went back
                repeated = _offset(wall.replace(fold=0)) - _offset(wall)
                last = max(self._before(before, start + repeated, until=start - repeated), default=None)
                if last is not None:
                    return last
            return next(self._before(before, start), None)
        except OverflowError:
            return None

    def at_or_after(self, at: datetime) -> datetime | None:
        return at if self.ticks_at(at) else self.next(at)

    def at_or_before(self, at: datetime) -> datetime | None:
        return at if self.ticks_at(at) else self.previous(at)

    def ticks_at(self, at: datetime) -> bool:
        previous = at - timedelta(microseconds=1)
        return self.next(previous) == at

    def is_shifted(self, tick: datetime) -> bool:
        """Whether a tick stands for a time that a clock change skipped."""
        wall = local(tick, self._zone).replace(tzinfo=None)
        return not self._is_wildcard and next(self._walls(wall - timedelta(microseconds=1)), None) != wall

    @property
    def _zone(self) -> ZoneInfo:
        return zone_named(self.timezone)

    @property
    def _is_wildcard(self) -> bool:
        return _parsed(self.expression).is_wildcard

    def _walls(self, wall: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        """Matching wall-clock times strictly after `wall`, or before it in reverse."""
        return CronSim(_parsed(self.expression).fields, wall, reverse=reverse)

    def _once_per_time(self, after: datetime) -> Iterator[datetime]:
        for wall in self._walls(local(after, self._zone).replace(tzinfo=None)):
            yield from self._instants(wall)

    def _every_real_hour(self, after: datetime) -> Iterator[datetime]:
        zone = self._zone
        wall = local(after, zone).replace(tzinfo=None)
        ahead = self._soonest(wall, after)
        if _offset(local(after + _FOLD_DISTANCE, zone)) != _offset(local(after, zone)):
            whole = after.replace(microsecond=0)  # changes fall on whole seconds
            change = transition_between(whole, whole + _FOLD_DISTANCE, zone)
            start = local(change, zone).replace(tzinfo=None)
            repeated = self._soonest(start - timedelta(microseconds=1), change - timedelta(microseconds=1))
            ahead = min((at for at in (ahead, repeated) if at is not None), default=None)
        if ahead is not None:
            yield ahead

    def _before(self, before: datetime, wall: datetime, until: datetime = datetime.min) -> Iterator[datetime]:
        """The latest instant before `before` of every matching time from `wall` back to `until`."""
        for matching in self._walls(wall, reverse=True):
            if matching < until:
                return
            earlier = [at for at in self._instants(matching) if at < before]
            if earlier:
                yield max(earlier)

    def _soonest(self, wall: datetime, after: datetime) -> datetime | None:
        """The first instant after `after` at which the clock shows the first real matching time after `wall`."""
        for matching in self._walls(wall):
            later = [at for at in self._instants(matching) if at > after]
            if later:
                return min(later)
        return None

    def _instants(self, wall: datetime) -> tuple[datetime, ...]:
        """When a matching time runs."""
        zone = self._zone
        first = real_instant(wall, zone)
        if not self._is_wildcard:
            return (first,)
        if local(first, zone).replace(tzinfo=None) != wall:
            return ()
        second = real_instant(wall, zone, last=True)
        return (first,) if second == first else (first, second)


@dataclass(frozen=True, slots=True)
class Crons:
    """Several expressions as one: it ticks when any of them does, once where several do."""

    each: tuple[Cron, ...]

    def next(self, after: datetime) -> datetime | None:
        return min((at for cron in self.each if (at := cron.next(after))), default=None)

    def previous(self, before: datetime) -> datetime | None:
        return max((at for cron in self.each if (at := cron.previous(before))), default=None)

    def ticks_at(self, at: datetime) -> bool:
        return any(cron.ticks_at(at) for cron in self.each)

    def at_or_after(self, at: datetime) -> datetime | None:
        return min((found for cron in self.each if (found := cron.at_or_after(at))), default=None)

    def at_or_before(self, at: datetime) -> datetime | None:
        return max((found for cron in self.each if (found := cron.at_or_before(at))), default=None)

    def between(self, earliest: datetime, latest: datetime) -> Iterator[datetime]:
        """Every tick of [earliest, latest], oldest first."""
        at = self.at_or_after(earliest)
        while at is not None and at <= latest:
            yield at
            at = self.next(at)

    def is_shifted(self, tick: datetime) -> bool:
        """Whether a tick stands only for times that a clock change skipped."""
        return all(cron.is_shifted(tick) for cron in self.each if cron.ticks_at(tick))


@dataclass(frozen=True, slots=True)
class _Parsed:
    fields: str
    """As the library reads it: seconds first."""
    is_wildcard: bool


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> _Parsed:
    text = PRESETS.get(expression.strip().lower(), expression)
    fields = text.split()
    if len(fields) == 6:
        fields = [fields[5], *fields[:5]]
    try:
        if len(fields) not in (5, 6):
            raise CronSimError(f"it has {len(fields)} fields")
        simulated = CronSim(" ".join(fields), _ANY_MOMENT)
    except (CronSimError, ValueError, IndexError) as error:
        if len(fields) in (5, 6) and all(
            _is_readable(" ".join(others))
            for others in ([*fields[:-2], "*", fields[-1]], [*fields[:-3], "1", *fields[-2:]])
        ):  # the day goes with other months, and the month with other days
            raise _never_ticks(expression) from error
        raise DefinitionError(
            f"cron {expression!r} cannot be read ({error}): use 'minute hour day month weekday' such as"
            f" '30 2 * * *', or one of {', '.join(PRESETS)}"
        ) from error
    if next(simulated, None) is None:
        raise _never_ticks(expression)
    return _Parsed(" ".join(fields), frozenset(CronSim(" ".join(fields), _ANY_MOMENT).hours) == _EVERY_HOUR)


def _never_ticks(expression: str) -> DefinitionError:
    return DefinitionError(
        f"cron {expression!r} never ticks, since no month has that day: correct its day or its month"
    )


def _is_readable(fields: str) -> bool:
    try:
        CronSim(fields, _ANY_MOMENT)
    except (CronSimError, ValueError, IndexError):
        return False
    return True


def _offset(wall: datetime) -> timedelta:
    offset = wall.utcoffset()
    assert offset is not None
    return offset
