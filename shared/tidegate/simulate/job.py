"""One job in a simulation: its rounds, and what they give."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from tidegate.core.access import refusal
from tidegate.core.conditions import Condition, Leaf
from tidegate.core.dates import ContributedDate, ResolvedDate, resolve_partition_date
from tidegate.core.errors import FanOutExceededError, InvalidPartitionKeyError, NotAMemberError
from tidegate.core.keys import validate_key
from tidegate.core.mappers import IdentityMapper, PartitionMapper, Placement
from tidegate.core.plain import plain
from tidegate.core.rounds import Arrival, Firing, Outcome, Round, Rules, fold
from tidegate.core.timetables import AssetTriggeredTimetable, DagRunInfo, PartitionedAssetTimetable
from tidegate.definitions.job import Job
from tidegate.simulate.event import AssetEvent, Audit

UNPARTITIONED = ""
"""The one key of jobs without partitions; no event can have it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run command."""

    job: str
    partition_key: str | None
    partition_date: datetime | None
    cause: str
    """`assets` or `schedule`."""
    generation: int = 1
    events: tuple[AssetEvent, ...] = ()
    """The events of the round, by asset and member."""
    info: DagRunInfo | None = None
    """What the timetable said of it."""


@dataclass(frozen=True, slots=True)
class PendingRound:
    """A round that waits."""

    job: str
    partition_key: str
    arrived: Mapping[str, tuple[AssetEvent, ...]]
    """The events that it has, by asset."""
    progress: Mapping[str, tuple[int, int]]
    """Members that are in, and members of the window, by asset."""
    carried_date: datetime | None


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
        self.job = job
        self.paused = False
        self.held: list[Run] = []
        """Runs that wait for the job to be resumed, in order (rule D3)."""
        self._audit = audit
        self._keys: dict[str, _Key] = {}
        self._events: dict[tuple[str, str], AssetEvent] = {}
        self._opened = count(1)

    @property
    def is_asset_driven(self) -> bool:
        return self.condition is not None

    @property
    def condition(self) -> Condition | None:
        return self.job.schedule.asset_condition if self.job.schedule is not None else None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The distinct assets of the condition; an asset's place is its index in rounds."""
        condition = self.condition
        found = condition.clauses()[0] if condition is not None else ()
        return tuple(leaf for leaf in found if isinstance(leaf, Leaf))

    @property
    def rules(self) -> Rules:
        condition = self.condition
        assert condition is not None
        rollups = (n for n, leaf in enumerate(self.leaves) if self._mapper(leaf).is_rollup)
        return Rules(condition.clauses()[1], frozenset(rollups))

    def take(self, event: AssetEvent, *, multi_team: bool = False) -> list[Run]:
        """The runs that an event leads to at once; those of a paused job are held."""
        runs: list[Run] = []
        for index, leaf in enumerate(self.leaves):
            if leaf.same_asset(event.asset) or leaf in event.aliases:
                if multi_team and (reason := self._refusal(leaf, event)):
                    self._note("team-refused", reason, event)
                    continue
                runs += self._arrive(index, leaf, event)
        return self._released(runs)

    def start(self, info: DagRunInfo) -> list[Run]:
        """The run of a tick."""
        run = Run(self.job.id, info.partition_key, info.partition_date, "schedule", info=info)
        return self._released([run])

    def pause(self, paused: bool) -> list[Run]:
        """Pause or resume; resuming lets the held runs go."""
        self.paused = paused
        held, self.held = ([], self.held) if paused else (self.held, [])
        return held

    def redefine(self, job: Job) -> list[Run]:
        """Go on under another definition; events of open rounds are mapped again (rule D6).

        Returns the runs that this completes.
        """
        if plain(job.schedule) == plain(self.job.schedule):
            self.job = job
            return []
        waiting = self._waiting_events()
        before = {name: key for name, key in self._keys.items() if key.round.fired is not None}
        self._keys = {
            name: _Key(Round(fired=key.round.fired, seen=key.round.seen)) for name, key in before.items()
        }
        self.job = job
        runs: list[Run] = []
        for event in waiting:
            contributed = len(self._waiting_events())
            done = self.take(event)
            if not done and len(self._waiting_events()) == contributed:
                self._note("round-closed", "no round of the new definition takes this event", event)
            runs += done
        return runs

    def pending(self) -> list[PendingRound]:
        """Every open round, oldest first."""
        found = []
        for name, key in sorted(self._keys.items(), key=lambda each: each[1].opened):
            if not key.round.members:
                continue
            arrived: dict[str, list[AssetEvent]] = {}
            progress: dict[str, tuple[int, int]] = {}
            for (asset, _), events in sorted(key.round.members.items()):
                leaf = self._leaf_name(asset)
                arrived.setdefault(leaf, []).extend(self._events[each.identity] for each in events)
                inside, _ = progress.get(leaf, (0, 0))
                progress[leaf] = (inside + 1, key.round.windows[asset][0])
            found.append(
                PendingRound(
                    self.job.id,
                    name,
                    {leaf: tuple(events) for leaf, events in arrived.items()},
                    progress,
                    self._carried(key).at,
                )
            )
        return found

    # ---- the way of one event ----

    def _refusal(self, leaf: Leaf, event: AssetEvent) -> str | None:
        return refusal(
            consumer_team=self.job.team,
            consumer=getattr(leaf, "access_control", None) or event.asset.access_control,
            producer_teams=() if event.team is None else (event.team,),
            producer=event.asset.access_control,
        )

    def _mapper(self, leaf: Leaf) -> PartitionMapper:
        schedule = self.job.schedule
        return (
            schedule.mapper_for(leaf) if isinstance(schedule, PartitionedAssetTimetable) else IdentityMapper()
        )

    def _arrive(self, index: int, leaf: Leaf, event: AssetEvent) -> Iterator[Run]:
        mapper = self._mapper(leaf)
        for place in self._placements(mapper, event):
            yield from self._count(index, mapper, place, event)

    def _placements(self, mapper: PartitionMapper, event: AssetEvent) -> tuple[Placement, ...]:
        partitioned = isinstance(self.job.schedule, PartitionedAssetTimetable)
        if not partitioned:
            if event.key is not None and isinstance(self.job.schedule, AssetTriggeredTimetable):
                self._note("partitioned-event", "the event is about a partition, and the job has none", event)
                return ()
            return (Placement(UNPARTITIONED, 0, 1, 1),)
        if event.key is None:
            self._note("no-partition-key", "the event has no partition_key", event)
            return ()
        try:
            places = mapper.placements(event.key)
            for place in places:
                validate_key(place.key)
            return places
        except FanOutExceededError as error:
            self._note("fan-out-exceeded", str(error), event)
        except NotAMemberError as error:
            self._note("not-a-member", str(error), event)
        except InvalidPartitionKeyError as error:
            self._note("mapping-failed", str(error), event)
        except Exception as error:  # a mapper of the user's
            self._note(
                "mapping-failed", f"{type(mapper).__name__} raised {type(error).__name__}: {error}", event
            )
        return ()

    def _count(
        self, index: int, mapper: PartitionMapper, place: Placement, event: AssetEvent
    ) -> Iterator[Run]:
        key = self._keys.setdefault(place.key, _Key())
        dates = self._dates(mapper, place.key, event)
        arrival = Arrival(
            event.as_member,
            index,
            place.member,
            place.size,
            place.needed,
            event.at,
            dated=any(date.decoded and date.at is not None for date in dates),
        )
        if not key.round.members:
            key.opened = next(self._opened)
        self._events[event.as_member.identity] = event
        key.dates[event.as_member.identity] = dates
        step = fold(key.round, arrival, self.rules)
        if step.outcome in (Outcome.REPLACED, Outcome.DUPLICATE, Outcome.RERUN, Outcome.LATE):
            older = next(iter(step.round.replaced - key.round.replaced), (None, None))[1]
            self._note(step.outcome.value, f"in the round of {place.key!r}", event, place.key, replaced=older)
        if step.outcome is Outcome.COUNTED and place.needed > place.size:
            self._note(
                "never-complete", f"{place.size} members are fewer than its policy asks for", event, place.key
            )
        key.round = step.round
        if step.firing is not None:
            yield self._fire(place.key, key, step.firing, event)
            if step.outcome is Outcome.COUNTED:
                key.dates = {}

    def _dates(
        self, mapper: PartitionMapper, downstream: str, event: AssetEvent
    ) -> tuple[ContributedDate, ...]:
        """What an event says of the date; a hook that raises costs the date, never the event."""
        dates = []
        try:
            at = mapper.to_partition_date(downstream) if downstream != UNPARTITIONED else None
            if at is not None:
                dates.append(ContributedDate(at, True))
        except Exception as error:
            self._note(
                "date-failed", f"to_partition_date raised {type(error).__name__}: {error}", event, downstream
            )
            dates.append(ContributedDate(None, True, is_failed=True))
        try:
            dates.append(ContributedDate(mapper.carry_partition_date(event.date), False))
        except Exception as error:
            self._note(
                "date-failed",
                f"carry_partition_date raised {type(error).__name__}: {error}",
                event,
                downstream,
            )
        return tuple(dates)

    def _fire(self, name: str, key: _Key, firing: Firing, last: AssetEvent) -> Run:
        members = [each for _, events in sorted(firing.members.items()) for each in events]
        contributed = [date for each in members for date in key.dates.get(each.identity, ())]
        resolved = resolve_partition_date(contributed)
        if resolved.conflict:
            dates = ", ".join(at.isoformat() for at in resolved.conflict)
            self._note(
                "partition-date-conflict",
                f"the run has no partition date: its events give {dates}",
                last,
                name,
            )
        return Run(
            self.job.id,
            None if name == UNPARTITIONED else name,
            resolved.at,
            "assets",
            firing.generation,
            tuple(self._events[each.identity] for each in members),
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

    def _leaf_name(self, index: int) -> str:
        leaf = self.leaves[index]
        return str(getattr(leaf, "name", None) or getattr(leaf, "uri", leaf))

    def _note(
        self, kind: str, message: str, event: AssetEvent, key: str | None = None, replaced: str | None = None
    ) -> None:
        partition_key = (event.key if key is None else key) or None
        self._audit(Audit(kind, message, self.job.id, event.asset.name, partition_key, event.id, replaced))
