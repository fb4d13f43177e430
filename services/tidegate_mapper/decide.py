"""What one accepted event means to every job: pure, and the same for the same event and definitions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.audit import AuditEntry, AuditKind, audit_id
from tidegate.contracts.contributions import Contribution, ContributionBatch, JobRef, MemberEvent
from tidegate.contracts.message import from_ms, to_ms
from tidegate.core.errors import InvalidPartitionKeyError
from tidegate.core.keys import validate_key
from tidegate.core.mappers import PartitionMapper
from tidegate.core.mappers.base import Placement
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.definitions import Asset
from tidegate.runtime.definitions_view import DefinedJob

SERVICE = "mapper"
_CACHED_KEYS = 65_536


class Target(NamedTuple):
    """A window member that a key counts for, with the date that the downstream key names."""

    placement: Placement
    decoded: int | None
    problem: str = ""
    """Why the key gave no date, where the mapper's own code failed at it."""


@dataclass(slots=True)
class Route:
    """One asset's way into one job."""

    job: JobRef
    asset: int
    mapper: PartitionMapper
    _cache: dict[str, tuple[Target, ...]] = field(default_factory=dict)

    def targets(self, key: str) -> tuple[Target, ...]:
        """Where `key` counts; remembered, since keys repeat. Raises whatever the mapper raises.

        A mapper that cannot date its own key costs the date alone.
        """
        if (known := self._cache.get(key)) is None:
            known = tuple(self._target(placement) for placement in self.mapper.placements(key))
            if len(self._cache) >= _CACHED_KEYS:
                self._cache.clear()
            self._cache[key] = known
        return known

    def carried(self, date: int | None) -> tuple[int | None, str]:
        """The producer's date as the mapper carries it along; without one, why the mapper's own code failed."""
        try:
            at = self.mapper.carry_partition_date(None if date is None else from_ms(date))
            return None if at is None else to_ms(at), ""
        except Exception as error:
            return None, _raised(self.mapper, "carry_partition_date", error)

    def _target(self, placement: Placement) -> Target:
        key = validate_key(placement.key)
        try:
            at = self.mapper.to_partition_date(key)
            return Target(placement, None if at is None else to_ms(at))
        except Exception as error:
            return Target(placement, None, _raised(self.mapper, "to_partition_date", error))


Plan = Mapping[str, tuple[Route, ...]]
"""The routes of every asset, by name."""


def plan(jobs: Iterable[DefinedJob]) -> Plan:
    """The routes that a set of definitions gives, in the order of job ids."""
    routes: dict[str, list[Route]] = {}
    for defined in sorted(jobs, key=lambda each: each.job.id):
        schedule = defined.job.schedule
        if not isinstance(schedule, PartitionedAssetTimetable):
            continue
        assets = [leaf for leaf in schedule.assets_in_order if isinstance(leaf, Asset)]
        ref = JobRef(
            id=defined.job.id,
            incarnation=defined.incarnation,
            revision=defined.revision,
            rollups=tuple(n for n, asset in enumerate(assets) if schedule.mapper_for(asset).is_rollup),
            assets=tuple(asset.name for asset in assets),
            clauses=schedule.clauses,
        )
        for index, asset in enumerate(assets):
            routes.setdefault(asset.name, []).append(Route(ref, index, schedule.mapper_for(asset)))
    return {name: tuple(found) for name, found in routes.items()}


class Mapped(NamedTuple):
    """One contribution before it is packed."""

    job: JobRef
    event: MemberEvent
    asset: int
    target: Target
    carried: int | None


def map_event(event: AcceptedEvent, routes: Plan, position: str) -> tuple[list[Mapped], list[AuditEntry]]:
    """Every contribution of an event, in an order that depends on nothing else, and what could not be mapped."""
    mapped: list[Mapped] = []
    audit: list[AuditEntry] = []
    member = MemberEvent(
        event.partition_key, event.id, event.source, event.at, event.partition_date, event.extra
    )
    for route in routes.get(event.asset, ()):
        if event.partition_key is None:
            reason = f"the event has no partition_key, which job {route.job.id!r} is scheduled on"
            audit.append(_entry(AuditKind.NO_PARTITION_KEY, event, route, position, reason))
            continue
        try:
            targets = route.targets(event.partition_key)
        except InvalidPartitionKeyError as error:
            audit.append(_entry(AuditKind.MAPPING_FAILED, event, route, position, str(error)))
            continue
        except Exception as error:  # a mapper of the user's: whatever it raises concerns only this job
            reason = _raised(route.mapper, "placements", error)
            audit.append(_entry(AuditKind.MAPPING_FAILED, event, route, position, reason))
            continue
        carried, problem = route.carried(event.partition_date)
        problems = [
            each for each in dict.fromkeys((problem, *(target.problem for target in targets))) if each
        ]
        if problems:
            reason = "; ".join(problems) + "; the event counts without that date"
            audit.append(_entry(AuditKind.MAPPING_FAILED, event, route, position, reason))
        mapped += (Mapped(route.job, member, route.asset, target, carried) for target in targets)
    return mapped, audit


def batch(source: str, entries: Iterable[tuple[int, int, Mapped]]) -> ContributionBatch:
    """A record of `contributions` from (offset, ordinal, contribution), with jobs and events written once."""
    jobs: dict[JobRef, int] = {}
    events: dict[int, int] = {}
    members: list[MemberEvent] = []
    contributions = []
    for offset, ordinal, each in entries:
        if (event := events.get(id(each.event))) is None:
            event = events[id(each.event)] = len(members)
            members.append(each.event)
        placement = each.target.placement
        contributions.append(
            Contribution(
                offset,
                ordinal,
                jobs.setdefault(each.job, len(jobs)),
                event,
                placement.key,
                each.asset,
                placement.member,
                placement.size,
                placement.needed,
                each.target.decoded,
                each.carried,
            )
        )
    # Built from our own values, so there is nothing to validate; readers do.
    return ContributionBatch.model_construct(
        v=1, source=source, jobs=tuple(jobs), events=tuple(members), entries=tuple(contributions)
    )


def _raised(mapper: PartitionMapper, method: str, error: Exception) -> str:
    return f"{type(mapper).__name__}.{method} raised {type(error).__name__}: {error}"


def _entry(kind: AuditKind, event: AcceptedEvent, route: Route, position: str, message: str) -> AuditEntry:
    return AuditEntry(
        id=audit_id(kind, position, event.source, event.id, route.job.id),
        kind=kind,
        service=SERVICE,
        at=event.at,
        message=message,
        job=route.job.id,
        asset=event.asset,
        partition_key=event.partition_key,
        event_id=event.id,
        event_source=event.source,
        position=position,
    )
