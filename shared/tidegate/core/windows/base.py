"""What a window is: the relation between an anchor and its members (docs/rules.md, Meaning)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

from tidegate.core.errors import DefinitionError
from tidegate.core.periods import Period
from tidegate.core.plain import Plain, expect
from tidegate.core.state import compare_by_state
from tidegate.core.zones import zone_named

UTC_ZONE: Final = zone_named("UTC")
MAX_MEMBERS: Final = 100_000
"""Of one anchor; no command could name more."""


class WindowDirection(StrEnum):
    """On which side of its anchor a window lies."""

    FORWARD = "forward"
    """From the anchor on, up to the next one."""
    BACKWARD = "backward"
    """From after the anchor before, up to the anchor itself."""


@dataclass(frozen=True)
class Window(Plain, ABC, is_base=True):
    """The members that make up one downstream key.

    A window of your own needs `to_upstream`, and `expected_decoded_type = datetime` where its anchors are times. Give
    it `anchors` too where a member counts for another anchor than the one that the mapper finds for it (rule D28), and
    `member_granularity` where keys finer than a member must count for the member that contains them.
    """

    Direction: ClassVar[type[WindowDirection]] = WindowDirection
    expected_decoded_type: ClassVar[type] = str
    """What `to_upstream` takes and gives."""
    member_granularity: ClassVar[Period | None] = None
    """The period that a member of a custom window stands for; None where members are single times or texts."""

    direction: WindowDirection = field(default=WindowDirection.FORWARD, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        compare_by_state(cls)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "direction", WindowDirection(self.direction))
        except ValueError as error:
            raise DefinitionError(
                f"{type(self).__name__}.direction {self.direction!r} is neither 'forward' nor 'backward': use"
                " Window.Direction.FORWARD or Window.Direction.BACKWARD"
            ) from error

    @abstractmethod
    def to_upstream(self, decoded_downstream: Any) -> Iterable[Any]:
        """Every member of an anchor, both in the form that the mapper decodes keys to: a wall-clock time, or text."""

    def anchors(self, member: Any) -> Iterable[Any]:
        """Every anchor that `member` counts for; only asked where a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not say which anchors a member counts for")

    @property
    def gives_anchors(self) -> bool:
        return type(self).anchors is not Window.anchors

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The smallest and the largest number of members that an anchor ever has, None where that is not known."""
        return None


class CalendarWindow(Window, is_base=True):
    """A window over the calendar of a zone, in both directions: m in members(a) <=> a in anchors(m).

    Anchors and members are the UTC instants at which real periods start in `zone` (rule D20). `to_upstream` is
    the same in wall-clock steps from any time, as in Airflow, for callers without a zone.
    """

    expected_decoded_type = datetime

    @property
    @abstractmethod
    def period(self) -> Period:
        """What anchors start."""

    @property
    @abstractmethod
    def member_period(self) -> Period:
        """What members start."""

    @abstractmethod
    def members(self, anchor: datetime, zone: ZoneInfo = UTC_ZONE) -> Sequence[datetime]:
        """Every member of `anchor`, oldest first."""

    @abstractmethod
    def anchors(self, member: datetime, zone: ZoneInfo = UTC_ZONE) -> Sequence[datetime]:
        """Every anchor that `member` counts for, oldest first."""


class PeriodWindow(CalendarWindow, is_base=True):
    """One calendar period, made of the finer periods that start in it.

    Forward the members are those in [anchor, next anchor); backward those in (anchor before, anchor].
    """

    period: Period
    member_period: Period

    def members(self, anchor: datetime, zone: ZoneInfo = UTC_ZONE) -> Sequence[datetime]:
        if self.direction is WindowDirection.FORWARD:
            return tuple(self.member_period.between(anchor, self.period.next(anchor, zone), zone))
        first = self.member_period.ceil_after(self.period.previous(anchor, zone), zone)
        return (*self.member_period.between(first, anchor, zone), *self._at(anchor, zone))

    def anchors(self, member: datetime, zone: ZoneInfo = UTC_ZONE) -> Sequence[datetime]:
        if self.direction is WindowDirection.FORWARD:
            return (self.period.floor(member, zone),)
        return (self.period.ceil(member, zone),)

    def _at(self, anchor: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
        """The member that starts with the anchor, if one does."""
        return (anchor,) if self.member_period.floor(anchor, zone) == anchor else ()


def members_of(window: Window, anchor: Any) -> tuple[Any, ...]:
    """What `to_upstream` gives; raises DefinitionError where a window of a user's own gives more than MAX_MEMBERS."""
    return _ended(window, window.to_upstream(anchor), "to_upstream", anchor)


def anchors_of(window: Window, member: Any) -> tuple[Any, ...]:
    """What `anchors` gives; raises DefinitionError where that is more than MAX_MEMBERS."""
    return _ended(window, window.anchors(member), "anchors", member)


def _ended(window: Window, given: Iterable[Any], method: str, of: Any) -> tuple[Any, ...]:
    found = tuple(islice(given, MAX_MEMBERS + 1))
    if len(found) > MAX_MEMBERS:
        raise DefinitionError(
            f"{type(window).__name__}.{method}({of!r:.200}) gives more than {MAX_MEMBERS:,} values, or never ends: let"
            " it give each once, and stop"
        )
    return found


def steps(
    anchor: datetime, count: int, step: Callable[[datetime, int], datetime], direction: WindowDirection
) -> tuple[datetime, ...]:
    """`count` wall-clock times, one `step` apart, from `anchor` on or up to it."""
    numbers = range(count) if direction is WindowDirection.FORWARD else range(1 - count, 1)
    return tuple(step(anchor, number) for number in numbers)


def expect_time(value: object, window: Window) -> datetime:
    """`value` if it is a time; raises DefinitionTypeError."""
    return expect(value, datetime, f"anchor of {type(window).__name__}")


def expect_first_of_month(value: object, window: Window) -> datetime:
    """`value` if it is a time on the first of a month; raises DefinitionError."""
    at = expect_time(value, window)
    if at.day != 1:
        raise DefinitionError(
            f"anchor {at} of {type(window).__name__} is not the first day of a month: use day 1"
        )
    return at


def add_months(at: datetime, months: int) -> datetime:
    """The same time on the same day, `months` later; raises ValueError where that month lacks the day or the year."""
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    return at.replace(year=year, month=month + 1)
