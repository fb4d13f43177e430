"""The ways of assets into jobs: where an event counts for one job, or why it does not.

The mapper service and simulations follow the same routes, so that both mean the same by a definition.
"""

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from tidegate.core.access import AssetAccessControl, refusal
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Leaf
from tidegate.core.errors import FanOutExceededError, InvalidPartitionKeyError, NotAMemberError
from tidegate.core.instants import from_us, to_ms, to_us
from tidegate.core.keys import validate_key
from tidegate.core.mappers import IdentityMapper, PartitionMapper, Placement, RollupMapper
from tidegate.core.mappers.temporal import TemporalMapper
from tidegate.core.policies import Deadline
from tidegate.core.rounds import RerunPolicy
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.definitions.job import Job

UNPARTITIONED: Final = ""
"""The one downstream key of a job without partitions; no event can have it."""

_REMEMBERED: Final = 65_536
"""Keys and targets that one route remembers; a key that fans out takes the room of all its targets. Likewise keys that
came once, and downstream keys."""

_SAID: Final = 1000
"""Characters of an error's text that an audit entry carries."""


class Target(NamedTuple):
    """A window member that a key counts for, with the date that the downstream key names."""

    placement: Placement
    decoded: int | None
    """Microseconds since 1970."""
    problem: str = ""
    """How the mapper's own code failed at a date, of the key or carried along: then the run has none (B014)."""
    ends: int | None = None
    """When the window's own period ends, milliseconds since 1970; only where a deadline counts from there (rule R4)."""


class Note(NamedTuple):
    """Something about an event and a job that belongs into the audit log."""

    kind: AuditKind
    reason: str
    details: Mapping[str, Any] = {}


class Taken(NamedTuple):
    """What one event is to one job, by one route."""

    targets: tuple[Target, ...] = ()
    carried: int | None = None
    """The producer's date as the mapper carries it along, microseconds since 1970."""
    notes: tuple[Note, ...] = ()


_WHOLE: Final = Taken((Target(Placement(UNPARTITIONED, 0, 1, 1), None),))


@dataclass(slots=True, eq=False)
class Keys:
    """What a mapper makes of keys and dates; remembered, since keys repeat, and jobs share mappers that are equal."""

    mapper: PartitionMapper
    _once: set[str] = field(default_factory=set)
    """Keys that came once. Only what comes again is remembered: mostly no key does, and what is kept for long costs the
    garbage collector as much as mapping it."""
    _known: dict[str, Taken] = field(default_factory=dict)
    _size: int = 0
    _named: dict[str, tuple[int | None, str, int | None]] = field(default_factory=dict)
    """By downstream key the rest of its `Target`, which all the keys that count for it share."""
    _without_date: tuple[int | None, str] | None = None
    """What the mapper carries of no date."""

    def take(self, key: str, date: int | None) -> Taken:
        """Where an event with this partition key and date counts; whatever the mapper raises becomes a note."""
        taken = self._known.get(key) or self._look_up(key)
        if date is None:
            carried, problem = self._without_date = self._without_date or self._carried(None)
        else:
            carried, problem = self._carried(date)
        if not taken.targets or (carried is None and not problem):
            return taken
        if problem:  # whatever the keys say: a hook that raises costs the run its date
            return _dated(tuple(target._replace(problem=problem) for target in taken.targets))
        return taken._replace(carried=carried)

    @property
    def deadline(self) -> Deadline | None:
        """How long a round waits for an asset with this mapper (rule R4)."""
        return self.mapper.wait_policy.deadline if isinstance(self.mapper, RollupMapper) else None

    @property
    def waits_from_end(self) -> bool:
        return self.deadline is not None and self.deadline.since == "window_end"

    @property
    def namer(self) -> TemporalMapper | None:
        """What names the periods that windows are, None where windows are none."""
        namer = self.mapper.period_mapper if isinstance(self.mapper, RollupMapper) else None
        return namer if isinstance(namer, TemporalMapper) else None

    def _look_up(self, key: str) -> Taken:
        """What a key gives apart from the producer's date; remembered where it counts and came before."""
        try:
            taken = _dated(tuple(map(self._target, self.mapper.placements(key))))
        except FanOutExceededError as error:
            details = {"cap": error.cap, "source": error.source, "wanted": error.wanted}
            return _refused(AuditKind.FAN_OUT_EXCEEDED, _text_of(error), details)
        except NotAMemberError as error:
            return _refused(AuditKind.NOT_A_MEMBER, _text_of(error))
        except InvalidPartitionKeyError as error:
            return _refused(AuditKind.MAPPING_FAILED, _text_of(error))
        except Exception as error:  # a mapper of the user's: whatever it raises concerns only this job
            return _refused(AuditKind.MAPPING_FAILED, _raised(self.mapper, "placements", error))
        if not taken.targets:
            reason = f"{type(self.mapper).__name__} gives no downstream key for partition key {key!r}"
            return _refused(AuditKind.MAPPING_FAILED, reason)
        if key not in self._once:
            if len(self._once) >= _REMEMBERED:
                self._once.clear()
            self._once.add(key)
            return taken
        self._size += 1 + len(taken.targets)
        if self._size > _REMEMBERED:
            self._known.clear()
            self._size = 1 + len(taken.targets)
        self._known[key] = taken
        return taken

    def _target(self, placement: Placement) -> Target:
        if (named := self._named.get(placement.key)) is None:
            if len(self._named) >= _REMEMBERED:
                self._named.clear()
            date, problem = named_date(self.mapper, validate_key(placement.key))
            named = self._named[placement.key] = (date, problem, self._ends(date))
        key, *counts = placement
        if {int} != {*map(type, counts)}:  # by a window of the user's: a bool would be written as one
            placement = Placement(key, *(int(operator.index(each)) for each in counts))
        return Target(placement, *named)

    def _ends(self, date: int | None) -> int | None:
        """The end of the window's period, milliseconds since 1970, where a deadline counts from it."""
        if not self.waits_from_end or date is None:
            return None
        namer = self.namer
        return None if namer is None else to_ms(namer.period.next(from_us(date), namer.zone))

    def _carried(self, date: int | None) -> tuple[int | None, str]:
        """The date carried along, or why the mapper's own code failed."""
        try:
            at = self.mapper.carry_partition_date(None if date is None else from_us(date))
            return None if at is None else to_us(at), ""
        except Exception as error:
            return None, _raised(self.mapper, "carry_partition_date", error)


_shared: Final = lru_cache(maxsize=4096)(Keys)


def keys_of(mapper: PartitionMapper) -> Keys:
    """The one `Keys` of all mappers that are equal, so that an event which a hundred jobs take is mapped once."""
    try:
        return _shared(mapper)
    except TypeError:  # one of a user's that cannot be hashed
        return Keys(mapper)


@dataclass(slots=True, eq=False)
class Route:
    """One asset's way into one job."""

    job: Job
    index: int
    """The asset's place in the job's condition."""
    leaf: Leaf
    mapper: PartitionMapper
    alike: Keys | None = field(init=False)
    """Of routes with the same, every one takes an event with a key as the others do; None for a job that takes none."""
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        self._keys = keys_of(self.mapper)
        is_partitioned = isinstance(self.job.schedule, PartitionedAssetTimetable)
        self.alike = self._keys if is_partitioned else None

    def take(self, key: str | None, date: int | None) -> Taken:
        """Where an event with this partition key and date (microseconds since 1970) counts.

        Raises nothing: whatever a mapper raises becomes a note. A job whose schedule maps no partitions takes events
        without a key only (B010).
        """
        if self.alike is None:
            return self._take_whole(key)
        if key is None:
            reason = f"the event has no partition_key, which job {self.job.id!r} is scheduled on"
            return _refused(AuditKind.NO_PARTITION_KEY, reason)
        return self.alike.take(key, date)

    def refusal(self, team: str | None, producer: AssetAccessControl | None) -> Note | None:
        """Why an event of `team` must not reach the job (B069), None where it may.

        `producer` is the access control of the event's asset, which also holds for the consumer's side where the
        job names the asset without one, by a reference or an alias (F22).
        """
        reason = refusal(
            consumer_team=self.job.team,
            consumer=getattr(self.leaf, "access_control", None) or producer,
            producer_teams=() if team is None else (team,),
            producer=producer,
        )
        return None if reason is None else Note(AuditKind.CROSS_TEAM, reason)

    @property
    def where(self) -> str:
        """The job and the asset, for warnings."""
        return f"job {self.job.id!r}, asset {label(self.leaf)!r}"

    @property
    def deadline(self) -> Deadline | None:
        """How long a round waits for this asset (rule R4)."""
        return self._keys.deadline

    def warnings(self) -> Iterator[str]:
        """What a person should know of the asset's mapper when the job is defined, though it works."""
        yield from (f"{self.where}: {warning}" for warning in self.mapper.warnings())
        if self._keys.waits_from_end and self._keys.namer is None:
            yield (
                f"{self.where}: the deadline counts from the end of the window, but its keys name no period: it counts"
                " from the first member"
            )

    def members(self, downstream_key: str) -> tuple[str, ...]:
        """The members of a round by name: the keys that a rollup waits for, else the asset itself.

        Nothing for a key that the mapper cannot read, which a former definition made.
        """
        if not isinstance(self.mapper, RollupMapper):
            return (label(self.leaf),)
        try:
            return self.mapper.to_upstream(downstream_key)
        except Exception:  # a window of the user's may raise anything
            return ()

    def needed(self, size: int) -> int:
        """How many members of a window of `size` let a round fire."""
        return self.mapper.wait_policy.needed(size) if isinstance(self.mapper, RollupMapper) else size

    def _take_whole(self, key: str | None) -> Taken:
        if key is not None:
            reason = (
                f"the event is about partition {key!r}, and job {self.job.id!r} takes none from its assets"
            )
            return _refused(AuditKind.PARTITIONED_EVENT, reason)
        return _WHOLE


def named_date(mapper: PartitionMapper, downstream_key: str) -> tuple[int | None, str]:
    """The date that a downstream key names, microseconds since 1970; without one, why the mapper's own code failed.

    A hook that raises costs the date, and never the event (B014).
    """
    try:
        at = mapper.to_partition_date(downstream_key)
        return None if at is None else to_us(at), ""
    except Exception as error:
        return None, _raised(mapper, "to_partition_date", error)


@dataclass(frozen=True)
class JobRoutes:
    """Every way into one job, and what its condition asks of them.

    An event that one asset brings by two ways, directly and through an alias, counts for both (B060). The properties
    raise DefinitionError for a condition with too many ways to be satisfied.
    """

    job: Job

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        """By the asset's place in the condition; none for a job that waits for no assets."""
        schedule = self.job.schedule
        return tuple(
            Route(
                self.job,
                index,
                leaf,
                schedule.mapper_for(leaf)
                if isinstance(schedule, PartitionedAssetTimetable)
                else IdentityMapper(),
            )
            for index, leaf in enumerate(self._leaves_and_clauses[0])
            if isinstance(leaf, Leaf)
        )

    @property
    def clauses(self) -> tuple[tuple[int, ...], ...]:
        """Sets of indexes of assets, each of which lets a round fire."""
        return self._leaves_and_clauses[1]

    @property
    def rollups(self) -> tuple[int, ...]:
        """Indexes of the assets that wait in a rollup."""
        return tuple(route.index for route in self.routes if route.mapper.is_rollup)

    @property
    def rerun_policy(self) -> RerunPolicy | None:
        """What the schedule says of events whose round has fired; None for the default of each key."""
        schedule = self.job.schedule
        return schedule.rerun_policy if isinstance(schedule, PartitionedAssetTimetable) else None

    @property
    def deadlines(self) -> tuple[tuple[int, str, str] | None, ...]:
        """By asset (milliseconds, then, since) of its deadline; empty where no asset has one."""
        found = tuple(route.deadline for route in self.routes)
        if not any(found):
            return ()
        return tuple(
            None if each is None else (max(1, each.after // timedelta(milliseconds=1)), each.then, each.since)
            for each in found
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The assets as the condition names them."""
        return tuple(label(route.leaf) for route in self.routes)

    @cached_property
    def _leaves_and_clauses(self) -> tuple[Collection[object], tuple[tuple[int, ...], ...]]:
        condition = self.job.schedule.asset_condition if self.job.schedule is not None else None
        return condition.clauses() if condition is not None else ((), ())


def label(leaf: Leaf) -> str:
    """The name or URI by which a condition names an asset."""
    return str(getattr(leaf, "name", None) or getattr(leaf, "uri", leaf))


def _dated(targets: tuple[Target, ...]) -> Taken:
    """Where an event counts, with a note where a date is missing that should be there."""
    if not (problems := [target.problem for target in targets if target.problem]):
        return Taken(targets)
    reason = "; ".join(dict.fromkeys(problems)) + "; the event counts without a date"
    return Taken(targets, notes=(Note(AuditKind.PARTITION_DATE_FAILED, reason),))


def _refused(kind: AuditKind, reason: str, details: Mapping[str, Any] | None = None) -> Taken:
    return Taken(notes=(Note(kind, reason, details or {}),))


def _raised(mapper: PartitionMapper, method: str, error: Exception) -> str:
    return f"{type(mapper).__name__}.{method} raised {type(error).__name__}: {_text_of(error)}"


def _text_of(error: Exception) -> str:
    """What an error says, as far as an audit entry can carry it: one of the user may say anything, or fail to."""
    try:
        text = str(error)
    except Exception:
        return "(its text cannot be had)"
    return text[:_SAID].encode("utf-8", "backslashreplace").decode()
