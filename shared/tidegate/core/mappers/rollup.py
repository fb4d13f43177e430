"""The mapper that waits: many upstream members make one downstream key."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.mappers.base import PartitionMapper, Placement
from tidegate.core.mappers.temporal import MAPPER_OF_PERIOD, TemporalMapper
from tidegate.core.periods import HOUR
from tidegate.core.plain import expect
from tidegate.core.policies.base import WaitPolicy
from tidegate.core.policies.wait_for_all import WaitForAll
from tidegate.core.windows.base import PeriodWindow, Window
from tidegate.core.zones import instant, local


@lru_cache(maxsize=16_384)
def _members(window: PeriodWindow, anchor: datetime, zone: ZoneInfo, *, merge: bool) -> Sequence[datetime]:
    members = window.members(anchor, zone)
    return tuple(at for at in members if _first_of_its_name(at, zone) == at) if merge else members


def _first_of_its_name(at: datetime, zone: ZoneInfo) -> datetime:
    """The first instant with the wall clock of `at`: where clocks go back, a repeated hour is the one before it."""
    return instant(local(at, zone).replace(tzinfo=None), zone)


@dataclass(frozen=True)
class RollupMapper(PartitionMapper):
    """Collects the members of `window` under one downstream key until `wait_policy` is met.

    Both spellings work: `upstream_mapper` at the window's period (StartOfDayMapper + DayWindow) or at the members'
    granularity (StartOfHourMapper + DayWindow). A finer key counts for the member that contains it. Raises
    DefinitionError for any other granularity (rule F01, F04) and DefinitionTypeError for a mapper that does
    not read keys as times. Where `input_format` holds no offset (`%z`), keys cannot tell the two occurrences of a
    repeated hour apart: they are one member (F03).
    """

    upstream_mapper: PartitionMapper
    window: Window
    wait_policy: WaitPolicy = field(default_factory=WaitForAll)

    is_rollup = True

    def __post_init__(self) -> None:
        expect(self.upstream_mapper, PartitionMapper, "RollupMapper.upstream_mapper")
        expect(self.window, Window, "RollupMapper.window")
        expect(self.wait_policy, WaitPolicy, "RollupMapper.wait_policy")
        mapper, window = self.upstream_mapper, self.window
        if not isinstance(mapper, TemporalMapper) or not isinstance(window, PeriodWindow):
            raise DefinitionTypeError(
                f"RollupMapper cannot combine {mapper.type_name} with {window.type_name}: a calendar window needs a"
                " mapper that reads keys as times, such as StartOfDayMapper with DayWindow"
            )
        if mapper.period not in (window.period, window.member_period):
            raise DefinitionError(
                f"RollupMapper cannot combine {mapper.type_name} with {window.type_name}: use"
                f" {MAPPER_OF_PERIOD[window.period.name].__name__} or"
                f" {MAPPER_OF_PERIOD[window.member_period.name].__name__}"
            )

    @property
    def period_mapper(self) -> TemporalMapper:
        """Names downstream keys: the mapper of the window's period (rule D22)."""
        return self._mapper_at(self._window.period.name)

    @property
    def member_mapper(self) -> TemporalMapper:
        """Names members."""
        return self._mapper_at(self._window.member_period.name)

    def to_downstream(self, key: str) -> str:
        return self.placements(key)[0].key

    def placements(self, key: str) -> tuple[Placement, ...]:
        at = self._mapper.decode(key)
        try:
            return self._placements(at)
        except OverflowError as error:
            raise self._mapper.out_of_range(key) from error

    def _placements(self, at: datetime) -> tuple[Placement, ...]:
        zone = self._mapper.zone
        member = self._window.member_period.floor(at, zone)
        if self.merges_repeated_hours:
            member = _first_of_its_name(member, zone)
        placed = []
        for anchor in self._window.anchors(member, zone):
            members = self._members_of(anchor)
            size = len(members)
            placed.append(
                Placement(
                    self.period_mapper.encode(anchor),
                    bisect_right(members, member) - 1,
                    size,
                    self.wait_policy.needed(size),
                )
            )
        return tuple(placed)

    def to_upstream(self, downstream_key: str) -> tuple[str, ...]:
        """The key of every member of a downstream key, in order; raises InvalidPartitionKeyError.

        Keys are as producers write them, in the mapper's `input_format`; where that cannot tell members apart, they
        have the form of the member's own mapper.
        """
        anchor = self.period_mapper.to_partition_date(downstream_key)
        try:
            members = self._members_of(anchor)
        except OverflowError as error:
            raise self.period_mapper.out_of_range(downstream_key) from error
        keys = tuple(self._mapper.encode_upstream(at) for at in members)
        if len(set(keys)) < len(keys):
            keys = tuple(self.member_mapper.encode(at) for at in members)
        return keys

    def to_partition_date(self, downstream_key: str) -> datetime:
        """The first instant of the window's own period."""
        return self.period_mapper.to_partition_date(downstream_key)

    @property
    def merges_repeated_hours(self) -> bool:
        """Whether members are hours whose keys carry no offset from UTC."""
        return self._window.member_period is HOUR and "%z" not in self._mapper.input_format

    def _members_of(self, anchor: datetime) -> Sequence[datetime]:
        return _members(self._window, anchor, self._mapper.zone, merge=self.merges_repeated_hours)

    @property
    def _mapper(self) -> TemporalMapper:
        assert isinstance(self.upstream_mapper, TemporalMapper)
        return self.upstream_mapper

    @property
    def _window(self) -> PeriodWindow:
        assert isinstance(self.window, PeriodWindow)
        return self.window

    def _mapper_at(self, period: str) -> TemporalMapper:
        if self._mapper.period.name == period:
            return self._mapper
        kind = MAPPER_OF_PERIOD[period]
        offset = "%z" if kind.period is HOUR and not self.merges_repeated_hours else ""
        return kind(
            timezone=self._mapper.timezone,
            input_format=self._mapper.input_format,
            output_format=kind.default_output_format + offset,
        )
