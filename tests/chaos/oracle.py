"""What must have come out of a chaos run, from what stands on `asset-events` and the facts of its jobs.

Independent of the product: JSON, the facts of tests/chaos/jobs.py, and the rounds of tests/chaos/rounds.py. It reads
the logs as any client would and asks of each event: does it have exactly one fate, and does the audit log say so where
that is no run?

What may legally differ is taken in, and nothing else:
- the order between partitions of `asset-events`, and between assets (tests/chaos/rounds.py says how);
- of several records with one (source, id), which one counts where they stand in different partitions. All others must
  be audited as duplicates: by ingest at their place, or, where Redis lost the mark of the first, by every job that
  the event concerns. The one that counts may be audited too, if its mark was lost between two reads of it;
- an audit entry written twice with one id counts once;
- when a deadline or a person ends a round, or a definition changes. The audit log names the events that a round ended
  with, and what waits in open rounds is read from Redis, so that nothing can hide there. Of jobs whose definition
  changes only this is asked: every event has exactly one fate, and every run a full window of one of the variants.
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
from tests.chaos.rounds import Arrival, Ended, How, Identity, Outcome, judge

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


class Action(NamedTuple):
    """What a person did to a round."""

    kind: str
    job: str
    key: str
    position: str
    """Of its record, `contributions/<partition>@<offset>`."""


Members = frozenset[tuple[int, int, Identity]]
"""(asset, member, event)."""


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
    actions: Sequence[Action] = ()
    open: Mapping[tuple[str, str], Members] | None = None
    """What waits in Redis, by (job, key); None where nobody looked."""
    unchanged: Mapping[int, int] = field(default_factory=dict)
    """By partition of `asset-events`, up to which offset ingest knew of no change of a definition for certain."""


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
    controls: dict[tuple[str, str], list[Mapping[str, Any]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """(job, key) -> entries on what deadlines and people did, in their order on the log."""


_ENDED: Final[Mapping[str, How]] = {
    "deadline-failed": "failed",
    "deadline-dropped": "dropped",
    "round-discarded": "discarded",
}
_OF_ACTION: Final = {
    "fire": "round-fired",
    "discard": "round-discarded",
    "withdraw": "member-withdrawn",
}
_CONTROLS: Final = {*_ENDED, *_OF_ACTION.values(), "action-without-effect"}


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
    _check_actions(logs.actions, entries, verdict)
    waiting: dict[str, dict[str, Members] | None] = dict.fromkeys(jobs)
    if logs.open is not None:
        waiting = {job: {} for job in jobs}
        for (job, key), members in logs.open.items():
            if (of_job := waiting.get(job)) is None:
                verdict.unexpected(f"a round of {job} {key!r} is open, which nobody defined")
            else:
                of_job[key] = members
    for job in jobs:
        if FACTS[job].changes:
            unchanged = logs.unchanged
            _check_changing(job, records, again, unchanged, outcomes[job], waiting[job], entries, verdict)
        else:
            _check_job(job, records, again, outcomes[job], waiting[job], entries, verdict)
    _check_outlets(jobs, outcomes, events, verdict)
    for (kind, position), ids in entries.by_position.items():
        verdict.unexpected(f"audit entry {kind} at {position} is about nothing that happened ({len(ids)})")
    for (job, key), some in entries.controls.items():
        verdict.unexpected(f"audit entry {some[0]['kind']} of {job} {key!r} has no reason: {some[0]}")
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


TELLING: Final = {"consumer-registered", "definition-changed", "dispatch-cap-reached", "fired"}
"""What is about no event, or known by commands, or by the entries of events that count nowhere any more."""


def _read_audit(records: Iterable[Raw], verdict: Verdict) -> _Entries:
    entries, seen = _Entries(), set()
    for raw in records:
        entry = json.loads(raw.value or b"null")
        if entry["id"] in seen:
            continue
        seen.add(entry["id"])
        kind = entry["kind"]
        verdict.audited[kind] += 1
        if kind in TELLING:
            continue
        if entry["service"] == "ingest" or kind == "unreadable-record":
            entries.by_position[kind, entry["position"]].add(entry["id"])
        elif kind in _CONTROLS:
            entries.controls[entry["job"], entry.get("partition_key") or ""].append(entry)
        else:
            event = (entry.get("event_source") or "", entry.get("event_id") or "")
            entries.by_event[kind, entry.get("job") or "", event].append(entry)
    for some in entries.controls.values():
        some.sort(key=lambda entry: int(entry["position"].rpartition("@")[2]))
    return entries


def _check_actions(actions: Iterable[Action], entries: _Entries, verdict: Verdict) -> None:
    """Every action has one audit entry, which says what came of it, and there are no others."""
    done = {action.position: action for action in actions}
    for (job, key), some in entries.controls.items():
        for entry in some:
            if entry["kind"].startswith("deadline-"):
                continue
            action = done.pop(entry["position"], None)
            right = action and (_OF_ACTION[action.kind], "action-without-effect")
            if action is None or action[1:3] != (job, key) or entry["kind"] not in (right or ()):
                verdict.unexpected(
                    f"audit entry {entry['kind']} of {job} {key!r} is about {action or 'nobody'}"
                )
    for action in done.values():
        verdict.unexpected(f"{action} is not in the audit log")


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
    waiting: Mapping[str, Members] | None,
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
    for key in sorted(arrivals.keys() | commands.keys() | (waiting or {}).keys()):
        outcome = _outcome(job, key, arrivals[key], commands.get(key, ()), entries, verdict)
        outcome.open = None if waiting is None else waiting.get(key, frozenset())
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
    key: str,
    arrivals: Mapping[Identity, Arrival],
    commands: Iterable[Mapping[str, Any]],
    entries: _Entries,
    verdict: Verdict,
) -> Outcome:
    facts, outcome = FACTS[job], Outcome()
    controls = entries.controls.pop((job, key), [])
    for entry in controls:
        named = [(event["source"], event["id"]) for event in entry["details"].get("events", ())]
        if how := _ENDED.get(entry["kind"]):
            places = [arrivals.get(one, Arrival(one, "", 0, 0)) for one in named]
            members = frozenset((each.asset, each.member, each.event) for each in places)
            outcome.ended.append(Ended(0, members, None, how))
        elif entry["kind"] == "member-withdrawn":
            outcome.withdrawn += named
    causes: Counter[str] = Counter()
    for command in commands:
        members = frozenset(
            (facts.assets.index(event["asset"]), event["member"], (event["source"], event["id"]))
            for event in command["triggering_asset_events"]
        )
        causes[command["cause"]] += 1
        by = command.get("completed_by")
        if command.get("is_partial", False) != (by is None) or (by is None) != (command["cause"] != "assets"):
            verdict.unexpected(f"{job} {key!r}: cause {command['cause']!r}, completed by {by!r}")
        outcome.ended.append(Ended(command["generation"], members, by))
        windows = {window["asset"]: (window["arrived"], window["expected"]) for window in command["windows"]}
        counted = {
            name: (len({member for asset, member, _ in members if asset == index}), facts.size)
            for index, name in enumerate(facts.assets)
        }
        if windows != counted:
            verdict.unexpected(f"{job} {key!r}: says {windows}, holds {counted}")
    kinds = Counter(entry["kind"] for entry in controls)
    ended_by = {
        "fire": causes["deadline"],
        "fail": kinds["deadline-failed"],
        "drop": kinds["deadline-dropped"],
    }
    if odd := [then for then, count in ended_by.items() if count and then != facts.deadline]:
        verdict.unexpected(f"{job} {key!r}: a deadline did {odd}, and the job has {facts.deadline}")
    if causes["manual"] != kinds["round-fired"]:
        verdict.unexpected(
            f"{job} {key!r}: {causes['manual']} manual runs, and {kinds['round-fired']} people"
        )
    for identity in arrivals:
        for entry in entries.by_event.pop(("member-replaced", job, identity), ()):
            outcome.replaced.append((identity, entry["details"]["replaced_event_id"]))
        if entries.by_event.pop(("member-late", job, identity), None):
            outcome.late.add(identity)
        if entries.by_event.pop(("member-rerun", job, identity), None):
            outcome.rerun.add(identity)
    return outcome


_NOT_COUNTED: Final = ("no-partition-key", "mapping-failed", "not-a-member", "round-closed")


def _check_changing(
    job: str,
    records: Mapping[Identity, Sequence[Event]],
    again: Mapping[Identity, int],
    unchanged: Mapping[int, int],
    commands: Mapping[str, Sequence[Mapping[str, Any]]],
    waiting: Mapping[str, Members] | None,
    entries: _Entries,
    verdict: Verdict,
) -> None:
    """Every event of a job whose definition changes has exactly one fate, and every run a full window."""
    facts = FACTS[job]
    fates: dict[Identity, list[str]] = defaultdict(list)
    for key, some in commands.items():
        verdict.rounds += 1
        if sorted(command["generation"] for command in some) != list(range(1, len(some) + 1)):
            verdict.unexpected(f"{job} {key!r}: generations of {len(some)} runs have gaps")
        for command in some:
            events = command["triggering_asset_events"]
            counted = Counter(asset for asset, _ in {(each["asset"], each["member"]) for each in events})
            full = {window["asset"]: window["arrived"] for window in command["windows"]}
            sizes = {window["expected"] for window in command["windows"]}
            variants = {len(full)} if facts.kind == "each" else sizes
            if full != counted or sizes != set(full.values()) or not variants <= set(facts.changes):
                verdict.unexpected(f"{job} {key!r}: says {command['windows']}, holds {dict(counted)}")
            for each in events:
                fates[each["source"], each["id"]].append(f"run {command['run_id']}")
    for key, members in (waiting or {}).items():
        for _, _, identity in members:
            fates[identity].append(f"open round {key}")
    of_job = [identity for identity, group in records.items() if group[0].asset in facts.assets]
    by_id = {identity[1]: identity for identity in of_job}
    for identity in of_job:
        for kind in _NOT_COUNTED:
            fates[identity] += [kind for _ in entries.by_event.pop((kind, job, identity), ())]
        for entry in entries.by_event.pop(("member-replaced", job, identity), ()):
            old = entry["details"]["replaced_event_id"]
            fates[by_id.get(old, ("", old))].append(f"replaced by {identity[1]}")
        if entries.by_event.pop(("duplicate-event", job, identity), None) and len(records[identity]) == 1:
            verdict.unexpected(f"{job}: {identity} came once and was called a duplicate")
    for identity in of_job:
        found, raw = fates.pop(identity, []), records[identity][0].raw
        for kind in _NOT_COUNTED:  # of an event that ingest let in again, where that counted no more
            for _ in range(again[identity]):
                if len(found) > 1 and kind in found:
                    found.remove(kind)
        if len(found) == 1 or (waiting is None and not found):
            continue
        if found:
            verdict.doubled += sum(fate.startswith("run ") for fate in found) > 1
            verdict.unexpected(f"{job}: {identity} has more than one fate: {found}")
        # A dependency that was removed is none of the job's business.
        elif facts.kind == "segments" or records[identity][0].asset == facts.assets[0]:
            verdict.lost += 1
            verdict.problems.append(f"{job}: {identity} at {raw.position} has no fate")
        elif all(each.raw.offset < unchanged.get(each.raw.partition, 0) for each in records[identity]):
            verdict.lost += 1
            verdict.problems.append(
                f"{job}: {identity} at {raw.position} came before any change, and is gone"
            )
    for identity, found in fates.items():
        verdict.unexpected(f"{job}: {identity}, no event for it, has {found}")


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
