"""What one accepted event means to every job: pure, and the same for the same event and definitions.

The mapper maps events as they come; the rollup maps again what waits in rounds of a job that changed (rule R6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import ContributionBatch, JobRef, MemberEvent
from tidegate.core.conditions import Leaf
from tidegate.definitions import Asset, AssetAlias, AssetNameRef, AssetUriRef
from tidegate.definitions.known import names_by_uri
from tidegate.definitions.routes import JobRoutes, Note, Route, Taken, Target
from tidegate.definitions.uris import without_credentials
from tidegate.runtime.definitions_view import DefinedJob


class Way(NamedTuple):
    """A route with the job as contributions name it."""

    job: JobRef
    route: Route


@dataclass(slots=True)
class Plan:
    """Which ways an event takes, by the definitions as of one place in their log."""

    assets: Mapping[str, Asset]
    """Every asset that is known, by name."""
    multi_team: bool = False
    by_asset: dict[str, list[Way]] = field(default_factory=dict)
    by_alias: dict[str, list[Way]] = field(default_factory=dict)

    def ways(self, event: AcceptedEvent) -> Sequence[Way]:
        """Every way of an event, in the order of job ids; each once, though several names lead to it."""
        ways = self.by_asset.get(event.asset, [])
        if not event.aliases:
            return ways
        found = {id(way.route): way for way in ways}
        for alias in event.aliases:
            found |= {id(way.route): way for way in self.by_alias.get(alias, ())}
        return sorted(found.values(), key=lambda way: (way.job.id, way.route.index))


Known = dict[str, tuple[Way, ...]]
"""The ways into each job as they were made last, by its id. They remember keys, so they are worth keeping."""


def plan(
    jobs: Iterable[DefinedJob],
    assets: Mapping[str, Asset] | None = None,
    *,
    multi_team: bool = False,
    known: Known | None = None,
) -> Plan:
    """The ways that a set of definitions gives; `assets` are all that they name, by name.

    Ways of revisions that are in `known` are taken from there, and the others are put there.
    """
    found = Plan(assets or {}, multi_team)
    by_uri = names_by_uri(found.assets)
    known = {} if known is None else known
    for defined in sorted(jobs, key=lambda each: each.job.id):
        ways = known.get(defined.job.id, ())
        if not ways or ways[0].job[:3] != (defined.job.id, defined.incarnation, defined.revision):
            ways = known[defined.job.id] = _ways(defined)
        for way in ways:
            route = way.route
            if isinstance(route.leaf, AssetAlias):
                found.by_alias.setdefault(route.leaf.name, []).append(way)
            for name in _names(route.leaf, by_uri):
                found.by_asset.setdefault(name, []).append(way)
    return found


def _ways(defined: DefinedJob) -> tuple[Way, ...]:
    job = JobRoutes(defined.job)
    ref = JobRef(
        id=defined.job.id,
        incarnation=defined.incarnation,
        revision=defined.revision,
        rollups=job.rollups,
        assets=job.labels,
        clauses=job.clauses,
        rerun_policy=job.rerun_policy,
        deadlines=job.deadlines,
        routing=defined.routing,
    )
    return tuple(Way(ref, route) for route in job.routes)


def _names(leaf: Leaf, by_uri: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The names of the assets that a leaf stands for; none for an alias, which events name themselves."""
    if isinstance(leaf, Asset | AssetNameRef):
        return (leaf.name,)
    if isinstance(leaf, AssetUriRef):
        # An event with a URI that no definition has is named by the URI, as ingest does.
        return tuple(dict.fromkeys((*by_uri.get(leaf.uri, ()), without_credentials(leaf.uri))))
    return ()


class Mapped(NamedTuple):
    """One contribution before it is packed."""

    job: JobRef
    event: MemberEvent
    asset: int
    target: Target
    carried: int | None
    also: tuple[int, ...] = ()
    """The other assets of the job by which the event counts for the same key (B060)."""


def map_event(
    event: AcceptedEvent, plan: Plan, position: str, service: str = "mapper"
) -> tuple[list[Mapped], list[AuditEntry]]:
    """Every contribution of an event, in an order that depends on nothing else, and what could not be mapped."""
    mapped: list[Mapped] = []
    audit: list[AuditEntry] = []
    member = MemberEvent(
        event.partition_key,
        event.id,
        event.source,
        event.at,
        event.partition_date,
        event.extra,
        event.asset,
        event.team,
        event.aliases,
    )
    taken, alike = Taken(), None
    """What the last route took, and which routes would take the same: of a hundred jobs mostly all."""
    before, has_several = None, False
    for job, route in plan.ways(event):
        has_several = has_several or job is before
        before = job
        if plan.multi_team:
            known = plan.assets.get(event.asset)
            refused = route.refusal(event.team, known.access_control if known else None)
            if refused is not None:
                audit.append(_entry(refused, event, route, position, service))
                continue
        if alike is None or route.alike is not alike:
            taken = route.take(event.partition_key, event.partition_date)
            alike = None if event.partition_key is None else route.alike
        targets, carried, notes = taken
        for note in notes:
            audit.append(_entry(note, event, route, position, service))
        for target in targets:
            mapped.append(Mapped(job, member, route.index, target, carried))
    if has_several:
        mapped = _with_other_ways(mapped)
    return mapped, audit


def _with_other_ways(mapped: Sequence[Mapped]) -> list[Mapped]:
    """The contributions of one event, each with the other ways into its round."""
    ways: dict[tuple[str, str], list[int]] = {}
    for each in mapped:
        assets = ways.setdefault((each.job.id, each.target.placement.key), [])
        if each.asset not in assets:
            assets.append(each.asset)
    return [
        each._replace(
            also=tuple(asset for asset in ways[each.job.id, each.target.placement.key] if asset != each.asset)
        )
        for each in mapped
    ]


def batch_bytes(
    source: str,
    entries: Iterable[tuple[int, int, Mapped]],
    *,
    is_remapped: bool = False,
    is_replayed: bool = False,
) -> bytes:
    """A record of `contributions` from (offset, ordinal, contribution), with jobs and events written once.

    An entry is written as text, the last part of which recurs where many jobs take an event alike: to build a
    `Contribution` and have it serialized takes three times as long.
    """
    jobs: dict[JobRef, int] = {}
    numbers: dict[int, int] = {}
    """Of jobs by identity, since to hash a reference takes as long as all the rest."""
    events: dict[int, int] = {}
    members: list[MemberEvent] = []
    tails: dict[tuple[int, int, int | None, tuple[int, ...]], str] = {}
    """What follows the event's number, by what it is made of; targets by identity."""
    written = []
    for offset, ordinal, (job, member, asset, target, carried, also) in entries:
        if (number := numbers.get(id(job))) is None:
            number = numbers[id(job)] = jobs.setdefault(job, len(jobs))
        if (event := events.get(id(member))) is None:
            event = events[id(member)] = len(members)
            members.append(member)
        made_of = (id(target), asset, carried, also)
        if (tail := tails.get(made_of)) is None:
            tail = tails[made_of] = _tail(target, asset, carried, also)
        written.append(f"[{offset},{ordinal},{number},{event},{tail}]")
    # Built from our own values, so there is nothing to validate; readers do.
    head = ContributionBatch.model_construct(
        v=1,
        source=source,
        is_remapped=is_remapped,
        is_replayed=is_replayed,
        jobs=tuple(jobs),
        events=tuple(members),
        entries=(),
    )
    return head.to_bytes_with(written)


def _tail(target: Target, asset: int, carried: int | None, also: tuple[int, ...]) -> str:
    """A contribution's fields from `key` on, as JSON."""
    (key, place, size, needed), decoded, problem, ends = target
    date = "null" if decoded is None else decoded
    brought = "null" if carried is None else carried
    failed = "true" if problem else "false"
    end = "null" if ends is None else ends
    others = ",".join(map(str, also))
    return (
        f"{encode_basestring(key)},{asset},{place},{size},{needed},{date},{brought},{failed},{end},[{others}]"
    )


def _entry(note: Note, event: AcceptedEvent, route: Route, position: str, service: str) -> AuditEntry:
    details: dict[str, Any] | None = dict(note.details) or None
    return AuditEntry(
        id=audit_id(note.kind, position, event.source, event.id, route.job.id, route.index),
        kind=note.kind,
        service=service,
        at=event.at,
        message=note.reason,
        job=route.job.id,
        asset=event.asset,
        partition_key=event.partition_key,
        event_id=event.id,
        event_source=event.source,
        position=position,
        details=details,
    )
