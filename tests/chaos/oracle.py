"""What must have come out of a chaos run, from what stands on `asset-events` and the facts of its jobs.

Independent of the product: JSON, the facts of tests/chaos/jobs.py, and the rounds of tests/chaos/rounds.py. It reads
the logs as any client would and asks of each event: does it have exactly one fate, and does the audit log say so where
that is no run?

What may legally differ is taken in, and nothing else:
- the order between partitions of `asset-events`, and between assets (tests/chaos/rounds.py says how);
- of several records with one (source, id), which one counts where they stand in different partitions. All others must
  be audited as duplicates: by ingest at their place, or, where Redis lost the mark of the first, by every job that
  the event concerns. The one that counts may be audited too, if its mark was lost between two reads of it;
- an audit entry written twice with one id counts once.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, NamedTuple

from tests.chaos.jobs import BUCKET, FACTS, NOWHERE, SEGMENTS, Facts, commands_topic
from tests.chaos.plan import EVENT_TYPE
from tests.chaos.rounds import Arrival, Fired, Identity, Outcome, judge

_HOUR: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d)(?::(\d\d))?", re.ASCII)


class Raw(NamedTuple):
    """One committed record as it stands in its log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def position(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Logs:
    """Everything that stands on the topics when nothing is left to do."""

    events: Sequence[Raw]
    """`asset-events`, each partition in order."""
    commands: Sequence[Raw]
    audit: Sequence[Raw]
    rejected: Sequence[Raw]
    poison: Collection[str] = ()
    """Positions of what the driver wrote on internal topics to be refused."""


@dataclass(slots=True)
class Verdict:
    """What is wrong; all zero and empty where nothing is."""

    commands: int = 0
    lost: int = 0
    doubled: int = 0
    unexplained: int = 0
    rounds: int = 0
    """(job, key) that have had a round."""
    problems: list[str] = field(default_factory=list)
    audited: Counter[str] = field(default_factory=Counter)

    def unexpected(self, problem: str) -> None:
        self.unexplained += 1
        self.problems.append(problem)


class Event(NamedTuple):
    """A record of `asset-events` that is an event."""

    identity: Identity
    asset: str
    key: str | None
    raw: Raw


@dataclass(slots=True)
class _Entries:
    """The audit log, by what the oracle asks of it; every entry must be taken by somebody."""

    by_position: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """(kind, position) -> entry ids, of ingest and of unreadable records."""
    by_event: dict[tuple[str, str, Identity], list[Mapping[str, Any]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """(kind, job, event) -> entries, of the mapper and the rollup."""


def check(logs: Logs, jobs: Sequence[str] = tuple(FACTS)) -> Verdict:
    """The verdict on a run of these jobs."""
    verdict = Verdict()
    events, refused = _read_events(logs.events)
    entries = _read_audit(logs.audit, verdict)
    _check_refused(refused, entries, logs.rejected, verdict)
    for position in logs.poison:
        if not entries.by_position.pop(("unreadable-record", position), None):
            verdict.unexpected(f"{position} cannot be read, and no audit entry says so")
    records: dict[Identity, list[Event]] = defaultdict(list)
    for event in events:
        records[event.identity].append(event)
    known = {asset for job in jobs for asset in (*FACTS[job].assets, FACTS[job].outlet)}
    again = _check_duplicates(records, known, entries, verdict)
    outcomes = _read_commands(logs.commands, jobs, verdict)
    for job in jobs:
        _check_job(job, records, again, outcomes[job], entries, verdict)
    _check_outlets(jobs, outcomes, events, verdict)
    for (kind, position), ids in entries.by_position.items():
        verdict.unexpected(f"audit entry {kind} at {position} is about nothing that happened ({len(ids)})")
    for (kind, job, identity), found in entries.by_event.items():
        if found:
            verdict.unexpected(
                f"audit entry {kind} of {job or 'no job'} on {identity} has no reason: {found[0]}"
            )
    return verdict


def _read_events(records: Iterable[Raw]) -> tuple[list[Event], list[Raw]]:
    events, refused = [], []
    for raw in records:
        event = _event(raw)
        if event is None:
            refused.append(raw)
        else:
            events.append(event)
    return events, refused


def _event(raw: Raw) -> Event | None:
    """The event, None where it is none; knows the faults of tests/chaos/plan.py and no others."""
    try:
        given = json.loads(raw.value or b"")
    except ValueError:
        return None
    if not isinstance(given, dict) or given.get("specversion") != "1.0" or given.get("type") != EVENT_TYPE:
        return None
    data = given.get("data")
    if not isinstance(data, dict) or not {"id", "source"} <= given.keys() or "asset" not in data:
        return None
    if not data.keys() <= {"asset", "asset_uri", "partition_key", "partition_date", "extra", "aliases"}:
        return None
    key = data.get("partition_key")
    if key is not None and not 1 <= len(key) <= 250:
        return None
    return Event((given["source"], given["id"]), data["asset"], key, raw)


def _read_audit(records: Iterable[Raw], verdict: Verdict) -> _Entries:
    entries, seen = _Entries(), set()
    for raw in records:
        entry = json.loads(raw.value or b"null")
        if entry["id"] in seen:
            continue
        seen.add(entry["id"])
        kind = entry["kind"]
        verdict.audited[kind] += 1
        if kind == "fired":  # what fired is known by its command
            continue
        if entry["service"] == "ingest" or kind == "unreadable-record":
            entries.by_position[kind, entry["position"]].add(entry["id"])
        else:
            event = (entry.get("event_source") or "", entry.get("event_id") or "")
            entries.by_event[kind, entry.get("job") or "", event].append(entry)
    return entries


def _check_refused(
    refused: Iterable[Raw], entries: _Entries, rejected: Iterable[Raw], verdict: Verdict
) -> None:
    letters = set()
    for raw in rejected:
        letter = json.loads(raw.value or b"null")
        letters.add(f"{letter['topic']}/{letter['partition']}@{letter['offset']}")
    for raw in refused:
        kind = _kind_of_refusal(raw)
        if entries.by_position.pop((kind, raw.position), None) is None:
            verdict.unexpected(
                f"{raw.position} is no event, and no audit entry {kind} says so: {raw.value!r:.80}"
            )
        if raw.position not in letters:
            verdict.unexpected(f"{raw.position} is no event, and is not among the rejected ones")
        letters.discard(raw.position)
    for position in sorted(letters):
        verdict.unexpected(f"{position} is an event, but was rejected")


def _kind_of_refusal(raw: Raw) -> str:
    """An event that names aliases, but no asset that they stand for, has a kind of its own."""
    try:
        data = json.loads(raw.value or b"")["data"]
    except (ValueError, TypeError, KeyError):
        return "event-refused"
    return "alias-without-asset" if "aliases" in data and "asset" not in data else "event-refused"


def _check_duplicates(
    records: Mapping[Identity, Sequence[Event]],
    known: Collection[str | None],
    entries: _Entries,
    verdict: Verdict,
) -> dict[Identity, int]:
    """By event, how many of its records ingest let through beyond the first; its jobs must have noticed those."""
    again: dict[Identity, int] = {}
    for identity, group in records.items():
        audited = sum(
            entries.by_position.pop(("duplicate-event", event.raw.position), None) is not None
            for event in group
        )
        if len(group) == 1 and audited:
            verdict.unexpected(
                f"{identity} came once, at {group[0].raw.position}, and was called a duplicate"
            )
        again[identity] = max(0, len(group) - 1 - audited)
        if group[0].asset not in known:
            noted = [entries.by_position.pop(("unknown-asset", each.raw.position), None) for each in group]
            if not any(noted):
                verdict.unexpected(f"{identity} is for {NOWHERE}, and no audit entry says so")
            again[identity] = 0
    return again


def _read_commands(
    records: Iterable[Raw], jobs: Sequence[str], verdict: Verdict
) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """The commands by job and key, each run once; what is there twice is counted."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {job: defaultdict(list) for job in jobs}
    runs: set[str] = set()
    rounds: set[tuple[str, str, int]] = set()
    for raw in records:
        command = json.loads(raw.value or b"null")
        verdict.commands += 1
        job, key, generation = command["job"], command["partition_key"], command["generation"]
        if command["run_id"] in runs or (job, key, generation) in rounds:
            verdict.doubled += 1
            verdict.problems.append(f"{raw.position} is run {generation} of {job} {key!r} again")
            continue
        runs.add(command["run_id"])
        rounds.add((job, key, generation))
        if raw.topic != commands_topic(job) or raw.key != key.encode() or job not in found:
            verdict.unexpected(
                f"{raw.position} holds a command of {job} {key!r} under record key {raw.key!r}"
            )
            continue
        found[job][key].append(command)
    return found


def _check_job(
    job: str,
    records: Mapping[Identity, Sequence[Event]],
    again: Mapping[Identity, int],
    commands: Mapping[str, Sequence[Mapping[str, Any]]],
    entries: _Entries,
    verdict: Verdict,
) -> None:
    facts = FACTS[job]
    arrivals: dict[str, dict[Identity, Arrival]] = defaultdict(dict)
    streams: dict[str, dict[tuple[int, int], list[Identity]]] = defaultdict(lambda: defaultdict(list))
    for identity, group in records.items():
        event = group[0]
        if event.asset not in facts.assets:
            continue
        placed = _place(facts, event)
        if isinstance(placed, str):
            if not entries.by_event.pop((placed, job, identity), None):
                verdict.unexpected(f"{job}: {identity} with key {event.key!r} needs an audit entry {placed}")
            continue
        key, arrival = placed
        arrivals[key][identity] = arrival
        if len({each.raw.partition for each in group}) == 1:
            streams[key][event.raw.partition, arrival.asset].append(identity)
        noted = entries.by_event.pop(("duplicate-event", job, identity), [])
        twice = [  # a late event is not remembered, so that its double is late again
            entries.by_event[kind, job, identity][1:] for kind in ("member-late", "member-rerun")
        ]
        if len(noted) + sum(map(len, twice)) < again[identity]:
            verdict.unexpected(
                f"{job}: {identity} came {len(group)} times, and not every time is accounted for"
            )
        if noted and len(group) == 1:
            verdict.unexpected(f"{job}: {identity} came once and was called a duplicate")
    for stream in streams.values():
        for events in stream.values():
            events.sort(key=lambda identity: records[identity][0].raw.offset)
    for key in sorted(arrivals.keys() | commands.keys()):
        outcome = _outcome(job, arrivals[key], commands.get(key, ()), entries, verdict)
        verdict.rounds += 1
        judged = judge(facts, arrivals[key], streams[key].values(), outcome)
        verdict.lost += judged.lost
        verdict.doubled += judged.doubled
        for problem in judged.faults:
            verdict.unexpected(f"{job} {key!r}: {problem}")


def _place(facts: Facts, event: Event) -> tuple[str, Arrival] | str:
    """The downstream key of an event and its place in the round there, or the kind of audit entry that it gets."""
    if event.key is None:
        return "no-partition-key"
    asset = facts.assets.index(event.asset)
    if facts.kind == "each":
        return event.key, Arrival(event.identity, event.key, asset, 0)
    if facts.kind == "segments":
        return BUCKET, Arrival(event.identity, event.key, asset, SEGMENTS.index(event.key))
    found = _HOUR.fullmatch(event.key)
    try:
        day = found and date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        day = None
    if found is None or day is None or int(found[4]) > 23 or int(found[5] or 0) > 59:
        return "mapping-failed"
    return day.isoformat(), Arrival(event.identity, event.key, asset, int(found[4]))


def _outcome(
    job: str,
    arrivals: Mapping[Identity, Arrival],
    commands: Iterable[Mapping[str, Any]],
    entries: _Entries,
    verdict: Verdict,
) -> Outcome:
    facts, outcome = FACTS[job], Outcome()
    for command in commands:
        members = [
            (facts.assets.index(event["asset"]), event["member"], (event["source"], event["id"]))
            for event in command["triggering_asset_events"]
        ]
        outcome.fired.append(Fired(command["generation"], frozenset(members), command["completed_by"]))
        windows = {window["asset"]: (window["arrived"], window["expected"]) for window in command["windows"]}
        counted = {
            name: (len({member for asset, member, _ in members if asset == index}), facts.size)
            for index, name in enumerate(facts.assets)
        }
        if windows != counted:
            verdict.unexpected(f"{job} {command['partition_key']!r}: says {windows}, holds {counted}")
    for identity in arrivals:
        for entry in entries.by_event.pop(("member-replaced", job, identity), ()):
            outcome.replaced.append((identity, entry["details"]["replaced_event_id"]))
        if entries.by_event.pop(("member-late", job, identity), None):
            outcome.late.add(identity)
        if entries.by_event.pop(("member-rerun", job, identity), None):
            outcome.rerun.add(identity)
    return outcome


def _check_outlets(
    jobs: Sequence[str],
    commands: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
    events: Iterable[Event],
    verdict: Verdict,
) -> None:
    """Every run of a job with an outlet has published exactly one event."""
    by_outlet = Counter((event.asset, event.key) for event in events)
    for job in jobs:
        outlet = FACTS[job].outlet
        if outlet is None:
            continue
        for key, some in commands[job].items():
            published = by_outlet.pop((outlet, key), 0)
            verdict.lost += max(0, len(some) - published)
            verdict.doubled += max(0, published - len(some))
            if published != len(some):
                verdict.problems.append(f"{len(some)} runs of {job} {key!r} published {published} events")
        for (asset, other), published in by_outlet.items():
            if asset == outlet:
                verdict.doubled += published
                verdict.problems.append(f"no run of {job} {other!r}, but {published} events of its outlet")
