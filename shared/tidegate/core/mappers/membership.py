"""How a rollup finds the downstream keys and the members that an upstream key counts for."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from tidegate.core.errors import NotAMemberError
from tidegate.core.mappers.base import PartitionMapper
from tidegate.core.mappers.forms import plain_wall
from tidegate.core.mappers.temporal import MAPPER_OF_PERIOD, TemporalMapper
from tidegate.core.periods import DAY, PERIODS
from tidegate.core.windows.base import (
    CalendarWindow,
    PeriodWindow,
    Window,
    WindowDirection,
    anchors_of,
    members_of,
)
from tidegate.core.windows.rolling import RollingWindow
from tidegate.core.zones import instant, local, steady_offset

_REMEMBERED_ANCHORS: Final = 16_384


class Place(NamedTuple):
    """A member of one downstream key."""

    key: str
    member: int
    """Its index, from 0."""
    size: int
    """How many members the key has."""


class Membership(ABC):
    """The relation between upstream and downstream keys that a mapper and a window make together."""

    @property
    @abstractmethod
    def namer(self) -> PartitionMapper:
        """The mapper that downstream keys belong to."""

    @abstractmethod
    def downstream_keys(self, key: str) -> tuple[str, ...]:
        """The downstream keys of an upstream key, also of one that is no member."""

    @abstractmethod
    def members(self, downstream_key: str) -> tuple[str, ...]:
        """The upstream key of every member, in order."""

    @abstractmethod
    def places(self, key: str) -> tuple[Place, ...]:
        """Where an upstream key counts; raises NotAMemberError where nowhere."""


class CalendarMembership(Membership):
    """A temporal mapper with a window over the calendar: everything is an instant."""

    def __init__(self, mapper: TemporalMapper, window: CalendarWindow) -> None:
        self._mapper = mapper
        self._window = window
        self.merges_repeated_hours = window.member_period.rank < DAY.rank and "%z" not in mapper.input_format
        self._namer = self._mapper_at(window.period.name)
        self._anchors: dict[datetime, tuple[str, Sequence[datetime]]] = {}
        self._zone = mapper.zone
        self._plain_lengths = mapper.plain_lengths
        self._goes_by_period = _goes_by_period(window)
        self._by_number: dict[int, tuple[str, Sequence[datetime]]] = {}
        """Like `_anchors`, by the number of the window's period; members without their zone, which is UTC."""

    @property
    def namer(self) -> TemporalMapper:
        return self._namer

    def downstream_keys(self, key: str) -> tuple[str, ...]:
        return tuple(place.key for place in self.places(key))

    def places(self, key: str) -> tuple[Place, ...]:
        wall = plain_wall(key) if len(key) in self._plain_lengths else None
        at = wall or self._mapper.decode(key)  # an instant, or a wall-clock time of the zone
        try:
            if self._goes_by_period:
                wall = wall or local(at, self._zone).replace(tzinfo=None)
                if (offset := steady_offset(wall, self._zone)) is not None:
                    return (self._place_of(wall, offset),)
            return self._places_at(instant(at, self._zone))
        except (OverflowError, ValueError) as error:
            raise self._mapper.out_of_range(key) from error

    def _place_of(self, wall: datetime, offset: timedelta) -> Place:
        """What `_places_at` finds, in a tenth of the time, where clocks do not change nearby.

        There the window follows from the number of its period, and the member is the last one that has begun.
        """
        at, number = wall - offset, self._window.period.number(wall)
        if (known := self._by_number.get(number)) is None:
            known = self._by_number[number] = self._window_of(at)
        downstream, starts = known
        return Place(downstream, bisect_right(starts, at) - 1, len(starts))

    def _window_of(self, at: datetime) -> tuple[str, Sequence[datetime]]:
        """The one window that an instant counts for, all without their zone, which is UTC."""
        if len(self._by_number) >= _REMEMBERED_ANCHORS:
            self._by_number.clear()
        (anchor,) = self._window.anchors(self._member_at(at.replace(tzinfo=UTC)), self._zone)
        # Within a day of a steady offset no hour is repeated, so that there is nothing to look for.
        is_short = self._window.period.rank <= DAY.rank
        members = self._window.members(anchor, self._zone) if is_short else self._instants(anchor)
        return self._namer.encode(anchor), tuple(member.replace(tzinfo=None) for member in members)

    def _member_at(self, at: datetime) -> datetime:
        member = self._window.member_period.floor(at, self._zone)
        return _first_of_its_name(member, self._zone) if self.merges_repeated_hours else member

    def _places_at(self, at: datetime) -> tuple[Place, ...]:
        zone = self._zone
        member = self._member_at(at)
        anchors = self._window.anchors(member, zone)
        if isinstance(self._window, RollingWindow):
            return self._rolling_places(self._window, anchors, zone)
        found = []
        for anchor in anchors:
            key, members = self._named(anchor)
            found.append(Place(key, bisect_right(members, member) - 1, len(members)))
        return tuple(found)

    def _rolling_places(
        self, window: RollingWindow, anchors: Sequence[datetime], zone: ZoneInfo
    ) -> tuple[Place, ...]:
        """The places of the one member that windows with these anchors share, without the members of each."""
        # The first window ends with the shared member and the last begins with it; the others lie in between.
        stretch = (*window.members(anchors[0], zone), *window.members(anchors[-1], zone)[1:])
        before = [0, *accumulate(self._is_member(at, zone) for at in stretch)]
        return tuple(
            Place(
                self._namer.encode(anchor),
                before[window.size - 1] - before[n],
                before[n + window.size] - before[n],
            )
            for n, anchor in enumerate(anchors)
        )

    def members(self, downstream_key: str) -> tuple[str, ...]:
        anchor = self._namer.to_partition_date(downstream_key)
        try:
            instants = self._instants(anchor)
        except (OverflowError, ValueError) as error:
            raise self._namer.out_of_range(downstream_key) from error
        keys = tuple(self._mapper.encode_upstream(at) for at in instants)
        if len(set(keys)) < len(keys):
            member_mapper = self._mapper_at(self._window.member_period.name)
            keys = tuple(member_mapper.encode(at) for at in instants)
        return keys

    def _named(self, anchor: datetime) -> tuple[str, Sequence[datetime]]:
        """The downstream key of an anchor and its members; remembered, since many keys share them."""
        if (known := self._anchors.get(anchor)) is None:
            if len(self._anchors) >= _REMEMBERED_ANCHORS:
                self._anchors.clear()
            known = self._anchors[anchor] = (self._namer.encode(anchor), self._instants(anchor))
        return known

    def _instants(self, anchor: datetime) -> Sequence[datetime]:
        zone = self._mapper.zone
        members = self._window.members(anchor, zone)
        if not self.merges_repeated_hours:
            return members
        return tuple(at for at in members if self._is_member(at, zone))

    def _is_member(self, at: datetime, zone: ZoneInfo) -> bool:
        return not self.merges_repeated_hours or _first_of_its_name(at, zone) == at

    def _mapper_at(self, period: str) -> TemporalMapper:
        """A mapper that names the starts of a period; minutes have none of their own."""
        if self._mapper.period.name == period:
            return self._mapper
        is_part_of_day = PERIODS[period].rank < DAY.rank
        offset = "%z" if is_part_of_day and not self.merges_repeated_hours else ""
        if period not in MAPPER_OF_PERIOD:
            return replace(self._mapper, output_format="%Y-%m-%dT%H:%M" + offset)
        kind = MAPPER_OF_PERIOD[period]
        return kind(
            timezone=self._mapper.timezone,
            input_format=self._mapper.input_format,
            output_format=kind.default_output_format + offset,
        )


class _KeyedMembership(Membership):
    """Members are found among the keys, or times, that the window lists for a downstream key."""

    def __init__(self, mapper: PartitionMapper, window: Window) -> None:
        self._mapper = mapper
        self._window = window

    @property
    def namer(self) -> PartitionMapper:
        return self._mapper

    def members(self, downstream_key: str) -> tuple[str, ...]:
        decoded = members_of(self._window, self._mapper.decode_downstream(downstream_key))
        return tuple(dict.fromkeys(map(self._mapper.encode_upstream, decoded)))

    def places(self, key: str) -> tuple[Place, ...]:
        found = []
        for downstream in self.downstream_keys(key):
            index, size = self._find(key, downstream)
            if index is not None:
                found.append(Place(downstream, index, size))
        if not found:
            raise NotAMemberError(
                f"partition key {key!r} is none of the members of {type(self._window).__name__} that"
                f" {', '.join(map(repr, self.downstream_keys(key)))} waits for"
            )
        return tuple(found)

    @abstractmethod
    def _find(self, key: str, downstream_key: str) -> tuple[int | None, int]:
        """The index of an upstream key among the members of a downstream key, and their number."""


class TextMembership(_KeyedMembership):
    """A mapper that leaves keys as text, or a mapper of the user's own: members are equal keys."""

    def downstream_keys(self, key: str) -> tuple[str, ...]:
        if self._window.gives_anchors and self._window.expected_decoded_type is str:
            return tuple(dict.fromkeys(anchors_of(self._window, key)))
        keys = self._mapper.to_downstream(key)
        return (keys,) if isinstance(keys, str) else tuple(dict.fromkeys(keys))

    def _find(self, key: str, downstream_key: str) -> tuple[int | None, int]:
        members = self.members(downstream_key)
        return (members.index(key) if key in members else None), len(members)


class CustomMembership(_KeyedMembership):
    """A temporal mapper with a window of the user's own: members are equal times."""

    def __init__(self, mapper: TemporalMapper, window: Window) -> None:
        super().__init__(mapper, window)
        self._temporal = mapper

    def downstream_keys(self, key: str) -> tuple[str, ...]:
        if not self._window.gives_anchors:
            return (self._temporal.to_downstream(key),)
        zone = self._temporal.zone
        wall = local(self._member(key), zone).replace(tzinfo=None, fold=0)
        anchors: Iterable[datetime] = anchors_of(self._window, wall)
        return tuple(dict.fromkeys(self._temporal.encode(instant(anchor, zone)) for anchor in anchors))

    def _find(self, key: str, downstream_key: str) -> tuple[int | None, int]:
        decoded = members_of(self._window, self._temporal.decode_downstream(downstream_key))
        members = list(dict.fromkeys(instant(member, self._temporal.zone) for member in decoded))
        member = self._member(key)
        return (members.index(member) if member in members else None), len(members)

    def _member(self, key: str) -> datetime:
        """The instant of the member that an upstream key is, or lies in."""
        at = self._temporal.decode(key)
        granularity = self._window.member_granularity
        return granularity.floor(at, self._temporal.zone) if granularity else at


def _goes_by_period(window: CalendarWindow) -> bool:
    """Whether a member counts for the one period that it lies in, by methods of ours."""
    kind = type(window)
    return (
        isinstance(window, PeriodWindow)
        and window.direction is WindowDirection.FORWARD
        and kind.anchors is PeriodWindow.anchors
        and kind.members is PeriodWindow.members
    )


def _first_of_its_name(at: datetime, zone: ZoneInfo) -> datetime:
    """The first instant with the wall clock of `at`: where clocks go back, a repeated hour is the one before it."""
    wall = local(at, zone)
    return instant(wall.replace(tzinfo=None), zone) if wall.fold else at
