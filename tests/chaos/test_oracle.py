"""The oracle against a perfect run of a small plan, and against every way in which a run may be less than that."""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.jobs import DAYS, FACTS, commands_topic
from tests.chaos.oracle import Logs, Raw, Verdict, _event, _place, check
from tests.chaos.plan import EVENT_TYPE, plan
from tests.chaos.rounds import Arrival, fold

JOBS = tuple(FACTS)
KINDS = {
    "event-refused",
    "alias-without-asset",
    "duplicate-event",
    "unknown-asset",
    "no-partition-key",
    "mapping-failed",
    "member-replaced",
    "member-late",
    "member-rerun",
}


def _raw(topic: str, offset: int, value: Any, key: str | None = None, partition: int = 0) -> Raw:
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Raw(topic, partition, offset, None if key is None else key.encode(), raw)


def _perfect_run(seed: int, events: int) -> Logs:
    """What a product without faults would write for a plan, taking the partitions as they come."""
    planned = plan(seed, events, 0).records
    ends: dict[int, int] = defaultdict(int)
    stream: list[Raw] = []
    for each in planned:
        stream.append(
            Raw("asset-events", each.partition, ends[each.partition], each.key.encode(), each.value)
        )
        ends[each.partition] += 1
    audit: list[dict[str, Any]] = []
    commands: list[Raw] = []
    rejected: list[Raw] = []
    seen: dict[Any, str] = {}
    accepted = []

    def note(kind: str, service: str, position: str, event: Any = None, **more: Any) -> None:
        known = {} if event is None else {"event_source": event[0], "event_id": event[1]}
        entry = {"id": f"a{len(audit)}", "kind": kind, "service": service, "position": position}
        audit.append({**entry, **known, **more})

    def accept(raw: Raw) -> None:
        event = _event(raw)
        if event is None:
            kind = "alias-without-asset" if b'"aliases"' in (raw.value or b"") else "event-refused"
            note(kind, "ingest", raw.position)
            letter = {"topic": raw.topic, "partition": raw.partition, "offset": raw.offset}
            rejected.append(_raw("asset-events.rejected", len(rejected), letter))
        elif event.identity in seen:
            note("duplicate-event", "ingest", raw.position, event.identity)
        else:
            seen[event.identity] = raw.position
            accepted.append(event)
            if not any(event.asset in facts.assets for facts in FACTS.values()):
                note("unknown-asset", "ingest", raw.position, event.identity)

    for raw in stream:
        accept(raw)
    for job in JOBS:
        facts = FACTS[job]
        rounds: dict[str, list[Arrival]] = defaultdict(list)
        for event in accepted:
            if event.asset not in facts.assets:
                continue
            placed = _place(facts, event)
            if isinstance(placed, str):
                note(placed, "mapper", "accepted-events/0@0", event.identity, job=job)
            else:
                rounds[placed[0]].append(placed[1])
        for key, arrivals in rounds.items():
            outcome = fold(facts, arrivals)
            for new, old in outcome.replaced:
                more = {"job": job, "details": {"replaced_event_id": old}}
                note("member-replaced", "rollup", "contributions/0@0", new, **more)
            for kind, some in (("member-late", outcome.late), ("member-rerun", outcome.rerun)):
                for identity in sorted(some):
                    note(kind, "rollup", "contributions/0@0", identity, job=job)
            for fired in outcome.fired:
                members = sorted(fired.members)
                command = {
                    "run_id": f"{job} {key} {fired.generation}",
                    "job": job,
                    "partition_key": key,
                    "generation": fired.generation,
                    "completed_by": fired.completed_by,
                    "windows": [
                        {
                            "asset": name,
                            "arrived": len({member for asset, member, _ in members if asset == index}),
                            "expected": facts.size,
                        }
                        for index, name in enumerate(facts.assets)
                    ],
                    "triggering_asset_events": [
                        {"asset": facts.assets[asset], "member": member, "source": one[0], "id": one[1]}
                        for asset, member, one in members
                    ],
                }
                commands.append(_raw(commands_topic(job), len(commands), command, key))
                if facts.outlet:
                    event_of_run = {
                        "specversion": "1.0",
                        "type": EVENT_TYPE,
                        "source": "/worker",
                        "id": f"{job} {key}",
                        "data": {"asset": DAYS, "partition_key": key},
                    }
                    published = _raw("asset-events", ends[0], event_of_run, DAYS)
                    ends[0] += 1
                    stream.append(published)
                    accept(published)
    return Logs(stream, commands, [_raw("audit-log", n, each) for n, each in enumerate(audit)], rejected)


@pytest.fixture(scope="module")
def run() -> Logs:
    return _perfect_run(5, 2_500)


def _counts(verdict: Verdict) -> tuple[int, int, int]:
    return verdict.lost, verdict.doubled, verdict.unexplained


def test_a_perfect_run_has_no_problem(run: Logs) -> None:
    verdict = check(run)
    assert _counts(verdict) == (0, 0, 0), verdict.problems[:5]
    assert verdict.commands == len(run.commands) > 400
    assert verdict.audited.keys() == KINDS


def test_a_log_that_is_written_twice_is_still_right_where_ids_tell(run: Logs) -> None:
    assert _counts(check(replace(run, audit=[*run.audit, *run.audit]))) == (0, 0, 0)


@pytest.mark.parametrize("job", JOBS)
def test_a_missing_command_is_lost(run: Logs, job: str) -> None:
    some = [each for each in run.commands if each.topic == commands_topic(job)]
    gone = random.Random(job).choice(some)
    verdict = check(replace(run, commands=[each for each in run.commands if each is not gone]))
    assert verdict.lost >= 1, verdict.problems
    assert verdict.doubled <= (FACTS[job].outlet is not None)  # an outlet's event without its run


@pytest.mark.parametrize("job", JOBS)
def test_a_repeated_command_is_doubled(run: Logs, job: str) -> None:
    again = next(each for each in run.commands if each.topic == commands_topic(job))
    assert _counts(check(replace(run, commands=[*run.commands, again]))) == (0, 1, 0)


def _altered(change: Callable[[Any], None]) -> Callable[[Raw], Raw]:
    def alter(raw: Raw) -> Raw:
        value = json.loads(raw.value or b"null")
        change(value)
        return raw._replace(value=json.dumps(value).encode())

    return alter


def _another_member(command: Any) -> None:
    command["triggering_asset_events"][0]["id"] = "stranger"


def _fewer_members(command: Any) -> None:
    command["triggering_asset_events"].pop()


def _another_generation(command: Any) -> None:
    command["generation"] += 1
    command["run_id"] += " again"


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("change", [_another_member, _fewer_members, _another_generation])
def test_a_wrong_command_is_noticed(run: Logs, job: str, change: Callable[[Any], None]) -> None:
    commands = list(run.commands)
    place = next(n for n, each in enumerate(commands) if each.topic == commands_topic(job))
    commands[place] = _altered(change)(commands[place])
    assert sum(_counts(check(replace(run, commands=commands)))) > 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_missing_audit_entry_is_noticed(run: Logs, kind: str) -> None:
    gone = next(each for each in run.audit if json.loads(each.value or b"null")["kind"] == kind)
    verdict = check(replace(run, audit=[each for each in run.audit if each is not gone]))
    assert verdict.unexplained >= 1
    assert (verdict.lost, verdict.doubled) == (0, 0)


def test_an_audit_entry_about_nothing_is_noticed(run: Logs) -> None:
    entries = [
        {"id": "x1", "kind": "log-gap", "service": "rollup", "position": "contributions/0@7"},
        {"id": "x2", "kind": "duplicate-event", "service": "ingest", "position": "asset-events/0@999999"},
    ]
    audit = [*run.audit, *(_raw("audit-log", n, each) for n, each in enumerate(entries))]
    assert check(replace(run, audit=audit)).unexplained == 2


def test_a_dead_letter_that_is_missing_or_wrong_is_noticed(run: Logs) -> None:
    assert check(replace(run, rejected=run.rejected[1:])).unexplained == 1
    letter = {"topic": "asset-events", "partition": 9, "offset": 9}
    assert check(replace(run, rejected=[*run.rejected, _raw("r", 0, letter)])).unexplained == 1


def test_poison_on_an_internal_topic_must_be_audited(run: Logs) -> None:
    position = "contributions/1@17"
    assert check(replace(run, poison=[position])).unexplained == 1
    entry = {"id": "x", "kind": "unreadable-record", "service": "rollup", "position": position}
    audit = [*run.audit, _raw("audit-log", 0, entry)]
    assert _counts(check(replace(run, poison=[position], audit=audit))) == (0, 0, 0)


def test_a_double_that_only_the_rollup_noticed_is_explained_for_every_job(run: Logs) -> None:
    """As after a failover that lost ingest's mark."""
    events = {each.position: each for each in run.events}
    entries = [json.loads(each.value or b"null") for each in run.audit]
    place, entry = next(
        (n, each)
        for n, each in enumerate(entries)
        if each["kind"] == "duplicate-event" and b'"left"' in (events[each["position"]].value or b"")
    )
    rest = [each for n, each in enumerate(run.audit) if n != place]
    noted = {**entry, "service": "rollup", "position": "contributions/0@1"}
    jobs = [{**noted, "id": job, "job": job} for job in ("pair", "every_left")]
    audit = [*rest, *(_raw("audit-log", n, each) for n, each in enumerate(jobs))]
    assert _counts(check(replace(run, audit=audit))) == (0, 0, 0)
    assert check(replace(run, audit=audit[:-1])).unexplained == 1


def test_an_event_of_an_outlet_that_came_twice_is_doubled(run: Logs) -> None:
    last = max((each for each in run.events if each.key == DAYS.encode()), key=lambda each: each.offset)
    again = last._replace(offset=last.offset + 1)
    entry = {"id": "x", "kind": "duplicate-event", "service": "ingest", "position": again.position}
    audit = [*run.audit, _raw("audit-log", 0, entry)]
    verdict = check(replace(run, events=[*run.events, again], audit=audit))
    assert _counts(verdict) == (0, 1, 0)
