"""Small faults to seed into the library, each of which the runner must notice."""

import functools
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from tidegate.core import periods, zones
from tidegate.core.mappers import (
    AllowedKeyMapper,
    ChainMapper,
    FanOutMapper,
    PartitionMapper,
    ProductMapper,
    TemporalMapper,
    base,
    forms,
    membership,
    rollup,
)
from tidegate.core.policies import MinimumCount, WaitForAll
from tidegate.core.windows import DayWindow, MonthWindow, PeriodWindow, SegmentWindow, Window
from tidegate.core.windows import base as windows
from tidegate.core.windows.base import WindowDirection


@dataclass(frozen=True)
class Fault:
    name: str
    seed: Callable[[], None]


FAULTS: Final[list[Fault]] = []


def fault(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(seed: Callable[[], None]) -> Callable[[], None]:
        FAULTS.append(Fault(name, seed))
        return seed

    return register


def everywhere(function: Any, other: Any) -> None:
    """Replace a function in every module of the library, and of the runner's answers, that imported it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tidegate" or (
            name.startswith("tests.conformance.") and "faults" not in name
        ):
            for attribute, value in list(vars(module).items()):
                if value is function:
                    setattr(module, attribute, other)


def forget() -> None:
    """Empty the library's caches, which were filled before the fault."""
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and (cached.__module__ or "").startswith(
            "tidegate"
        ):
            cached.cache_clear()


def put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@fault("every day has 24 hours")
def _() -> None:
    hours = timedelta(hours=1)
    put(DayWindow, "members", lambda self, anchor, zone=None: tuple(anchor + n * hours for n in range(24)))


@fault("the second occurrence of a repeated hour is taken")
def _() -> None:
    def instant(wall: datetime, zone: ZoneInfo) -> datetime:
        return (wall if wall.tzinfo else wall.replace(tzinfo=zone, fold=1)).astimezone(UTC)

    everywhere(zones.instant, instant)


@fault("weeks start on Sunday")
def _() -> None:
    put(periods.Week, "first_date", lambda self, day: day - timedelta(days=(day.weekday() + 1) % 7))


@fault("more than the minimum is asked for")
def _() -> None:
    put(MinimumCount, "is_satisfied", lambda self, matched, expected: matched > self._least(expected))
    put(MinimumCount, "_least", lambda self, expected: self.n if self.n > 0 else max(1, expected + self.n))


@fault("a window may fire on nothing")
def _() -> None:
    put(
        MinimumCount,
        "is_satisfied",
        lambda self, matched, expected: matched >= (self.n if self.n > 0 else max(0, expected + self.n)),
    )


@fault("a threshold of the window's size counts as out of reach")
def _() -> None:
    put(MinimumCount, "is_unreachable", lambda self, expected: self.n >= expected)


@fault("one member less than all is all")
def _() -> None:
    put(WaitForAll, "is_satisfied", lambda self, matched, expected: matched >= expected - 1)


@fault("the zone is always UTC")
def _() -> None:
    everywhere(zones.zone_named, lambda name: ZoneInfo("UTC"))


@fault("a day starts at its second midnight")
def _() -> None:
    def first_instant(day: date, zone: ZoneInfo) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=zone, fold=1).astimezone(UTC)

    everywhere(zones.first_instant, first_instant)


@fault("week numbers are not ISO's")
def _() -> None:
    render = forms.Form.render
    put(
        forms.Form,
        "render",
        lambda self, wall: render(forms.Form(self.text.replace("%V", "%W"), self._quarter), wall),
    )


@fault("the week-based year is taken for the calendar's")
def _() -> None:
    render = forms.Form.render
    put(
        forms.Form,
        "render",
        lambda self, wall: render(forms.Form(self.text.replace("%G", "%Y"), self._quarter), wall),
    )


@fault("quarters start in February")
def _() -> None:
    put(
        periods.Quarter,
        "first_date",
        lambda self, day: day.replace(month=max(1, day.month - day.month % 3), day=1),
    )


@fault("the quarter is counted from 0")
def _() -> None:
    put(forms, "check_placeholders", lambda *given, **known: None)
    render = forms.Form.render

    def wrong(self: Any, wall: datetime) -> str:
        text = render(self, wall)
        return text.replace("Q1", "Q0") if self._quarter else text

    put(forms.Form, "render", wrong)


@fault("a month window has 30 days")
def _() -> None:
    put(
        MonthWindow,
        "to_upstream",
        lambda self, anchor: windows.steps(anchor, 30, lambda at, n: at + timedelta(days=n), self.direction),
    )


@fault("February has no 29th")
def _() -> None:
    following = periods.Day.next_date

    def skip(self: Any, first: date) -> date:
        day = following(self, first)
        return following(self, day) if (day.month, day.day) == (2, 29) else day

    put(periods.Day, "next_date", skip)


@fault("backward windows look forward")
def _() -> None:
    everywhere(
        windows.steps,
        lambda anchor, count, step, direction: tuple(step(anchor, number) for number in range(count)),
    )


@fault("backward windows leave their anchor out")
def _() -> None:
    def steps(anchor: datetime, count: int, step: Any, direction: WindowDirection) -> tuple[datetime, ...]:
        numbers = range(count) if direction is WindowDirection.FORWARD else range(-count, 0)
        return tuple(step(anchor, number) for number in numbers)

    everywhere(windows.steps, steps)


@fault("a backward rollup gives an event to the anchor before it")
def _() -> None:
    put(PeriodWindow, "anchors", lambda self, member, zone=None: (self.period.floor(member, zone),))


@fault("a month window takes any day for its anchor")
def _() -> None:
    everywhere(windows.expect_first_of_month, windows.expect_time)


@fault("the last segment is left out")
def _() -> None:
    put(SegmentWindow, "to_upstream", lambda self, decoded: self.segments[:-1])


@fault("blanks around keys are ignored")
def _() -> None:
    decode = TemporalMapper.decode
    put(TemporalMapper, "decode", lambda self, key: decode(self, key.strip()))


@fault("a blank stands for T")
def _() -> None:
    decode = TemporalMapper.decode
    put(
        TemporalMapper,
        "decode",
        lambda self, key: decode(self, key.replace(" ", "T", 1) if key[10:11] == " " else key),
    )


@fault("an hour mapper reads bare dates")
def _() -> None:
    put(
        TemporalMapper,
        "_is_iso",
        lambda self, key: sys.modules[TemporalMapper.__module__]._ISO.fullmatch(key) is not None,
    )


@fault("a bare date is refused")
def _() -> None:
    is_iso = TemporalMapper._is_iso
    put(TemporalMapper, "_is_iso", lambda self, key: "T" in key and is_iso(self, key))


@fault("offsets in keys are ignored")
def _() -> None:
    instant = zones.instant
    everywhere(instant, lambda wall, zone: instant(wall.replace(tzinfo=None), zone))


@fault("24:00 is read as midnight")
def _() -> None:
    decode = TemporalMapper.decode
    put(TemporalMapper, "decode", lambda self, key: decode(self, key.replace("T24", "T00")))


@fault("digits of other scripts are read")
def _() -> None:
    decode = TemporalMapper.decode
    put(
        TemporalMapper,
        "decode",
        lambda self, key: decode(self, "".join(str(int(one)) if one.isdecimal() else one for one in key)),
    )


@fault("week numbers are not checked")
def _() -> None:
    read = forms.Form.read

    def lenient(self: Any, key: str) -> datetime | None:
        if "(W%V)" in self.text:
            return read(forms.Form(self.text.partition(" (")[0], False), key.partition(" (")[0])
        return read(self, key)

    put(forms.Form, "read", lenient)


@fault("an hour keeps its minutes")
def _() -> None:
    put(periods.Hour, "floor", lambda self, at, zone: at)


@fault("a part of an hour that a change cut off is an hour")
def _() -> None:
    def floor(self: Any, at: datetime, zone: ZoneInfo) -> datetime:
        wall = zones.local(at, zone)
        start: datetime = at - self.elapsed(wall)
        if zones.local(start, zone).utcoffset() == wall.utcoffset():
            return start
        return zones.transition_between(start, at, zone)

    put(periods.Hour, "floor", floor)


@fault("a repeated hour has one key twice")
def _() -> None:
    put(TemporalMapper, "name", lambda self, wall: self._own_forms[0].render(wall))


@fault("equal keys of a fan-out are kept")
def _() -> None:
    put(
        FanOutMapper,
        "to_downstream",
        lambda self, key: tuple(
            self._named(
                self._members(self.upstream_mapper, self.upstream_mapper.to_partition_date(key)),
                self.upstream_mapper,
            )
        ),
    )


@fault("the default mapper of a fan-out is in UTC")
def _() -> None:
    default = FanOutMapper._default.fget  # type: ignore[attr-defined]
    put(FanOutMapper, "_default", property(lambda self: (found := default(self)) and type(found)()))


@fault("a fan-out names hours that did not exist")
def _() -> None:
    def members(self: Any, mapper: Any, anchor: datetime) -> Any:
        walls = self.window.to_upstream(zones.local(anchor, mapper.zone).replace(tzinfo=None, fold=0))
        return [zones.instant(wall, mapper.zone) for wall in walls]

    put(FanOutMapper, "_members", members)


@fault("a chain drops the carried date")
def _() -> None:
    put(ChainMapper, "carry_partition_date", PartitionMapper.carry_partition_date)


@fault("a product takes the date of its last part")
def _() -> None:
    put(
        ProductMapper,
        "to_partition_date",
        lambda self, key: self.mappers[-1].to_partition_date(key.split(self.delimiter)[-1]),
    )


@fault("a product forgets parts that are too many")
def _() -> None:
    put(ProductMapper, "_split", lambda self, key: key.split(self.delimiter)[: len(self.mappers)])


@fault("part of an allowed key is allowed")
def _() -> None:
    put(
        AllowedKeyMapper,
        "to_downstream",
        lambda self, key: key if key in "|".join(self.allowed_keys) else 1 / 0,
    )


@fault("a cap of 0 is accepted")
def _() -> None:
    put(PartitionMapper, "__post_init__", lambda self: None)


@fault("rollups inside other mappers are accepted")
def _() -> None:
    everywhere(base.expect_part, lambda value, field: value)


@fault("windows and mappers of other types are accepted")
def _() -> None:
    put(rollup, "expect_decodable", lambda pairing: None)
    put(sys.modules[FanOutMapper.__module__], "expect_decodable", lambda pairing: None)


@fault("a direction may be written in capitals")
def _() -> None:
    declare = Window.__post_init__

    def lenient(self: Any) -> None:
        object.__setattr__(self, "direction", str(self.direction).lower())
        declare(self)

    put(Window, "__post_init__", lenient)


@fault("a finer key is no member")
def _() -> None:
    places = membership.CalendarMembership.places

    def strict(self: Any, key: str) -> Any:
        found = places(self, key)
        at = self._mapper.decode(key)
        if self._window.member_period.floor(at, self._mapper.zone) != at:
            raise ValueError(key)
        return found

    put(membership.CalendarMembership, "places", strict)


@fault("a rollup that can never fire is accepted")
def _() -> None:
    put(rollup.RollupMapper, "_expect_satisfiable", lambda self: None)
