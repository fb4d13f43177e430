"""The rollup's script on a Redis, held against the plain fold of rounds, with every fault that the protocol names."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from tests.requested import acted, run_request
from tidegate.contracts.contributions import (
    Contribution,
    ContributionBatch,
    ContributionsRecord,
    DeadlineReached,
    DefinitionChange,
    JobRef,
    MemberEvent,
    OperatorAction,
    read_contributions_record,
)
from tidegate.contracts.placement import shard_of
from tidegate.contracts.redis_keys import round_key, round_name, shard_prefix
from tidegate.core.audit import AuditKind
from tidegate.core.rounds import (
    Arrival,
    Event,
    Fired,
    Outcome,
    RerunPolicy,
    Round,
    Rules,
    end,
    fold,
    withdraw,
)
from tidegate_rollup.again import waiting
from tidegate_rollup.inputs import Control, Entry, Input, by_shard, inputs_of
from tidegate_rollup.outbox import OutboxItem, audit_entry
from tidegate_rollup.store import Applied, Refused, RoundStore

HORIZON_MS = 1_000
START_MS = 1_700_000_000_000
SHARDS = 3
PARTITION = 0
REPLAY = "replay/day/i1/2/accepted-events/0"
SOURCES = ("accepted-events/0", "accepted-events/1", REPLAY)
T = TypeVar("T")

EACH = JobRef("each", "i1", 1, (), ("a",), ((0,),))
DAY = JobRef("day", "i1", 2, (0,), ("a",), ((0,),))
EITHER = JobRef("either", "i1", 3, (0, 2), ("a", "b", "c"), ((0, 1), (2,)))
BOTH = JobRef("both", "i1", 4, (), ("a", "b"), ((0, 1),))
SOME = JobRef("some", "i1", 5, (0,), ("a",), ((0,),))
AGAIN = JobRef("again", "i1", 6, (0,), ("a", "b"), ((0, 1), (1,)), "refire")
ANEW = JobRef("anew", "i1", 7, (0,), ("a",), ((0,),), "new_round")
NEVER = JobRef("never", "i1", 8, (0, 1), ("a", "b"), ((0, 1), (1,)))
TIMED = JobRef(
    *("timed", "i1", 9, (0, 1), ("a", "b"), ((0, 1),), "refire"),
    deadlines=((500, "fire", "first_member"), (300, "drop", "window_end")),
)
JOBS = (EACH, DAY, EITHER, BOTH, SOME, AGAIN, ANEW, NEVER, TIMED)
CHANGED = (  # pairs of jobs: another revision, another rerun policy, and deleted and created again (D7)
    (EACH, EACH._replace(assets=("a2",))),
    (DAY, DAY._replace(assets=("a2",))),
    (EACH, EACH._replace(incarnation="i2")),
    (DAY, DAY._replace(incarnation="i2")),
    (DAY, DAY._replace(rerun_policy="refire")),
    (AGAIN, AGAIN._replace(rerun_policy="ignore")),
    (AGAIN, AGAIN._replace(rerun_policy="new_round")),
    (BOTH, BOTH._replace(rerun_policy="refire")),  # which changes nothing without a rollup
)
SIZES = {  # job, asset -> size, needed
    ("each", 0): (1, 1),
    ("day", 0): (3, 3),
    ("either", 0): (2, 2),
    ("either", 1): (1, 1),
    ("either", 2): (4, 2),
    ("both", 0): (1, 1),
    ("both", 1): (1, 1),
    ("some", 0): (12, 2),
    ("again", 0): (3, 2),
    ("again", 1): (1, 1),
    ("anew", 0): (3, 2),
    ("never", 0): (2, 5),
    ("never", 1): (12, 2),
    ("timed", 0): (2, 2),
    ("timed", 1): (2, 1),
}
DAY_US = 1_268_524_800_000_001
DATES = {  # key -> what the mappers of assets 0, 1 and 2 read from it
    "2010-03-14": (DAY_US, None, DAY_US),
    "{2}x": (None, None, None),
    'a/b"c\\': (DAY_US, DAY_US + 1, DAY_US),
    "m:0:1": (-DAY_US, -DAY_US, -DAY_US),
    "ü日本 x": (None, None, None),
    "": (None, None, None),
}
KEYS = tuple(DATES)
EVENTS = (("s", "e 1"), ("s e", "1"), ("s", "e2"), ('q"', "é{}"), ("s", "e3"), ("s", "e4"), ("t", "e4"))


def plainly(job: JobRef) -> JobRef:
    """A job whatever its revision and routing."""
    return job._replace(revision=0, routing="")


def rules_of(job: JobRef) -> Rules:
    policy = None if job.rerun_policy is None else RerunPolicy(job.rerun_policy)
    return Rules(job.clauses, frozenset(job.rollups), HORIZON_MS, policy)


class Said(NamedTuple):
    """What a contribution says besides its place and event."""

    asset: str
    failed: bool
    decoded: int | None
    carried: int | None
    extra: dict[str, Any] | None


def agreed(said: Sequence[Said]) -> tuple[datetime | None, bool]:
    """The date of a run, and whether there was a conflict about it."""
    if any(each.failed for each in said):
        return None, False
    decoded = {each.decoded for each in said if each.decoded is not None}
    dates = decoded or {each.carried for each in said if each.carried is not None}
    if len(dates) != 1:
        return None, bool(dates)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=dates.pop()), False


@dataclass(frozen=True, slots=True)
class Record:
    """One record of `contributions`."""

    at: int
    message: ContributionsRecord


@dataclass(slots=True)
class Shard:
    """What a shard must be: the fold of its share of the log up to `next_offset`."""

    next_offset: int | None = None
    at: int = 0
    highs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    replays: Mapping[str, int] = field(default_factory=dict)
    """By source of a replay when it last brought anything."""
    rounds: Mapping[str, Round] = field(default_factory=dict)
    outbox: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    said: Mapping[tuple[str, tuple[int, int], Event], Said] = field(default_factory=dict)
    revisions: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """By job the newest revision and its routing."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """When jobs that are deleted were."""
    routings: Mapping[str, str] = field(default_factory=dict)
    """By round the routing by which it fired last."""
    moved: Mapping[str, Round] = field(default_factory=dict)
    """By its place in the outbox every round that waits to be mapped again."""
    opened: Mapping[str, str] = field(default_factory=dict)
    due: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By open round its deadlines, by what happens then."""
    jobs: Mapping[str, JobRef] = field(default_factory=dict)
    """By open round the job that its contributions are for."""

    def remembers(self, job: str, at: int) -> bool:
        """Whether the folded revision of a job counts: that of a deleted one does for eight horizons."""
        return self.gone.get(job, at) >= at - 8 * HORIZON_MS

    def change(
        self,
        job: str,
        revision: int,
        routing: str,
        place: str,
        at: int,
        committed: int,
        *,
        is_deleted: bool = False,
    ) -> None:
        """What waits in rounds that were routed otherwise goes to the outbox, in the order of their names (R6)."""
        before = self.revisions.get(job, (-1, "")) if self.remembers(job, at) else (-1, "")
        if revision <= before[0]:
            return
        self.revisions = {**self.revisions, job: (revision, routing)}
        self.gone = {name: since for name, since in self.gone.items() if name != job}
        if is_deleted:
            self.gone = {**self.gone, job: at}
        if routing and routing == before[1]:
            return
        names = [name for name, each in self.rounds.items() if name.startswith(f"{job}/") and each.members]
        if int(place.partition(".")[0]) >= committed:
            for n, name in enumerate(sorted(names, key=str.encode), 1):
                moved = {"moved": name, "revision": revision, "at": at}
                self.outbox = {**self.outbox, f"{place}.2.{n}": moved}
                self.moved = {**self.moved, f"{place}.2.{n}": self.rounds[name]}
        self.rounds = {**self.rounds, **{name: self.rounds[name].emptied for name in names}}

    def bring_deadlines(self, name: str, entry: Entry) -> None:
        """The earliest deadline that a counted member brings."""
        start = entry.event.at if entry.is_remapped and not entry.is_replayed else entry.at
        found = []
        if entry.job.id == TIMED.id:
            found.append((start + 500, "fire"))
            if entry.contribution.asset == 1:
                ends = entry.contribution.ends or start
                found.append(((max(ends, start) if entry.is_replayed else ends) + 300, "drop"))
        if found:
            due, then = min(found)
            known = self.due.get(name, {})
            self.due = {**self.due, name: {**known, then: min(known.get(then, due), due)}}

    def forget_closed(self) -> None:
        is_open = {name for name, each in self.rounds.items() if each.members}
        self.opened = {name: opened for name, opened in self.opened.items() if name in is_open}
        self.due = {name: due for name, due in self.due.items() if name in is_open}
        self.jobs = {name: job for name, job in self.jobs.items() if name in is_open}

    def control(self, entry: Control, record: DeadlineReached | OperatorAction, committed: int) -> None:
        name = round_name(record.job, record.incarnation, record.key)
        what = record.then if isinstance(record, DeadlineReached) else record.kind
        about: dict[str, Any] = {"control": what, "job": record.job, "key": record.key or None}
        if self.opened.get(name) != record.opened:
            if isinstance(record, DeadlineReached):
                return
            told: Sequence[Event] = ()
            about |= {"kinds": ["action-without-effect"], "run": None}
        else:
            state, rules = self.rounds[name], rules_of(self.jobs[name])
            told = [event for there in state.members.values() for event in there]
            if isinstance(record, OperatorAction) and record.kind == "withdraw":
                after, told = withdraw(state, record.event_id or "")
                about |= {"kinds": ["member-withdrawn" if told else "action-without-effect"], "run": None}
            elif what == "discard":
                after = state.emptied
                about |= {"kinds": ["round-discarded"], "run": None}
            else:
                after, firing = end(state, entry.at, rules, is_run=what != "drop")
                self.routings = {**self.routings, name: self.jobs[name].routing}
                kinds = {"drop": ["deadline-dropped"], "fail": ["deadline-failed"]}
                is_manual = isinstance(record, OperatorAction)
                about["kinds"] = kinds.get(what, ["round-fired"] if is_manual else [])
                arrived = sorted(Counter(asset for asset, _ in firing.members).items())
                revision = self.revisions[record.job][0]
                run = (
                    *(revision, firing.generation, what == "fail"),
                    *("manual" if is_manual else "deadline", arrived),
                )
                about["run"] = (*run, identities(told)) if what != "drop" else None
            self.rounds = {**self.rounds, name: after}
        if entry.offset >= committed:
            about["told"] = identities(told) if about["kinds"] else []
            self.outbox = {**self.outbox, f"{entry.offset}.0": about}

    def take(self, entry: Input, committed: int) -> bool:
        """Fold one input; False where it repeats what was folded before."""
        if isinstance(entry, Control):
            if isinstance(entry.record, DefinitionChange):
                told = entry.record
                self.change(
                    told.job,
                    told.revision,
                    told.routing,
                    f"{entry.offset}.0",
                    entry.at,
                    committed,
                    is_deleted=told.is_deleted,
                )
            else:
                self.control(entry, entry.record, committed)
            self.forget_closed()
            return True
        each, job = entry.contribution, entry.job
        high = self.highs.get(entry.source, (-1, -1))
        if entry.is_replayed:
            if self.replays.get(entry.source, entry.at) < entry.at - 8 * HORIZON_MS:
                high = (-1, -1)
            self.replays = {**self.replays, entry.source: entry.at}
            self.highs = {**self.highs, entry.source: high}
        if (each.offset, each.ordinal) <= high:
            return False
        self.highs = {**self.highs, entry.source: (each.offset, each.ordinal)}
        position = f"{entry.offset}.{entry.ordinal}"
        self.change(job.id, job.revision, job.routing, position, entry.at, committed)
        self.forget_closed()
        newest, routing = self.revisions[job.id]
        if job.revision < newest and (job.routing != routing or not routing):
            if entry.offset >= committed:
                older = {"older": job[:3], "revision": newest, "event": entry.event.id}
                self.outbox = {**self.outbox, f"{position}.2.0": {**older, "key": each.key, "at": entry.at}}
            return True
        event = Event(entry.event.key, entry.event.id, entry.event.source, entry.event.at)
        place = (each.asset, each.member)
        dated = each.decoded is not None
        arrival = Arrival(
            event,
            *place,
            each.size,
            each.needed,
            entry.at,
            dated,
            is_remapped=entry.is_remapped,
            is_further_way=any(asset < each.asset for asset in each.also),
        )
        name = round_name(job.id, job.incarnation, each.key)
        before = self.rounds.get(name, Round())
        there = before.members.get(place, ())
        fired = before.fired
        is_useless = fired is not None and self.routings.get(name) != job.routing
        if fired is not None and is_useless:  # what it kept stands at other places
            before = replace(before, fired=replace(fired, events={}))
        step = fold(before, arrival, rules_of(job))
        if step.round.fired is before.fired:
            step = step._replace(round=replace(step.round, fired=fired))
        else:
            self.routings = {**self.routings, name: job.routing}
        if step.round.members != self.rounds.get(name, Round()).members:
            self.opened = {name: position, **self.opened}
            self.jobs = {**self.jobs, name: job}
        if step.outcome is Outcome.COUNTED:
            self.bring_deadlines(name, entry)
        self.rounds = {**self.rounds, name: step.round}
        self.forget_closed()
        about = {"job": job.id, "key": each.key or None}
        sent: dict[str, dict[str, Any]] = {}
        if step.firing or step.outcome in (Outcome.COUNTED, Outcome.KEPT, Outcome.REPLACED):
            said = Said(entry.event.asset, each.is_date_failed, each.decoded, each.carried, entry.event.extra)
            self.said = {**self.said, (name, place, event): said}
        if step.firing:
            members = [
                (place, kept, self.said[name, place, kept])
                for place, there in step.firing.members.items()
                for kept in there
            ]
            arrived = Counter(asset for asset, _ in step.firing.members)
            sent[f"{entry.offset}.{entry.ordinal}"] = {
                **about,
                "revision": newest,
                "generation": step.firing.generation,
                "events": sorted(
                    (said.asset, member, kept.key or "", kept.source, kept.id, str(said.extra))
                    for (_, member), kept, said in members
                ),
                "windows": [
                    (job.assets[asset], arrived[asset], SIZES[job.id, asset][0]) for asset in sorted(arrived)
                ],
                "completed_by": entry.event.id,
                "date, conflict": agreed([said for _, _, said in members]),
            }
        for note in step.audit:
            # What was mapped again may find a newer event in its place: then the entry is about that one.
            about_event = event
            if step.outcome is Outcome.REPLACED and event not in step.round.members[place]:
                about_event = next(kept for kept in there if kept.key == event.key or len(there) == 1)
            asset = entry.event.asset if about_event is event else self.said[name, place, about_event].asset
            sent[f"{entry.offset}.{entry.ordinal}.1"] = {
                **about,
                "audit": note.kind.value,
                "message": note.message,
                "asset": asset,
                "event": (about_event.source, about_event.id),
                "older": note.older_id,
                "window": note.window,
            }
        if entry.offset >= committed:
            self.outbox = {**self.outbox, **sent}
        return True


def identities(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    return sorted((each.id, each.source, each.key or "") for each in events)


def described(each: OutboxItem) -> dict[str, Any]:
    """Something in the outbox, as the model describes it."""
    if (control := each.control) is not None:
        request, entries = acted(each, PARTITION)
        entries = [entry for entry in entries if entry.kind is not AuditKind.PARTITION_DATE_CONFLICT]
        told = [one for entry in entries for one in (entry.details or {}).get("events", ())]
        run = request and (
            request.revision,
            request.generation,
            request.failed is not None,
            request.cause,
            [("abc".index(window.asset[0]), window.arrived) for window in request.windows],
            sorted((one.id, one.source, one.partition_key or "") for one in request.events),
        )
        assert request is None or (request.is_partial and request.completed_by is None)
        return {
            "control": control.then if isinstance(control, DeadlineReached) else control.kind,
            "job": control.job,
            "key": control.key or None,
            "kinds": [entry.kind.value for entry in entries],
            "run": run,
            "told": sorted((one["id"], one["source"], one["key"] or "") for one in told),
        }
    if each.moved_round is not None:
        return {"moved": each.moved_round, "revision": each.revision, "at": each.payload["at"]}
    if each.revision is not None:
        found = waiting(each, ())
        assert found is not None
        ((_, event),) = found.events
        about = {"older": found.job[:3], "revision": found.revision, "event": event.id}
        return {**about, "key": found.key, "at": found.at}
    if each.is_audit:
        entry = audit_entry(each, PARTITION)
        details = entry.details or {}
        return {
            "job": entry.job,
            "key": entry.partition_key,
            "audit": entry.kind.value,
            "message": entry.message,
            "asset": entry.asset,
            "event": (entry.event_source, entry.event_id),
            "older": details.get("replaced_event_id"),
            "window": (details["size"], details["needed"]) if "size" in details else None,
        }
    request, conflict = run_request(each)
    return {
        "job": request.job,
        "revision": request.revision,
        "key": request.partition_key,
        "generation": request.generation,
        "events": sorted(
            (e.asset, e.member, e.partition_key or "", e.source, e.id, str(e.extra)) for e in request.events
        ),
        "windows": [(window.asset, window.arrived, window.expected) for window in request.windows],
        "completed_by": request.completed_by,
        "date, conflict": (request.partition_date, conflict is not None),
    }


def outbox_of(items: Sequence[OutboxItem]) -> dict[str, dict[str, Any]]:
    return {each.field: described(each) for each in items}


@dataclass(frozen=True, slots=True)
class OpenRound:
    """A round as Redis holds it."""

    members: dict[tuple[int, int], set[tuple[str | None, str, str]]]
    counts: dict[int, int]
    windows: dict[int, tuple[int, int]]
    replaced: int
    dated: bool


def stored_round(fields: Mapping[str, str]) -> OpenRound:
    found = OpenRound({}, {}, {}, 0, False)
    replaced, dated = 0, False
    for name, value in fields.items():
        kind, _, rest = name.partition(":")
        if kind in ("m", "x"):
            asset, member, *_ = rest.split(":", 2)
            _, key, event_id, source, *_ = json.loads(f"[{value}]")
            found.members.setdefault((int(asset), int(member)), set()).add((key, event_id, source))
        elif kind == "count":
            found.counts[int(rest)] = int(value)
        elif kind == "need":
            size, needed = value.split()
            found.windows[int(rest)] = (int(size), int(needed))
        elif kind == "r":
            replaced += 1
        elif kind == "date":
            dated = True
        else:
            assert kind in ("job", "opened"), name
    return replace(found, replaced=replaced, dated=dated)


keys = st.sampled_from(KEYS[:1]) | st.sampled_from(KEYS)
events = st.sampled_from(EVENTS[:3]) | st.sampled_from(EVENTS)
rests = st.sampled_from(["", "", "", ".5", '"', "é", "éé"])
"""The rest of an event's own key: mostly that of the member, else a finer one."""
says = st.sampled_from([(False, None), (False, None), (False, None), (False, 5), (False, 6), (True, 5)])
"""Whether the mapper failed to read a date of the key, and the date that it carries along."""

Drawn = tuple[JobRef, str, int, int, tuple[str, str], str, tuple[bool, int | None]]


def contributions(jobs: Sequence[JobRef]) -> st.SearchStrategy[list[Drawn]]:
    assets = st.integers(0, 2)
    members = st.integers(0, 3) | st.sampled_from([1, 10, 11])  # 1 and 11 begin alike
    return st.lists(
        st.tuples(st.sampled_from(jobs), keys, assets, members, events, rests, says),
        min_size=1,
        max_size=12,
    )


drawn = st.one_of(
    *map(contributions, (*CHANGED, *((job,) for job in JOBS[2:]))),
    contributions((*JOBS, *(job for pair in CHANGED for job in pair))),
)


@st.composite
def windows(draw: st.DrawFn) -> list[Drawn]:
    """Every member of a window, in any order."""
    job, key = draw(st.sampled_from([DAY, EITHER, BOTH, AGAIN])), draw(keys)
    places = [(asset, n) for asset in range(len(job.assets)) for n in range(SIZES[job.id, asset][0])]
    return [
        (job, key, asset, member, draw(events), draw(rests), draw(says))
        for asset, member in draw(st.permutations(places))
    ]


places = st.integers(0, SHARDS - 1)


class Script(RuleBasedStateMachine):
    """A log that grows, shards that follow it, and an owner that dies, lags and errs."""

    url: str
    numbers = count()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis: Redis = Redis.from_url(self.url, decode_responses=True, socket_timeout=60)
        self.raw: Redis = Redis.from_url(self.url, socket_timeout=60)
        self.redis.flushall()
        self.client = AsyncRedis.from_url(self.url, decode_responses=True, socket_timeout=60)
        self.namespace = f"t{next(self.numbers)}"
        self.store = RoundStore(self.client, self.namespace, HORIZON_MS)
        self.log: list[Record] = []
        self.now = START_MS
        self.shards = [Shard() for _ in range(SHARDS)]
        self.committed = 0
        self.next_of = dict.fromkeys(SOURCES, (0, 0))
        self.revisions = count(10)
        self.current: dict[str, JobRef] = {}
        self.past: dict[JobRef, JobRef] = {}
        self.routings = count()
        self.saved: dict[int, tuple[Shard, dict[bytes, bytes]]] = {}

    def teardown(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()
        self.redis.close()
        self.raw.close()

    def run(self, what: Awaitable[T]) -> T:
        async def waited() -> T:
            return await what

        return self.runner.run(waited())

    # The log

    @initialize(first=drawn)
    def begin(self, first: list[Drawn]) -> None:
        self.append(first, "accepted-events/0", 0)

    @rule(
        these=drawn | windows(),
        source=st.sampled_from(SOURCES),
        later_ms=st.sampled_from([0, 1, 600, HORIZON_MS, HORIZON_MS + 1, 8 * HORIZON_MS]),
        is_split=st.booleans(),
        is_mixed=st.sampled_from([False, False, True]),
        is_old=st.sampled_from([False, False, False, True]),
        is_remapped=st.sampled_from([False, False, True]),
    )
    def append(
        self,
        these: list[Drawn],
        source: str,
        later_ms: int,
        is_split: bool = False,
        is_mixed: bool = False,
        is_old: bool = False,
        is_remapped: bool = False,
    ) -> None:
        """A record of new contributions, with coordinates that rise; a source's record may be split over several.

        Of a job that changes, either everything is of one definition, or each contribution of that which was drawn.
        """
        if not is_mixed:
            first_of = {job.id: job for job, *_ in reversed(these)}
            these = [(first_of[each[0].id], *each[1:]) for each in these]
        these = [(self.as_defined(each[0], is_old), *each[1:]) for each in these]
        jobs: dict[JobRef, int] = {}
        events: list[MemberEvent] = []
        entries: list[Contribution] = []
        offset, first = self.next_of[source] if is_split else (self.next_of[source][0] + 1, 0)
        self.next_of[source] = (offset, first + len(these))
        for n, (job, key, any_asset, any_member, (event_source, event_id), rest, said) in enumerate(these):
            asset = any_asset % len(job.assets)
            size, needed = SIZES[job.id, asset]
            member = any_member % size
            number = jobs.setdefault(job, len(jobs))
            name = "named otherwise" if event_source == "t" else job.assets[asset]
            own_key = f"{member}{rest}" if key else None
            happened_at = START_MS + (7 * n + first) % 5
            events.append(MemberEvent(own_key, event_id, event_source, happened_at, None, {"n": n}, name))
            is_failed, carried = said
            decoded = None if is_failed else DATES[key][asset]
            place = (key, asset, member, size, needed)
            ends = START_MS + 600 * member if job.id == TIMED.id and member else None
            also = (0,) if event_source == 'q"' and asset else ()
            entries.append(
                Contribution(offset, first + n, number, n, *place, decoded, carried, is_failed, ends, also)
            )
        self.now += later_ms
        batch = ContributionBatch(
            source=source,
            is_remapped=is_remapped,
            is_replayed=source == REPLAY,
            jobs=tuple(jobs),
            events=tuple(events),
            entries=tuple(entries),
        )
        self.write(batch)

    def write(self, message: ContributionsRecord) -> None:
        self.log.append(Record(self.now, read_contributions_record(message.to_bytes())))

    def as_defined(self, job: JobRef, is_old: bool) -> JobRef:
        """The job with its revision: a new one where it says otherwise than before, or one of the past."""
        if is_old and job in self.past:
            return self.past[job]
        current = self.current.get(job.id)
        if current is None or plainly(current) != plainly(job):
            self.define(job)
        return self.current[job.id]

    def define(self, job: JobRef, routing: str | None = None) -> None:
        """A new revision of a job, of another routing unless one is given; records of one job name none."""
        if routing is None:
            routing = "" if job.id == NEVER.id else f"r{next(self.routings)}"
        job = plainly(job)
        self.current[job.id] = self.past[job] = job._replace(revision=next(self.revisions), routing=routing)

    @rule(job=st.sampled_from(JOBS), what=st.sampled_from(["new", "alike", "back", "same", "old", "deleted"]))
    def append_change(self, job: JobRef, what: str) -> None:
        """The owner's view shows a new definition, or it says one again; nobody need have used it yet.

        A definition may be routed like the one before it, or like one that was replaced since.
        """
        current = self.current.get(job.id, job)
        if what == "new" or job.id not in self.current:
            self.define(current)
        elif what == "alike":
            self.define(current, current.routing)
        elif what == "back":
            self.define(current)
            self.define(current, current.routing)
        changed = self.current[job.id]
        revision = next(self.revisions) if what == "deleted" else changed.revision - (what == "old")
        routing = "" if what == "deleted" else changed.routing
        self.write(DefinitionChange(job=job.id, revision=revision, routing=routing))

    @rule(data=st.data(), is_stale=st.sampled_from([False, False, False, True]))
    def append_control(self, data: st.DataObject, is_stale: bool = False) -> None:
        """A deadline is reached, or a person does something, for a round that may be over when it is read."""
        opened = [each for model in self.shards for each in model.opened.items()]
        name, place = data.draw(st.sampled_from(sorted(opened))) if opened else ("each/i1/", "0.0")
        job, incarnation, key = name.split("/", 2)
        about = {"job": job, "incarnation": incarnation, "key": key, "opened": "0.7" if is_stale else place}
        what = data.draw(
            st.sampled_from(["fire", "fail", "drop", "manual", "discard", "withdraw", "withdraw"])
        )
        if what in ("fire", "fail", "drop"):
            self.write(DeadlineReached.model_validate({**about, "then": what}))
            return
        event_id = data.draw(st.sampled_from([id for _, id in EVENTS])) if what == "withdraw" else None
        said = {"kind": "fire" if what == "manual" else what, "id": "x", "by": 'me "ü"', "event_id": event_id}
        self.write(OperatorAction.model_validate(about | said))

    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """A zombie mapper sends an earlier record once more: the same coordinates at a new place."""
        self.log.append(Record(self.now, data.draw(st.sampled_from(self.log)).message))

    # The owner

    def entries(self, start: int, end: int) -> list[Input]:
        return [
            entry
            for offset in range(start, end)
            for entry in inputs_of(
                offset, self.log[offset].at, self.log[offset].message, range(SHARDS), SHARDS
            )
        ]

    def share(self, shard: int, start: int, end: int) -> list[Input]:
        return by_shard(self.entries(start, end)).get(shard, [])

    def expect_state(self, reply: Applied | Refused, shard: int) -> None:
        model = self.shards[shard]
        assert isinstance(reply, Refused)
        assert (reply.next_offset, reply.at) == (model.next_offset, model.at)
        assert outbox_of(reply.outbox) == model.outbox

    @rule(shard=places, how_many=st.integers(0, 3))
    def fold_some(self, shard: int, how_many: int) -> None:
        """Fold the next records into one shard; others stay behind or are ahead."""
        model = self.shards[shard]
        start = model.next_offset or 0
        end = min(start + how_many, len(self.log))
        self.fold_to(shard, end)

    @rule()
    def fold_all(self) -> None:
        for shard in range(SHARDS):
            self.fold_to(shard, len(self.log))

    def fold_to(self, shard: int, end: int) -> None:
        model = self.shards[shard]
        start = model.next_offset or 0
        entries = self.share(shard, start, end)
        at = self.log[end - 1].at if end > start else 0
        batch = (shard, model.next_offset, entries)
        reply = self.run(self.store.apply(PARTITION, self.committed, end, at, [batch]))[shard]
        assert isinstance(reply, Applied)
        before = model.outbox
        repeats = sum(not model.take(entry, self.committed) for entry in entries)
        if model.next_offset != end:
            model.next_offset, model.at = end, at
        assert reply.repeats == repeats
        assert outbox_of(reply.added) == {
            place: sent for place, sent in model.outbox.items() if place not in before
        }

    @rule(shard=places, wrong=st.integers(-2, 3) | st.none())
    def apply_stale(self, shard: int, wrong: int | None) -> None:
        """A caller that believes another offset changes nothing and is told the truth."""
        model = self.shards[shard]
        believed = None if wrong is None else max(0, (model.next_offset or 0) + wrong)
        if believed == model.next_offset:
            return
        entries = self.share(shard, 0, len(self.log))
        reply = self.run(
            self.store.apply(PARTITION, self.committed, len(self.log), self.now, [(shard, believed, entries)])
        )
        self.expect_state(reply[shard], shard)

    @rule(shard=places, how_many=st.integers(1, 4))
    def confirm_some(self, shard: int, how_many: int) -> None:
        """The oldest of the outbox was acknowledged."""
        sent = self.run(self.store.peek(PARTITION, [shard]))[shard].outbox[:how_many]
        if sent:
            self.run(self.store.confirm([(PARTITION, shard, sent)]))
            gone = {each.field for each in sent}
            model = self.shards[shard]
            model.outbox = {place: each for place, each in model.outbox.items() if place not in gone}
            model.moved = {place: each for place, each in model.moved.items() if place not in gone}

    @rule()
    def commit(self) -> None:
        """The group's offset moves to the oldest that is not acknowledged, and never back (R3)."""
        waiting = [int(field.partition(".")[0]) for model in self.shards for field in model.outbox]
        positions = [model.next_offset or 0 for model in self.shards]
        self.committed = max(self.committed, min(positions + waiting))

    @rule()
    def a_new_owner_looks(self) -> None:
        """After a crash between apply and confirm the successor finds exactly what was not acknowledged."""
        owner = RoundStore(self.client, self.namespace, HORIZON_MS)
        for shard, reply in self.run(owner.peek(PARTITION, range(SHARDS))).items():
            self.expect_state(reply, shard)

    # Redis

    def keys_of(self, shard: int) -> list[bytes]:
        return list(self.raw.scan_iter(match=shard_prefix(self.namespace, shard).encode() + b"*", count=1000))

    @rule(shard=places)
    def save(self, shard: int) -> None:
        """What a replica has got of a shard when the failover comes."""
        copies = {key: self.raw.dump(key) for key in self.keys_of(shard)}
        self.saved[shard] = (replace(self.shards[shard]), copies)

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """Acknowledged writes of one shard are lost, back to an earlier state."""
        shard = data.draw(st.sampled_from(sorted(self.saved)))
        model, copies = self.saved[shard]
        self.delete(shard)
        for key, value in copies.items():
            self.raw.restore(key, 0, value)
        self.shards[shard] = replace(model)

    @rule(shard=places)
    def lose(self, shard: int) -> None:
        """A shard is gone: it is rebuilt from the log's beginning, in silence below the committed offset (R2, R3)."""
        self.delete(shard)
        self.shards[shard] = Shard()

    def delete(self, shard: int) -> None:
        if keys := self.keys_of(shard):
            self.raw.delete(*keys)

    @rule()
    def restart_redis_without_scripts(self) -> None:
        self.redis.script_flush()

    # What holds after every step

    @invariant()
    def redis_is_the_fold_of_the_log(self) -> None:
        for shard, model in enumerate(self.shards):
            prefix = shard_prefix(self.namespace, shard)
            self.check_open_rounds(prefix, model)
            self.check_marks(prefix, model)
            self.check_moved(prefix, model)
            assert dict(self.redis.zrange(prefix + "due", 0, -1, withscores=True)) == {
                f"{then}/{name}": float(at) for name, due in model.due.items() for then, at in due.items()
            }
            self.check_revisions(prefix, model)
            self.check_coordinates(prefix, model)
        stored = [key for shard in range(SHARDS) for key in self.keys_of(shard)]
        assert sorted(stored) == sorted(self.raw.keys("*"))
        known = (
            "log",
            f"outbox:{PARTITION}",
            "marks",
            "expiry",
            "seen",
            "open",
            "kept",
            "revisions",
            "due",
            "gone",
            "replays",
        )
        for key in stored:
            tag, _, name = key.decode().partition("}:")
            assert tag.startswith(self.namespace + ":{")
            assert name in known or name.startswith(("round:", "moved:")), name

    def check_revisions(self, prefix: str, model: Shard) -> None:
        """Those of jobs that were deleted long ago may be there still."""
        wanted = {job: f"{revision} {routing}" for job, (revision, routing) in model.revisions.items()}
        stored = self.redis.hgetall(prefix + "revisions")
        assert stored.items() <= wanted.items()
        assert {job for job in wanted if model.remembers(job, model.at)} <= set(stored)
        gone = self.redis.zrange(prefix + "gone", 0, -1, withscores=True)
        assert dict(gone) == {job: float(at) for job, at in model.gone.items() if job in stored}

    def check_coordinates(self, prefix: str, model: Shard) -> None:
        """Those of a replay that brought nothing for long may be there still."""
        wanted = {name: f"{offset}.{ordinal}" for name, (offset, ordinal) in model.highs.items()}
        log = self.redis.hgetall(prefix + "log")
        stored = {name.removeprefix("high:"): high for name, high in log.items() if name.startswith("high:")}
        assert stored.items() <= wanted.items()
        since = model.at - 8 * HORIZON_MS
        assert {name for name in wanted if model.replays.get(name, since) >= since} <= set(stored)
        replays = dict(self.redis.zrange(prefix + "replays", 0, -1, withscores=True))
        assert replays == {name: float(at) for name, at in model.replays.items() if name in stored}

    def check_open_rounds(self, prefix: str, model: Shard) -> None:
        wanted = {name: each for name, each in model.rounds.items() if each.members}
        assert dict(self.redis.zrange(prefix + "open", 0, -1, withscores=True)) == dict.fromkeys(wanted, 0.0)
        found = set(self.redis.scan_iter(match=prefix + "round:*", count=1000))
        assert found == {f"{prefix}round:{name}" for name in wanted}
        for name, each in wanted.items():
            self.check_round(self.redis.hgetall(f"{prefix}round:{name}"), each)

    def check_moved(self, prefix: str, model: Shard) -> None:
        """What waits to be mapped again is whole, and goes with its place in the outbox."""
        found = set(self.redis.scan_iter(match=prefix + "moved:*", count=1000))
        assert found == {f"{prefix}moved:{place}" for place in model.moved}
        for place, each in model.moved.items():
            self.check_round(self.redis.hgetall(f"{prefix}moved:{place}"), each)

    def check_round(self, fields: Mapping[str, str], each: Round) -> None:
        stored = stored_round(fields)
        assert stored.members == {
            place: {(event.key, event.id, event.source) for event in there}
            for place, there in each.members.items()
        }
        assert stored.counts == Counter(asset for asset, _ in each.members)
        assert stored.windows == each.windows
        assert stored.replaced == len(each.replaced)
        assert stored.dated == each.dated

    def check_marks(self, prefix: str, model: Shard) -> None:
        """Expired marks may be there still; the others must be, and nothing else."""
        since = model.at - HORIZON_MS
        fired = {name: each.fired for name, each in model.rounds.items() if each.fired}
        stored: dict[str, str] = self.redis.hgetall(prefix + "marks")
        assert {name for name, mark in fired.items() if mark.at >= since} <= set(stored) <= set(fired)
        for name, text in stored.items():
            generation, at, dated, members = text.split(" ")
            assert (int(generation), int(at)) == (fired[name].generation, fired[name].at)
            job = next(job for job in JOBS if job.id == name.partition("/")[0])
            assert dated == ("1" if job.rollups and fired[name].dated else "0")
            if job.rollups and members != "*":
                here = {tuple(map(int, place.split(":"))) for place in members.strip(",").split(",")}
                assert here == fired[name].members
            elif job.rollups:
                whole = {
                    (asset, n) for asset in range(len(job.assets)) for n in range(SIZES[job.id, asset][0])
                }
                assert fired[name].members == whole
        assert dict(self.redis.zrange(prefix + "expiry", 0, -1, withscores=True)) == {
            name: float(fired[name].at) for name in stored
        }
        self.check_kept(prefix, {name: fired[name] for name in stored}, model.routings)
        live = sorted(at for each in model.rounds.values() for at in each.seen.values() if at >= since)
        assert live == [
            int(at) for _, at in self.redis.zrangebyscore(prefix + "seen", since, "+inf", withscores=True)
        ]

    def check_kept(self, prefix: str, fired: Mapping[str, Fired], routings: Mapping[str, str]) -> None:
        """What was kept goes with its mark, at the latest; of older marks it is of no use."""
        stored: dict[str, str] = self.redis.hgetall(prefix + "kept")
        assert set(stored) <= set(fired)
        for name, mark in fired.items():
            head, *lines = stored.get(name, "").split("\n")
            is_of_mark = head == f"{mark.generation} {mark.at} {routings[name]}"
            assert is_of_mark == bool(mark.events), name
            if is_of_mark:
                kept = stored_round(dict(zip(lines[::2], lines[1::2], strict=True)))
                assert kept.members == {
                    place: {(event.key, event.id, event.source) for event in there}
                    for place, there in mark.events.items()
                }


def on(url: str) -> type[Script]:
    return type("ScriptOnThisRedis", (Script,), {"url": url})


# Failures are not made smaller: that would take minutes against a server.
generate = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(300)
def test_redis_is_the_fold_of_the_log_whatever_happens(redis_url: str) -> None:
    run_state_machine_as_test(
        on(redis_url), settings=settings(generate, max_examples=15, stateful_step_count=30)
    )


@pytest.mark.parametrize("cut", [1, 2, 5])
@pytest.mark.parametrize("redis_url", ["real"], indirect=True)
def test_a_replay_done_again_within_eight_horizons_of_records_counts_nothing_however_the_log_is_cut(
    redis_url: str, cut: int
) -> None:
    machine = on(redis_url)()
    try:
        shard = shard_of(EACH.id, KEYS[0], SHARDS)
        machine.append([(EACH, KEYS[0], 0, 0, EVENTS[0], "", (False, None))], REPLAY, 0)
        (done,) = machine.log
        for later_ms in (8 * HORIZON_MS, 8 * HORIZON_MS, 8 * HORIZON_MS + 1):
            machine.now += later_ms
            machine.log.append(replace(done, at=machine.now))
        for end in range(cut, len(machine.log) + cut, cut):
            machine.fold_to(shard, min(end, len(machine.log)))
            machine.redis_is_the_fold_of_the_log()
        fired = machine.run(machine.store.peek(PARTITION, [shard]))[shard].outbox
        assert [each.offset for each in fired] == [0, 3]

        prefix = shard_prefix(machine.namespace, shard)
        assert machine.redis.hget(prefix + "log", f"high:{REPLAY}") == "1.0"
        machine.now += 8 * HORIZON_MS + 1
        machine.append_change(DAY, "new")
        machine.fold_to(shard, len(machine.log))
        assert machine.redis.hget(prefix + "log", f"high:{REPLAY}") is None
        machine.redis_is_the_fold_of_the_log()
    finally:
        machine.teardown()


@settings(generate, max_examples=60)
@given(data=st.data())
def test_redis_is_the_fold_of_a_log_about_one_round(redis_url: str, data: st.DataObject) -> None:
    """Few members and events, so that they meet: replaced, repeated, late, expired, in one batch and in several."""
    jobs = data.draw(st.sampled_from([*CHANGED, *((job,) for job in JOBS if job is not DAY)]))
    key = data.draw(keys)
    members = st.sampled_from([1, 11, 2])
    about = st.tuples(
        st.sampled_from(jobs), st.just(key), st.integers(0, 2), members, events, st.just("") | rests, says
    )
    machine = on(redis_url)()
    try:
        for _ in range(data.draw(st.integers(2, 8))):
            these = data.draw(st.lists(about, min_size=1, max_size=6))
            machine.append(
                these,
                "accepted-events/0",
                data.draw(st.sampled_from([0, 0, 600, HORIZON_MS + 1])),
                is_mixed=data.draw(st.sampled_from([False, False, False, True])),
                is_old=data.draw(st.sampled_from([False, False, True])),
                is_remapped=data.draw(st.sampled_from([False, False, True])),
            )
            match data.draw(
                st.sampled_from(["wait", "fold", "fold", "commit", "lose", "act", "act", "change"])
            ):
                case "change":
                    job = data.draw(st.sampled_from([job for job in JOBS if job.id == jobs[0].id]))
                    machine.append_change(job, "new")
                case "act":
                    machine.fold_all()
                    machine.append_control(data)
                case "fold":
                    machine.fold_all()
                case "commit":
                    machine.fold_all()
                    machine.confirm_some(shard_of(jobs[0].id, key, SHARDS), 10)
                    machine.commit()
                case "lose":
                    machine.lose(shard_of(jobs[0].id, key, SHARDS))
            machine.redis_is_the_fold_of_the_log()
        machine.fold_all()
        machine.redis_is_the_fold_of_the_log()
    finally:
        machine.teardown()


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url, decode_responses=True, socket_timeout=60) as client:
        client.flushall()
        yield client


@pytest.fixture
async def store(redis_url: str, redis: Redis) -> AsyncIterator[RoundStore]:
    async with AsyncRedis.from_url(redis_url, decode_responses=True, socket_timeout=60) as client:
        yield RoundStore(client, "t", HORIZON_MS)


def entry(offset: int, job: JobRef, key: str, member: int, size: int, at: int, ordinal: int = 0) -> Entry:
    event = MemberEvent(str(member), f"e{offset}.{ordinal}", "s", at, None, None)
    each = Contribution(offset, ordinal, 0, 0, key, 0, member, size, size, DAY_US, None)
    return Entry(offset, ordinal, at, "accepted-events/0", job, event, each)


def kinds(items: Sequence[OutboxItem]) -> list[str]:
    return [each.payload.get("audit", "fired") for each in items]


async def test_a_record_of_thousands_of_members_is_folded_in_one_call(
    redis: Redis, store: RoundStore
) -> None:
    size = 3_000
    members = [entry(0, DAY, "wide", n, size, START_MS, ordinal=n) for n in range(size)]
    reply = (await store.apply(0, 0, 1, START_MS, [(0, None, members[:-1])]))[0]
    assert isinstance(reply, Applied)
    assert reply.added == []
    assert redis.hget(round_key("t", 0, round_name(DAY.id, DAY.incarnation, "wide")), "count:0") == str(
        size - 1
    )
    opened = redis.hget(round_key("t", 0, round_name(DAY.id, DAY.incarnation, "wide")), "opened")
    assert opened == f"0.0.{START_MS}", "a round is named by its first contribution"
    last = entry(1, DAY, "wide", size - 1, size, START_MS)
    reply = (await store.apply(0, 0, 2, START_MS, [(0, 1, [last])]))[0]
    assert isinstance(reply, Applied)
    (fired,) = reply.added
    request, _ = run_request(fired)
    assert [event.member for event in request.events] == list(range(size))
    assert redis.zcard("t:{0}:seen") == size


async def test_thousands_of_rounds_fire_in_one_call(redis: Redis, store: RoundStore) -> None:
    events = [entry(0, EACH, f"k{n % 2_000}", 0, 1, START_MS, ordinal=n) for n in range(3_000)]
    reply = (await store.apply(0, 0, 1, START_MS, [(0, None, events)]))[0]
    assert isinstance(reply, Applied)
    assert [each.payload["generation"] for each in reply.added] == [1] * 2_000 + [2] * 1_000
    assert redis.hlen("t:{0}:outbox:0") == 3_000
    assert redis.hlen("t:{0}:marks") == redis.zcard("t:{0}:expiry") == 2_000


async def test_when_everything_fired_was_sent_and_expired_only_the_log_and_revisions_are_left(
    redis: Redis, store: RoundStore
) -> None:
    """With more to expire than one call takes."""
    events = [entry(n, EACH, f"k{n}", 0, 1, START_MS) for n in range(1_500)]
    events += [entry(1_500 + n, DAY, "2010-03-14", member, 3, START_MS) for n, member in enumerate((2, 0, 1))]
    reply = (await store.apply(0, 0, 1_503, START_MS, [(0, None, events)]))[0]
    assert isinstance(reply, Applied)
    await store.confirm([(0, 0, reply.added)])
    for upto in range(1_504, 1_514):
        await store.apply(0, 0, upto, START_MS + HORIZON_MS, [(0, upto - 1, [])])
    assert set(redis.keys()) == {
        f"t:{{0}}:{name}" for name in ("log", "marks", "expiry", "seen", "revisions")
    }
    assert redis.hlen("t:{0}:marks") == 1_501, "a mark holds for the whole horizon"
    calls = 0
    while set(redis.keys()) != {"t:{0}:log", "t:{0}:revisions"}:
        calls += 1
        assert calls < 10
        upto = 1_513 + calls
        await store.apply(0, 0, upto, START_MS + HORIZON_MS + 1, [(0, upto - 1, [])])


async def test_marks_go_at_least_as_fast_as_they_come(redis: Redis, store: RoundStore) -> None:
    believed, rounds = None, 1_200
    for turn in range(4):
        at = START_MS + turn * (HORIZON_MS + 1)
        events = [entry(turn, EACH, f"{turn}.{n}", 0, 1, at, ordinal=n) for n in range(rounds)]
        await store.apply(0, 100, turn + 1, at, [(0, believed, events)])
        believed = turn + 1
        assert redis.hlen("t:{0}:marks") == redis.zcard("t:{0}:seen") == rounds


async def test_a_call_that_moves_nothing_keeps_the_time_of_the_last_record(store: RoundStore) -> None:
    await store.apply(0, 0, 1, START_MS, [(0, None, [entry(0, EACH, "k", 0, 1, START_MS)])])
    await store.apply(0, 0, 1, 0, [(0, 1, [])])
    assert (await store.peek(0, [0]))[0].at == START_MS


async def test_an_event_of_a_clause_that_was_not_needed_is_late_not_repeated(store: RoundStore) -> None:
    """`a & b | c` fired by c alone: a was missing, though c was complete."""

    def of(offset: int, asset: int, member: int, size: int) -> Entry:
        first = entry(offset, EITHER, "k", member, size, START_MS)
        return first._replace(contribution=first.contribution._replace(asset=asset, needed=size))

    events = [of(0, 2, 0, 2), of(1, 2, 1, 2), of(2, 0, 0, 2), of(3, 2, 1, 2)]
    reply = (await store.apply(0, 0, 4, START_MS, [(0, None, events)]))[0]
    assert isinstance(reply, Applied)
    assert kinds(reply.added) == ["fired", "member-late", "member-rerun"]


async def test_contributions_repeated_within_one_batch_count_once(store: RoundStore) -> None:
    first, second = (entry(n, DAY, "k", n, 2, START_MS) for n in range(2))
    again = first._replace(offset=2, event=first.event._replace(id="never"))
    reply = (await store.apply(0, 0, 3, START_MS, [(0, None, [first, second, again])]))[0]
    assert isinstance(reply, Applied)
    assert reply.repeats == 1
    assert kinds(reply.added) == ["fired"]


async def test_shards_answer_for_themselves(store: RoundStore) -> None:
    """One pipeline: a shard that stands elsewhere does not keep the others back."""
    await store.apply(0, 0, 5, START_MS, [(1, None, [])])
    batches = [(shard, None, [entry(0, EACH, "k", 0, 1, START_MS)]) for shard in (0, 1, 2)]
    replies = await store.apply(0, 0, 6, START_MS, batches)
    assert {shard: type(reply) for shard, reply in replies.items()} == {0: Applied, 1: Refused, 2: Applied}
    assert [(await store.peek(0, [shard]))[shard].next_offset for shard in (0, 1, 2)] == [6, 5, 6]


def at_asset(asset: int, each: Entry, **changes: Any) -> Entry:
    return each._replace(contribution=each.contribution._replace(asset=asset, **changes))


async def applied(store: RoundStore, believed: int | None, *entries: Input) -> list[OutboxItem]:
    last = entries[-1]
    reply = (await store.apply(0, 0, last.offset + 1, last.at, [(0, believed, entries)]))[0]
    assert isinstance(reply, Applied)
    return reply.added


@pytest.mark.parametrize("is_one_call", [True, False])
async def test_a_round_that_is_run_again_has_its_newest_events_and_goes_with_its_mark(
    redis: Redis, store: RoundStore, is_one_call: bool
) -> None:
    job = DAY._replace(rerun_policy="refire")
    events = [entry(n, job, "k", member, 3, START_MS) for n, member in enumerate((0, 1, 2, 1, 1, 0))]
    finer = events[4].event._replace(key="1 and finer")
    events[4] = events[4]._replace(event=finer)
    if is_one_call:
        sent = await applied(store, None, *events)
    else:
        sent = [each for n, one in enumerate(events) for each in await applied(store, n or None, one)]
    runs = [run_request(each)[0] for each in sent if "audit" not in each.payload]
    assert [run.generation for run in runs] == [1, 2, 3, 4]
    assert [[event.id for event in run.events] for run in runs] == [
        ["e0.0", "e1.0", "e2.0"],
        ["e0.0", "e3.0", "e2.0"],
        ["e0.0", "e3.0", "e4.0", "e2.0"],
        ["e5.0", "e3.0", "e4.0", "e2.0"],
    ]
    assert {run.windows for run in runs} == {runs[0].windows}
    assert len({run.run_id for run in runs}) == 4
    notes = [audit_entry(each, 0) for each in sent if "audit" in each.payload]
    assert [(note.kind.value, (note.details or {}).get("replaced_event_id")) for note in notes] == [
        ("member-rerun", "e1.0"),
        ("member-rerun", None),
        ("member-rerun", "e0.0"),
    ]
    assert all("it starts the run again" in note.message for note in notes)
    assert redis.hlen("t:{0}:kept") == 1
    await store.apply(0, 0, 7, START_MS + HORIZON_MS, [(0, 6, [])])
    assert redis.hlen("t:{0}:kept") == 1, "it is kept for the whole horizon"
    await store.apply(0, 0, 8, START_MS + HORIZON_MS + 1, [(0, 7, [])])
    assert set(redis.keys()) == {"t:{0}:log", "t:{0}:outbox:0", "t:{0}:revisions"}


async def test_a_round_that_fired_by_other_places_is_not_run_again(store: RoundStore) -> None:
    """What it kept tells of assets by their numbers, which another definition gives to others."""
    job = DAY._replace(rerun_policy="refire", assets=("a", "b"), clauses=((0, 1),), routing="r1")
    both = [at_asset(asset, entry(asset, job, "k", 0, 1, START_MS)) for asset in (0, 1)]
    assert kinds(await applied(store, None, *both)) == ["fired"]
    changed = job._replace(revision=9, assets=("a",), clauses=((0,),), routing="r2")
    (note,) = await applied(store, 2, entry(2, changed, "k", 0, 1, START_MS))
    assert note.payload["audit"] == "member-rerun"
    assert "it starts the run again" not in audit_entry(note, 0).message
    back = job._replace(revision=10)
    (again,) = [
        each
        for each in await applied(store, 3, entry(3, back, "k", 0, 1, START_MS))
        if "audit" not in each.payload
    ]
    assert [event.id for event in run_request(again)[0].events] == ["e3.0", "e1.0"]


async def test_a_member_whose_only_events_are_withdrawn_together_leaves_once(
    redis: Redis, store: RoundStore
) -> None:
    """Ids are unique by source alone: two events of one member, with keys of their own, may have the same."""
    events = [entry(n, DAY, "k", 0, 3, START_MS) for n in range(2)]
    same = [
        each._replace(event=each.event._replace(id="e", key=f"k{n}", source=f"s{n}"))
        for n, each in enumerate(events)
    ]
    await applied(store, None, *same, entry(2, DAY, "k", 1, 3, START_MS))
    assert redis.hget("t:{0}:round:day/i1/k", "count:0") == "2"
    await applied(store, 3, control(3, "withdraw", DAY, "k", "0.0", event_id="e"))
    assert redis.hget("t:{0}:round:day/i1/k", "count:0") == "1"
    (run,) = await applied(store, 4, entry(4, DAY, "k", 0, 3, START_MS), entry(5, DAY, "k", 2, 3, START_MS))
    assert [event.id for event in run_request(run)[0].events] == ["e4.0", "e2.0", "e5.0"]


async def test_d21_the_script_tells_keys_apart_whatever_they_hold(redis: Redis, store: RoundStore) -> None:
    keys = ["k", 'k"', 'k",', "k\\", 'k\\"', "\\", "\\\\", '"', "null", "ü日本", None]
    first = [entry(n, DAY, "k", 0, 3, START_MS) for n in range(len(keys))]
    again = [entry(n + len(keys), DAY, "k", 0, 3, START_MS) for n in range(len(keys))]
    named = [
        each._replace(event=each.event._replace(key=keys[n % len(keys)]))
        for n, each in enumerate(first + again)
    ]
    sent = await applied(store, None, *named)
    assert kinds(sent) == ["member-replaced"] * len(keys)
    whole: dict[str, str] = redis.hgetall("t:{0}:round:day/i1/k")  # type: ignore[assignment]
    round_of = {name: value for name, value in whole.items() if name[:2] in ("m:", "x:")}
    held = {json.loads(f"[{value}]")[1]: json.loads(f"[{value}]")[2] for value in round_of.values()}
    assert held == {key: each.event.id for key, each in zip(keys, named[len(keys) :], strict=True)}
    beside = {name: json.loads(f"[{value}]")[1] for name, value in round_of.items() if name[0] == "x"}
    assert {name.split(":", 3)[3] for name in beside} == {
        json.dumps(key, ensure_ascii=False) for key in keys[1:]
    }


async def test_only_jobs_that_run_rounds_again_keep_them(redis: Redis, store: RoundStore) -> None:
    jobs = [EACH, DAY, DAY._replace(rerun_policy="ignore"), DAY._replace(rerun_policy="new_round")]
    jobs = [job._replace(incarnation=f"i{n}") for n, job in enumerate(jobs)]
    await applied(store, None, *(entry(n, job, "k", 0, 1, START_MS) for n, job in enumerate(jobs)))
    assert redis.hlen("t:{0}:marks") == 4
    assert redis.exists("t:{0}:kept") == 0


async def test_a_job_without_partitions_runs_when_all_its_assets_came_and_every_time(
    store: RoundStore,
) -> None:
    def came(n: int, asset: int) -> Entry:
        each = at_asset(asset, entry(n, BOTH, "", 0, 1, START_MS), decoded=None)
        return each._replace(event=each.event._replace(key=None))

    assert await applied(store, None, came(0, 1)) == []
    (first,) = await applied(store, 1, came(1, 0))
    sent = await applied(store, 2, came(2, 0), came(3, 0), came(4, 1))
    assert kinds(sent) == ["member-replaced", "fired"]
    requests = [run_request(each)[0] for each in (first, sent[1])]
    assert [(each.partition_key, each.generation) for each in requests] == [(None, 1), (None, 2)]
    assert [[event.id for event in each.events] for each in requests] == [["e1.0", "e0.0"], ["e3.0", "e4.0"]]


@pytest.mark.parametrize("clauses", [((0,), (1,)), ((0, 1),)], ids=["alone", "together"])
async def test_a_window_that_never_has_enough_is_noted_when_it_opens(
    store: RoundStore, clauses: tuple[tuple[int, ...], ...]
) -> None:
    """Once for the round, though its members come over several calls and the other asset's before it."""
    job = NEVER._replace(clauses=clauses)
    few = [at_asset(0, entry(n, job, "2010-02", n, 28, START_MS), needed=30) for n in range(1, 4)]
    other = at_asset(1, entry(0, job, "2010-02", 0, 2, START_MS))
    (noted,) = await applied(store, None, other, few[0], few[1])
    assert await applied(store, 3, few[2]) == []
    note = audit_entry(noted, 0)
    assert (note.kind, note.asset, note.event_id) == (AuditKind.WINDOW_UNSATISFIABLE, "a", "e1.0")
    assert "28 members" in note.message
    assert "30" in note.message


async def test_an_asset_without_a_date_begins_no_round_whose_key_is_a_date(store: RoundStore) -> None:
    """A day's hourly events with a daily one by its own key: only the hourly mapper reads the date."""
    job = DAY._replace(assets=("hourly", "daily"), clauses=((0, 1),))
    hours = [entry(n, job, "2010-03-14", n, 2, START_MS) for n in range(2)]
    daily = [at_asset(1, entry(n, job, "2010-03-14", 0, 1, START_MS), decoded=None) for n in (2, 3)]
    sent = await applied(store, None, *hours, *daily)
    assert kinds(sent) == ["fired", "member-rerun"]
    assert kinds(await applied(store, 4, entry(4, job, "2010-03-14", 0, 2, START_MS))) == ["member-rerun"]


async def test_a_date_that_could_not_be_read_once_makes_no_other_kind_of_key(store: RoundStore) -> None:
    """Of one batch: a member with the date of its key, one for which the mapper failed, one more after the firing."""
    members = [entry(n, DAY, "2010-03-14", n % 2, 2, START_MS) for n in range(3)]
    failed = [at_asset(0, each, decoded=None, is_date_failed=True) for each in members[1:]]
    fired, again = await applied(store, None, members[0], *failed)
    assert kinds([fired, again]) == ["fired", "member-rerun"]
    request, conflict = run_request(fired)
    assert (request.partition_date, conflict) == (None, None)


async def test_keys_without_a_date_begin_anew_where_the_job_says_nothing(store: RoundStore) -> None:
    members = [
        at_asset(0, entry(n, DAY, "all", member, 2, START_MS), decoded=None)
        for n, member in enumerate((0, 1, 1, 0))
    ]
    sent = await applied(store, None, *members)
    assert [each.payload.get("generation") for each in sent] == [1, 2]


def control(offset: int, kind: str, job: JobRef, key: str, opened: str, **more: str) -> Control:
    about = {"job": job.id, "incarnation": job.incarnation, "key": key, "opened": opened}
    record: DeadlineReached | OperatorAction = (
        DeadlineReached.model_validate({**about, "then": kind})
        if kind in ("fail", "drop")
        else OperatorAction.model_validate({**about, "kind": kind, "id": "1", "by": "ana", **more})
    )
    return Control(offset, START_MS, record, 0)


def change(offset: int, job: JobRef, revision: int, routing: str = "") -> Control:
    return Control(offset, START_MS, DefinitionChange(job=job.id, revision=revision, routing=routing), 0)


async def test_a_change_takes_the_rounds_of_its_job_with_their_deadlines_and_of_no_other(
    redis: Redis, store: RoundStore
) -> None:
    other = TIMED._replace(id="timed5")  # its rounds come soon after those of the job
    for offset, job in enumerate((TIMED, other)):
        await applied(store, offset or None, entry(offset, job, "k", 0, 2, START_MS))
    moved = await applied(store, 2, change(2, TIMED, TIMED.revision + 1))
    assert [(each.moved_round, each.revision) for each in moved] == [("timed/i1/k", 10)]
    assert redis.zrange("t:{0}:open", 0, -1) == ["timed5/i1/k"]
    assert redis.zrange("t:{0}:due", 0, -1) == ["fire/timed5/i1/k"]
    assert redis.hexists("t:{0}:moved:2.0.2.1", "m:0:0")
    await store.confirm([(0, 0, moved)])
    assert not redis.keys("t:{0}:moved:*")
    assert await applied(store, 3, change(3, TIMED, TIMED.revision + 1)) == []


async def test_rounds_to_map_again_that_redis_lost_are_not_taken_for_such_as_are_on_the_log(
    redis: Redis, store: RoundStore
) -> None:
    await applied(
        store, None, entry(0, DAY, "a", 0, 3, START_MS), entry(0, DAY, "b", 0, 3, START_MS, ordinal=1)
    )
    first, second = await applied(store, 1, change(1, DAY, DAY.revision + 1))
    read = await store.moved(0, 0, [first, second])
    assert read is not None
    assert ["m:0:0" in fields for fields in read] == [True, True]
    redis.delete("t:{0}:moved:1.0.2.1")  # all of it was sent, and confirm broke off
    assert await store.moved(0, 0, [first, second]) == [[], read[1]]
    redis.delete("t:{0}:moved:1.0.2.2", "t:{0}:outbox:0", "t:{0}:log")
    assert await store.moved(0, 0, [first, second]) is None
    assert await store.moved(0, 0, []) == []


async def test_b105_a_deleted_job_is_remembered_until_nothing_older_can_come(
    redis: Redis, store: RoundStore
) -> None:
    def at(offset: int, later: int, job: JobRef, routing: str = "") -> Control:
        record = DefinitionChange(job=job.id, revision=job.revision + 1, routing=routing)
        return Control(offset, START_MS + later, record, 0)

    assert await applied(store, None, entry(0, DAY, "k", 0, 3, START_MS), at(1, 0, DAY))
    assert redis.hget("t:{0}:revisions", "day") == "3 "
    assert redis.zscore("t:{0}:gone", "day") == START_MS
    await store.apply(0, 0, 3, START_MS + 8 * HORIZON_MS, [(0, 2, [])])
    assert await store.revisions([0]) == {0: {"day": 3}}
    await store.apply(0, 0, 4, START_MS + 8 * HORIZON_MS + 1, [(0, 3, [])])
    assert await store.revisions([0]) == {0: {}}
    assert not redis.exists("t:{0}:gone")
    await applied(store, 4, at(4, 0, EACH), at(5, 1, EACH._replace(revision=9), "r"))
    assert redis.hget("t:{0}:revisions", "each") == "10 r"
    assert not redis.exists("t:{0}:gone"), "the job is there again"


async def test_a_change_within_a_batch_parts_what_comes_before_it_from_what_comes_after(
    redis: Redis, store: RoundStore
) -> None:
    newer = DAY._replace(revision=9)
    entries = [entry(0, DAY, "a", 0, 3, START_MS), entry(1, newer, "b", 0, 3, START_MS)]
    entries += [entry(2, DAY, "a", 1, 3, START_MS), entry(3, newer, "a", 2, 3, START_MS)]
    first, late = await applied(store, None, *entries)
    assert (first.moved_round, first.place) == ("day/i1/a", (1, 0, 2, 1))
    found = waiting(late, ())
    assert found is not None
    assert [event.id for _, event in found.events] == ["e2.0"]
    assert redis.hget("t:{0}:round:day/i1/a", "count:0") == "1"


async def test_a_change_that_is_routed_alike_moves_the_revision_and_no_round(
    redis: Redis, store: RoundStore
) -> None:
    """Contributions of both revisions meet in one round, whose run names the newest, however it is fired."""
    old = DAY._replace(routing="x")
    newer = old._replace(revision=9)
    first, late = (entry(n, old, "k", member, 3, START_MS) for n, member in ((0, 0), (3, 2)))
    sent = await applied(store, None, first, change(1, old, 9, "x"), entry(2, newer, "k", 1, 3, START_MS))
    assert sent == []
    (fired,) = await applied(store, 3, late)
    assert run_request(fired)[0].revision == 9
    again = [entry(4, old, "l", 0, 3, START_MS), change(5, old, 10, "x"), control(6, "fire", old, "l", "4.0")]
    (each,) = await applied(store, 4, *again)
    request, _ = acted(each, 0)
    assert request is not None
    assert request.revision == 10
    assert redis.hgetall("t:{0}:revisions") == {"day": "10 x"}


async def test_a_routing_that_comes_back_takes_what_was_mapped_by_it_before_and_moves_the_rounds_between(
    redis: Redis, store: RoundStore
) -> None:
    old, between = DAY._replace(routing="x"), DAY._replace(revision=8, routing="y")
    entries = [entry(0, old, "k", 0, 3, START_MS), entry(1, between, "k", 1, 3, START_MS)]
    sent = await applied(store, None, *entries, change(2, old, 9, "x"), entry(3, old, "k", 2, 3, START_MS))
    assert [(each.moved_round, each.revision) for each in sent] == [("day/i1/k", 8), ("day/i1/k", 9)]
    assert redis.hget("t:{0}:round:day/i1/k", "count:0") == "1"


async def test_of_two_events_with_one_key_the_one_that_was_mapped_again_gives_way_unless_it_is_newer(
    store: RoundStore,
) -> None:
    def came(offset: int, at: int, is_remapped: bool) -> Entry:
        each = entry(offset, DAY, "k", 0, 3, START_MS)
        return each._replace(event=each.event._replace(at=at), is_remapped=is_remapped)

    sent = await applied(
        store, None, came(0, 5, False), came(1, 5, True), came(2, 6, True), came(3, 1, False)
    )
    notes = [audit_entry(each, 0) for each in sent]
    assert [(note.event_id, (note.details or {})["replaced_event_id"]) for note in notes] == [
        ("e0.0", "e1.0"),
        ("e2.0", "e0.0"),
        ("e3.0", "e2.0"),
    ]


async def test_b060_an_event_by_two_ways_gives_one_run_that_names_both_and_is_told_of_once_if_it_repeats(
    store: RoundStore,
) -> None:
    either = BOTH._replace(id="either way", clauses=((0,), (1,)))

    def ways(offset: int) -> list[Entry]:
        came = [entry(offset, either, "k", 0, 1, START_MS, ordinal) for ordinal in (0, 1)]
        event = MemberEvent("k", "e", "s", START_MS, None, None, "a", None, ("b",))
        return [
            each._replace(event=event, contribution=each.contribution._replace(asset=n, also=(1 - n,)))
            for n, each in enumerate(came)
        ]

    (fired,) = await applied(store, None, *ways(0))
    request, _ = run_request(fired)
    assert [(event.id, event.asset, event.routes) for event in request.events] == [("e", "a", ("a", "b"))]
    assert kinds(await applied(store, 1, *ways(1))) == ["duplicate-event"]


async def test_b064_what_waits_longer_than_events_are_remembered_still_counts(store: RoundStore) -> None:
    first = entry(0, DAY, "k", 0, 3, START_MS)
    await applied(store, None, first)
    for n in range(1, 9):  # others come and fire meanwhile, so that what has expired is taken out
        at = START_MS + n * HORIZON_MS
        await applied(store, n, *(entry(n, EACH, f"k{n}", 0, 1, at),))
    at = START_MS + 8 * HORIZON_MS
    (fired,) = await applied(store, 9, entry(9, DAY, "k", 1, 3, at), entry(10, DAY, "k", 2, 3, at))
    request, _ = run_request(fired)
    assert [event.id for event in request.events] == ["e0.0", "e9.0", "e10.0"]


async def test_a_round_that_was_dropped_is_not_run_again_by_a_member_that_comes_again(
    store: RoundStore,
) -> None:
    job = DAY._replace(rerun_policy="refire")
    sent = await applied(store, None, entry(0, job, "k", 0, 3, START_MS), control(1, "drop", job, "k", "0.0"))
    assert [each.control is not None for each in sent] == [True]
    again = await applied(store, 2, entry(2, job, "k", 0, 3, START_MS), entry(3, job, "k", 1, 3, START_MS))
    assert kinds(again) == ["member-rerun", "member-late"]


async def test_a_member_whose_event_is_withdrawn_keeps_those_beside_it_and_the_event_stays_away(
    redis: Redis, store: RoundStore
) -> None:
    first, beside, other = (entry(n, DAY, "k", member, 3, START_MS) for n, member in enumerate((0, 0, 1)))
    beside = beside._replace(event=beside.event._replace(key="0 and finer"))
    out = control(3, "withdraw", DAY, "k", "0.0", event_id="e0.0")
    again = first._replace(offset=4, contribution=first.contribution._replace(offset=4))
    sent = await applied(store, None, first, beside, other, out, again)
    assert kinds(sent[1:]) == ["duplicate-event"]
    assert (redis.hget("t:{0}:round:day/i1/k", "count:0")) == "2"
    (each,) = await applied(store, 5, control(5, "fire", DAY, "k", "0.0"))
    request, _ = acted(each, 0)
    assert request is not None
    assert [(event.member, event.id) for event in request.events] == [(0, "e1.0"), (1, "e2.0")]
    out = control(6, "withdraw", DAY, "k2", "9.0", event_id="e0.0")
    (each,) = await applied(store, 6, out)
    assert [entry.kind for entry in acted(each, 0)[1]] == [AuditKind.ACTION_WITHOUT_EFFECT]


@pytest.mark.parametrize("what", ["drop", "fire", "discard", "withdraw"])
async def test_what_is_done_to_a_round_is_nothing_to_the_next_one_of_its_key(
    redis: Redis, store: RoundStore, what: str
) -> None:
    """Rule R4: the round that was meant has gone by the time that the record is read."""
    first, second = (entry(n, ANEW, "k", 0, 3, START_MS) for n in (0, 2))
    gone = control(1, "discard", ANEW, "k", "0.0")
    late = control(3, what, ANEW, "k", "0.0", **({"event_id": "e2.0"} if what == "withdraw" else {}))
    _, *sent = await applied(store, None, first, gone, second, late)
    told = [audited.kind for each in sent for audited in acted(each, 0)[1]]
    assert told == ([] if what == "drop" else [AuditKind.ACTION_WITHOUT_EFFECT])
    assert redis.hget("t:{0}:round:anew/i1/k", "count:0") == "1"


async def test_what_comes_after_a_discarded_round_in_the_same_batch_opens_another(
    redis: Redis, store: RoundStore
) -> None:
    first, second = (entry(n, DAY, "k", 0, 3, START_MS) for n in (0, 2))
    (each,) = await applied(store, None, first, control(1, "discard", DAY, "k", "0.0"), second)
    assert [one["id"] for one in (acted(each, 0)[1][0].details or {})["events"]] == ["e0.0"]
    assert redis.hget("t:{0}:round:day/i1/k", "opened") == f"2.0.{START_MS}"
    assert redis.hlen("t:{0}:marks") == 0


async def test_an_event_beside_a_members_own_is_withdrawn_alone(redis: Redis, store: RoundStore) -> None:
    own, beside = (entry(n, DAY, "k", 0, 3, START_MS) for n in range(2))
    beside = beside._replace(event=beside.event._replace(key="0 and finer"))
    await applied(store, None, own, beside, control(2, "withdraw", DAY, "k", "0.0", event_id="e1.0"))
    stored = redis.hgetall("t:{0}:round:day/i1/k")
    assert [name for name in stored if name.startswith(("m:", "x:"))] == ["m:0:0"]
    assert '"e0.0"' in stored["m:0:0"]
    assert stored["count:0"] == "1"
