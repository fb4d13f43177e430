"""The mapper that spreads: one coarse upstream key gives every finer downstream key of its period."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidegate.core.errors import DefinitionError
from tidegate.core.mappers.base import PartitionMapper, distinct, expect_part
from tidegate.core.mappers.decoding import expect_decodable
from tidegate.core.mappers.temporal import (
    MAPPER_OF_PERIOD,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    TemporalMapper,
)
from tidegate.core.plain import expect
from tidegate.core.windows import CalendarWindow, RollingWindow, Window
from tidegate.core.windows.base import members_of
from tidegate.core.windows.day import DayWindow
from tidegate.core.windows.month import MonthWindow
from tidegate.core.windows.quarter import QuarterWindow
from tidegate.core.windows.week import WeekWindow
from tidegate.core.windows.year import YearWindow
from tidegate.core.zones import instant, local

_DOWNSTREAM: Final[dict[type[Window], type[TemporalMapper]]] = {
    DayWindow: StartOfHourMapper,
    WeekWindow: StartOfDayMapper,
    MonthWindow: StartOfDayMapper,
    QuarterWindow: StartOfMonthMapper,
    YearWindow: StartOfMonthMapper,
}


@dataclass(frozen=True)
class FanOutMapper(PartitionMapper):
    """`upstream_mapper` finds the anchor of a key, `window` its members, and `downstream_mapper` names them.

    Without `downstream_mapper` a day gives hours, a week and a month days, a quarter and a year months, in the zone of
    the upstream mapper (rule F13); for other windows it is needed, else DefinitionError. Members are real
    periods, so no key names an hour that did not exist (D20). Raises DefinitionTypeError where the upstream mapper does
    not read what the window works with (F14).
    """

    upstream_mapper: PartitionMapper
    window: Window
    downstream_mapper: PartitionMapper | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_part(self.upstream_mapper, "FanOutMapper.upstream_mapper")
        expect(self.window, Window, "FanOutMapper.window")
        expect_decodable(self)
        if self.downstream_mapper is not None:
            expect_part(self.downstream_mapper, "FanOutMapper.downstream_mapper")
        elif self._default is None:
            raise DefinitionError(
                f"FanOutMapper.downstream_mapper is missing, and {type(self.window).__name__} has no default: give the"
                " mapper that names the members"
            )

    @property
    def namer(self) -> PartitionMapper:
        """Names downstream keys."""
        mapper = self.downstream_mapper or self._default
        assert mapper is not None
        return mapper

    @property
    def _default(self) -> TemporalMapper | None:
        kind = _DOWNSTREAM.get(type(self.window))
        if isinstance(self.window, RollingWindow):
            kind = MAPPER_OF_PERIOD.get(self.window.unit)
        if kind is None:
            return None
        zone = self.upstream_mapper.timezone if isinstance(self.upstream_mapper, TemporalMapper) else "UTC"
        return kind(timezone=zone)

    def to_downstream(self, key: str) -> tuple[str, ...]:
        """The distinct keys of the members, in order."""
        mapper = self.upstream_mapper
        if isinstance(mapper, TemporalMapper):
            try:
                return tuple(dict.fromkeys(self._named(self._members(mapper, mapper.start_of(key)), mapper)))
            except OverflowError as error:
                raise mapper.out_of_range(key) from error
        anchors = mapper.to_downstream(key)
        decoded = map(mapper.decode_downstream, (anchors,) if isinstance(anchors, str) else distinct(anchors))
        members = (member for anchor in decoded for member in members_of(self.window, anchor))
        return distinct(map(self._name, members))

    def _members(self, mapper: TemporalMapper, anchor: datetime) -> Iterable[datetime]:
        """The instants of the members."""
        zone = mapper.zone
        if isinstance(self.window, CalendarWindow) and self.window.period is mapper.period:
            return self.window.members(anchor, zone)
        walls = members_of(self.window, local(anchor, zone).replace(tzinfo=None, fold=0))
        found = ((wall, instant(wall, zone)) for wall in walls)
        # A wall clock that a change skipped names no time: its instant reads otherwise.
        return (
            at for wall, at in found if wall.tzinfo or local(at, zone).replace(tzinfo=None, fold=0) == wall
        )

    def _named(self, members: Iterable[datetime], mapper: TemporalMapper) -> Iterator[str]:
        namer = self.namer
        for at in members:
            wall = local(at, mapper.zone)  # a date stays the date that it is, whatever the zone of `namer`
            yield namer.name(wall) if isinstance(namer, TemporalMapper) else self._name(wall)

    def _name(self, member: Any) -> str:
        if not isinstance(member, datetime):
            return str(member)
        text = member.replace(tzinfo=None).isoformat()
        return text + member.strftime("%z") if member.fold else text

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        return self.namer.to_partition_date(downstream_key)

    @property
    def children(self) -> tuple[PartitionMapper, ...]:
        return (self.upstream_mapper, self.namer)
