"""One job in a simulation: its rounds, and what they give."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Leaf
from tidegate.core.dates import ContributedDate, ResolvedDate, resolve_partition_date
from tidegate.core.instants import from_us, to_us
from tidegate.core.plain import plain
from tidegate.core.rounds import Arrival, Firing, Round, Rules, fold
from tidegate.core.timetables import DagRunInfo
from tidegate.definitions.job import Job
from tidegate.definitions.progress import WindowCount, window_count
from tidegate.definitions.routes import UNPARTITIONED, JobRoutes, Target, label
from tidegate.simulate.event import AssetEvent, Audit, PendingRound, Run


@dataclass(slots=True)
class _Key:
    """What the simulation keeps of one downstream key."""

    round: Round = field(default_factory=Round)
    dates: dict[tuple[str, str], tuple[ContributedDate, ...]] = field(default_factory=dict)
    """What every event says of the date."""
    opened: int = 0


class SimulatedJob:
    """The mapper, the rollup and the dispatcher's hold, for one job."""

    def __init__(self, job: Job, audit: Callable[[Audit], None]) -> None:
        self.routes = JobRoutes(job)
        self.paused = False
        self.held: list[Run] = []
        """Runs that wait for the job to be resumed, in order (rule D3)."""
        self._audit = audit
        self._keys: dict[str, _Key] = {}
        self._events: dict[tuple[str, str], AssetEvent] = {}
        self._opened = count(1)

    @property
    def job(self) -> Job:
        return self.routes.job

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The distinct assets of the condition; an asset's place is its index in rounds."""
        return tuple(route.leaf for route in self.routes.routes)

    @property
    def rules(self) -> Rules:
        routes = self.routes
        return Rules(routes.clauses, frozenset(routes.rollups), rerun_policy=routes.rerun_policy)

    def take(self, event: AssetEvent, *, multi_team: bool = False) -> list[Run]:
        """The runs that an event leads to at once; those of a paused job are held."""
        runs: list[Run] = []
        ways: dict[str, int] = {}
        for route in self.routes.routes:
            if not (route.leaf.same_asset(event.asset) or route.leaf in event.aliases):
                continue
            if multi_team and (note := route.refusal(event.team, event.asset.access_control)):
                self._note(note.kind, note.reason, event, details=note.details)
                continue
            taken = route.take(event.key, None if event.date is None else to_us(event.date))
            for note in taken.notes:
                self._note(note.kind, note.reason, event, details=note.details)
            for target in taken.targets:
                is_further = ways.setdefault(target.placement.key, route.index) < route.index
                runs += self._count(route.index, target, taken.carried, event, is_further_way=is_further)
        return self._released(runs)

    def start(self, info: DagRunInfo) -> Run:
        """The run of a tick."""
        return Run(self.job.id, info.partition_key, info.partition_date, "schedule", info=info)

    def pause(self, paused: bool) -> list[Run]:
        """Pause or resume; resuming lets the held runs go."""
        self.paused = paused
        held, self.held = ([], self.held) if paused else (self.held, [])
        return held

    def redefine(self, job: Job, *, multi_team: bool = False) -> list[Run]:
        """Go on under another definition; events of open rounds are mapped again (rule D6).

        Returns the runs that this completes.
        """
        if plain(job.schedule) == plain(self.job.schedule):
            self.routes = JobRoutes(job)
            return []
        waiting = self._waiting_events()
        before = {name: key for name, key in self._keys.items() if key.round.fired is not None}
        self._keys = {
            name: _Key(Round(fired=key.round.fired, seen=key.round.seen), key.dates)
            for name, key in before.items()
        }
        self.routes = JobRoutes(job)
        runs: list[Run] = []
        for event in waiting:
            contributed = len(self._waiting_events())
            done = self.take(event, multi_team=multi_team)
            if not done and len(self._waiting_events()) == contributed:
                self._note(AuditKind.ROUND_CLOSED, "no round of the new definition takes this event", event)
            runs += done
        return runs

    def pending(self) -> list[PendingRound]:
        """Every open round, oldest first."""
        found = []
        for name, key in sorted(self._keys.items(), key=lambda each: each[1].opened):
            if not key.round.members:
                continue
            arrived: dict[str, list[AssetEvent]] = {}
            for (asset, _), events in sorted(key.round.members.items()):
                there = arrived.setdefault(self.routes.labels[asset], [])
                there.extend(self._events[each.identity] for each in events)
            found.append(
                PendingRound(
                    self.job.id,
                    name or None,
                    {leaf: tuple(events) for leaf, events in arrived.items()},
                    self._windows(name, key.round.members, key.round.windows),
                    self._carried(key).at,
                )
            )
        return found

    # ---- the way of one event ----

    def _count(
        self, index: int, target: Target, carried: int | None, event: AssetEvent, *, is_further_way: bool
    ) -> Iterator[Run]:
        place = target.placement
        key = self._keys.setdefault(place.key, _Key())
        arrival = Arrival(
            event.as_member,
            index,
            place.member,
            place.size,
            place.needed,
            event.at,
            dated=target.decoded is not None,
            is_further_way=is_further_way,
        )
        if not key.round.members:
            key.opened = next(self._opened)
        self._events[event.as_member.identity] = event
        key.dates[event.as_member.identity] = _dates(target, carried)
        step = fold(key.round, arrival, self.rules)
        for note in step.audit:
            self._note(note.kind, note.message, event, place.key, replaced=note.older_id)
        windows = {**key.round.windows, arrival.asset: (arrival.size, arrival.needed)}
        key.round = step.round
        if step.firing is not None:
            yield self._fire(place.key, key, step.firing, windows, event)
            kept = step.round.fired.events.values() if step.round.fired else ()
            again = {each.identity for events in kept for each in events}
            key.dates = {identity: dates for identity, dates in key.dates.items() if identity in again}

    def _fire(
        self, name: str, key: _Key, firing: Firing, windows: Mapping[int, tuple[int, int]], last: AssetEvent
    ) -> Run:
        members = [each for _, events in sorted(firing.members.items()) for each in events]
        contributed = [date for each in members for date in key.dates.get(each.identity, ())]
        resolved = resolve_partition_date(contributed)
        if resolved.conflict:
            self._note(AuditKind.PARTITION_DATE_CONFLICT, resolved.message, last, name)
        return Run(
            self.job.id,
            None if name == UNPARTITIONED else name,
            resolved.at,
            "assets",
            firing.generation,
            tuple(self._events[each.identity] for each in members),
            windows=tuple(each for each in self._windows(name, firing.members, windows) if each.arrived),
            completed_by=last,
        )

    def _windows(
        self, name: str, members: Collection[tuple[int, int]], windows: Mapping[int, tuple[int, int]]
    ) -> tuple[WindowCount, ...]:
        """How full every asset's part of a round is."""
        return tuple(
            window_count(
                label(route.leaf),
                route,
                name,
                {member for asset, member in members if asset == route.index},
                windows.get(route.index),
            )
            for route in self.routes.routes
        )

    def _released(self, runs: list[Run]) -> list[Run]:
        if self.paused:
            self.held += runs
            return []
        return runs

    # ---- looking ----

    def _waiting_events(self) -> list[AssetEvent]:
        """The events of open rounds, oldest first, each once."""
        found = {
            each.identity
            for key in self._keys.values()
            for events in key.round.members.values()
            for each in events
        }
        return [event for identity, event in self._events.items() if identity in found]

    def _carried(self, key: _Key) -> ResolvedDate:
        members = [each for events in key.round.members.values() for each in events]
        dates = [date for each in members for date in key.dates.get(each.identity, ()) if not date.decoded]
        return resolve_partition_date(dates)

    def _note(
        self,
        kind: AuditKind,
        message: str,
        event: AssetEvent,
        key: str | None = None,
        replaced: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        partition_key = (event.key if key is None else key) or None
        self._audit(
            Audit(
                kind,
                message,
                job=self.job.id,
                asset=event.asset.name,
                partition_key=partition_key,
                event_id=event.id,
                replaced_event_id=replaced,
                event_source=event.source,
                details=dict(details or {}),
            )
        )


def _dates(target: Target, carried: int | None) -> tuple[ContributedDate, ...]:
    """What an event says of the date of a downstream key."""
    dates = [ContributedDate(None if carried is None else from_us(carried), False)]
    if target.problem:
        dates.append(ContributedDate(None, True, is_failed=True))
    elif target.decoded is not None:
        dates.append(ContributedDate(from_us(target.decoded), True))
    return tuple(dates)
