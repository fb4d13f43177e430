"""The mapper that waits: many upstream members make one downstream key."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.mappers.base import MAX_DOWNSTREAM_KEYS, PartitionMapper, Placement, expect_part
from tidegate.core.mappers.decoding import expect_decodable
from tidegate.core.mappers.membership import CalendarMembership, CustomMembership, Membership, TextMembership
from tidegate.core.mappers.temporal import MAPPER_OF_PERIOD, TemporalMapper
from tidegate.core.plain import expect
from tidegate.core.policies.base import WaitPolicy
from tidegate.core.policies.minimum_count import MinimumCount
from tidegate.core.policies.wait_for_all import WaitForAll
from tidegate.core.windows.base import CalendarWindow, Window, members_of
from tidegate.core.windows.rolling import RollingWindow
from tidegate.core.windows.segment import SegmentWindow


@dataclass(frozen=True)
class RollupMapper(PartitionMapper):
    """Collects the members of `window` under one downstream key until `wait_policy` is met.

    With a calendar window both spellings work: `upstream_mapper` at the window's period (StartOfDayMapper + DayWindow)
    or at the members' granularity (StartOfHourMapper + DayWindow). A finer key counts for the member that contains it.
    Where `input_format` holds no offset (`%z`), keys cannot tell the two occurrences of a repeated hour apart: they are
    one member (F03). Raises DefinitionError for any other granularity (rules F01, F04) and for a rollup that can
    never be satisfied (D19), DefinitionTypeError for a mapper that does not read what the window works with.
    """

    upstream_mapper: PartitionMapper
    window: Window
    wait_policy: WaitPolicy = field(default_factory=WaitForAll)

    is_rollup = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_part(self.upstream_mapper, "RollupMapper.upstream_mapper")
        expect(self.window, Window, "RollupMapper.window")
        expect(self.wait_policy, WaitPolicy, "RollupMapper.wait_policy")
        expect_decodable(self)
        mapper, window = self.upstream_mapper, self.window
        if isinstance(window, CalendarWindow) and isinstance(mapper, TemporalMapper):
            if mapper.period not in (window.period, window.member_period):
                raise DefinitionError(
                    f"RollupMapper cannot combine {type(mapper).__name__} with {type(window).__name__}: use"
                    f" {_mapper_names(window)}"
                )
        elif isinstance(mapper, TemporalMapper) and not window.gives_anchors:
            self._expect_members_map_back(mapper)
        allowed = min(self.max_downstream_keys or MAX_DOWNSTREAM_KEYS, MAX_DOWNSTREAM_KEYS)
        if isinstance(window, RollingWindow) and window.size > allowed:
            raise DefinitionError(
                f"RollupMapper can never fire: every event counts for {window.size} windows of {window}, and"
                f" max_downstream_keys {self.max_downstream_keys} allows {allowed}; use a smaller size"
            )
        self._expect_satisfiable()

    @cached_property
    def _membership(self) -> Membership:
        mapper, window = self.upstream_mapper, self.window
        if isinstance(mapper, TemporalMapper):
            if isinstance(window, CalendarWindow):
                return CalendarMembership(mapper, window)
            return CustomMembership(mapper, window)
        return TextMembership(mapper, window)

    def to_downstream(self, key: str) -> str | tuple[str, ...]:
        """The downstream key, in the form of the window's own period (rule D22); several where windows overlap."""
        keys = self._membership.downstream_keys(key)
        return keys[0] if len(keys) == 1 else keys

    def placements(self, key: str) -> tuple[Placement, ...]:
        """Every downstream key that `key` counts for, with its place among the members there.

        Raises NotAMemberError for a key that no downstream key waits for.
        """
        found = self._membership.places(key)
        if len(found) == 1:  # mostly, and then there is no limit to look at
            ((downstream, member, size),) = found
            return (Placement(downstream, member, size, self._needed(size)),)
        self.capped(tuple(place.key for place in found))
        return tuple(Placement(*place, self._needed(place.size)) for place in found)

    def _needed(self, size: int) -> int:
        """What the wait policy asks for, at least 1, also where a policy of the user's says less."""
        if (known := self._thresholds.get(size)) is None:
            known = self._thresholds[size] = self._ask_needed(size)
        return known

    @cached_property
    def _thresholds(self) -> dict[int, int]:
        """What the wait policy asked for before, by the size of the window."""
        return {}

    def _ask_needed(self, size: int) -> int:
        needed = self.wait_policy.needed(size)
        if isinstance(needed, bool) or not isinstance(needed, int):
            raise DefinitionTypeError(
                f"{type(self.wait_policy).__name__}.needed({size}) must be a whole number, not {needed!r:.200}"
            )
        return max(1, needed)

    def to_upstream(self, downstream_key: str) -> tuple[str, ...]:
        """The key of every member of a downstream key, in order; raises InvalidPartitionKeyError.

        Keys are as producers write them, in the mapper's `input_format`; where that cannot tell members apart, they
        have the form of the member's own mapper.
        """
        return self._membership.members(downstream_key)

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        """The first instant of the window's own period."""
        return self._membership.namer.to_partition_date(downstream_key)

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        """What the upstream mapper carries: a date where the key stays as it is (rule F15)."""
        return self.upstream_mapper.carry_partition_date(source_partition_date)

    @property
    def period_mapper(self) -> PartitionMapper:
        """Names downstream keys: the mapper of the window's period (rule D22)."""
        return self._membership.namer

    @property
    def merges_repeated_hours(self) -> bool:
        """Whether members are parts of a day whose keys carry no offset from UTC."""
        return isinstance(self._membership, CalendarMembership) and self._membership.merges_repeated_hours

    @property
    def children(self) -> tuple[PartitionMapper, ...]:
        return (self.upstream_mapper,)

    def warnings(self) -> tuple[str, ...]:
        found = list(super().warnings())
        mapper = self.upstream_mapper
        if isinstance(mapper, TemporalMapper) and self.merges_repeated_hours and _changes_clocks(mapper):
            found.append(
                f"keys in the form {mapper.input_format!r} cannot tell the two occurrences of a repeated hour in"
                f" {mapper.timezone} apart, so that they count as one: add %z to input_format"
            )
        if self.window.sizes is not None:
            least, policy = self.window.sizes[0], self.wait_policy
            if policy.is_unreachable(least):
                found.append(
                    f"{policy} can never be met by a {type(self.window).__name__} of {least} members: such a window is"
                    " reported when it opens"
                )
            if isinstance(policy, MinimumCount) and policy.n < 0 and least + policy.n < 1:
                found.append(
                    f"{policy} would let a {type(self.window).__name__} of {least} members fire with none: it waits for"
                    " one member"
                )
        return tuple(found)

    def _expect_satisfiable(self) -> None:
        policy, window = self.wait_policy, self.window
        if window.sizes is not None and policy.is_unreachable(most := window.sizes[1]):
            raise DefinitionError(
                f"RollupMapper.wait_policy {policy} can never be met: a {type(window).__name__} has at most {most}"
                " members"
            )
        if not isinstance(window, SegmentWindow):
            return
        together: Counter[str] = Counter()
        for segment in window.segments:
            try:
                keys = self.upstream_mapper.to_downstream(segment)
            except InvalidPartitionKeyError:
                continue  # an event with this key will never get here
            together.update((keys,) if isinstance(keys, str) else set(keys))
        most = max(together.values(), default=0)
        if most < policy.needed(len(window.segments)):
            raise DefinitionError(
                f"RollupMapper can never fire: {type(self.upstream_mapper).__name__} brings at most {most} of the"
                f" {len(window.segments)} segments to one downstream key; use FixedKeyMapper('all') to bring"
                " them together"
            )

    def _expect_members_map_back(self, mapper: TemporalMapper) -> None:
        """Hold a custom window against its mapper on some anchors (rule D28); raises DefinitionError."""
        anchor = mapper.to_partition_date("2027-12-01T00:00:00Z")
        for _ in range(8):
            downstream = mapper.encode(anchor)
            for member in members_of(self.window, mapper.decode_downstream(downstream)):
                key = mapper.encode_upstream(member)
                if (other := mapper.to_downstream(key)) != downstream:
                    raise DefinitionError(
                        f"{type(self.window).__name__} names {key!r} as a member of {downstream!r}, but"
                        f" {type(mapper).__name__} maps it to {other!r}: define anchors(member) in"
                        f" {type(self.window).__name__}"
                    )
            anchor = mapper.period.next(anchor, mapper.zone)


def _mapper_names(window: CalendarWindow) -> str:
    periods = dict.fromkeys((window.period, window.member_period))
    return " or ".join(MAPPER_OF_PERIOD[one.name].__name__ for one in periods if one.name in MAPPER_OF_PERIOD)


def _changes_clocks(mapper: TemporalMapper) -> bool:
    """Whether the zone has had two offsets from UTC of late."""
    months = (
        datetime.fromisoformat(f"{year}-{month:02}-01T00:00:00Z")
        for year in range(2020, 2028)
        for month in range(1, 13)
    )
    return len({at.astimezone(mapper.zone).utcoffset() for at in months}) > 1
