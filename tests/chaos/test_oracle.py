"""The oracle against a perfect run of a small plan, and against every way in which a run may be less than that."""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.jobs import DAYS, FACTS, SEGMENTS, commands_topic
from tests.chaos.oracle import Action, Logs, Members, Raw, Verdict, _event, _place, check
from tests.chaos.plan import EVENT_TYPE, plan
from tests.chaos.rounds import Arrival, Cut, Withdrawal, fold

JOBS = tuple(FACTS)
SHAPES = ("day_both", "day_again", "day_soon", "pair", "all_regions", "fewer_regions", "fewer_assets")
"""One job of every shape."""
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
    "deadline-failed",
    "deadline-dropped",
    "round-fired",
    "round-discarded",
    "member-withdrawn",
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
    waiting: dict[tuple[str, str], Members] = {}
    actions: list[Action] = []

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
        if facts.changes:
            size = len(SEGMENTS) if facts.kind == "segments" else 1
            facts = replace(facts, size=size, needed=size)
        rounds: dict[str, list[Arrival]] = defaultdict(list)
        for event in accepted:
            if event.asset not in facts.assets:
                continue
            placed = _place(facts, event)
            if isinstance(placed, str):
                note(placed, "mapper", "accepted-events/0@0", event.identity, job=job)
            else:
                rounds[placed[0]].append(placed[1])
        for number, (key, arrivals) in enumerate(rounds.items()):
            outcome = fold(facts, _with_actions(job, number, arrivals))
            if outcome.open:
                waiting[job, key] = outcome.open
            for ended in outcome.ended:
                named = [{"source": one[0], "id": one[1]} for _, _, one in ended.members]
                if kind := _KIND_OF_END.get(ended.how if ended.completed_by is None else ""):
                    if kind == "round-fired" and facts.deadline:
                        continue
                    position = f"contributions/0@{len(audit)}"
                    more = {"job": job, "partition_key": key, "details": {"events": named}}
                    note(kind, "rollup", position, **more)
                    if not facts.deadline:
                        what = "discard" if kind == "round-discarded" else "fire"
                        actions.append(Action(what, job, key, position))
            for source, name in outcome.withdrawn:
                position = f"contributions/0@{len(audit)}"
                more = {"job": job, "partition_key": key}
                more["details"] = {"events": [{"source": source, "id": name}]}
                note("member-withdrawn", "rollup", position, **more)
                actions.append(Action("withdraw", job, key, position))
            for new, old in outcome.replaced:
                more = {"job": job, "details": {"replaced_event_id": old}}
                note("member-replaced", "rollup", "contributions/0@0", new, **more)
            for kind, some in (("member-late", outcome.late), ("member-rerun", outcome.rerun)):
                for identity in sorted(some):
                    note(kind, "rollup", "contributions/0@0", identity, job=job)
            for fired in outcome.ended:
                if fired.how != "run":
                    continue
                cause = "assets" if fired.completed_by else "deadline" if facts.deadline else "manual"
                members = sorted(fired.members)
                command = {
                    "run_id": f"{job} {key} {fired.generation}",
                    "job": job,
                    "partition_key": key,
                    "generation": fired.generation,
                    "completed_by": fired.completed_by,
                    "cause": cause,
                    "is_partial": cause != "assets",
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
    return Logs(
        stream,
        commands,
        [_raw("audit-log", n, each) for n, each in enumerate(audit)],
        rejected,
        actions=actions,
        open=waiting,
    )


_KIND_OF_END = {
    "run": "round-fired",
    "failed": "deadline-failed",
    "dropped": "deadline-dropped",
    "discarded": "round-discarded",
}


def _with_actions(job: str, number: int, arrivals: list[Arrival]) -> list[Arrival | Cut | Withdrawal]:
    """What happens to the rounds of a key: to some of them, a person; at the end, the deadline."""
    steps: list[Arrival | Cut | Withdrawal] = [*arrivals]
    if then := FACTS[job].deadline:
        return [*steps, Cut("run" if then == "fire" else "failed" if then == "fail" else "dropped")]
    if job == "day_acted" and len(steps) > 12 and number % 3:
        steps.insert(9, Cut("discarded" if number % 3 == 1 else "run"))
    if job == "day_withdrawn" and len(steps) > 12 and number % 2:
        steps.insert(9, Withdrawal(arrivals[4].event))
    return steps


@pytest.fixture(scope="module")
def run() -> Logs:
    return _perfect_run(6, 2_000)


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


@pytest.mark.parametrize("job", SHAPES)
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


@pytest.mark.parametrize("job", SHAPES)
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
    # A round that nothing ended would have been complete, or would have waited for its deadline.
    assert verdict.lost == 0 or kind.startswith(("round-", "deadline-")) or kind == "member-withdrawn"
    assert verdict.doubled == 0


@pytest.mark.parametrize("job", SHAPES)
def test_what_waits_in_no_round_is_noticed(run: Logs, job: str) -> None:
    assert run.open is not None
    first = (each for each, found in run.open.items() if 0 in {asset for asset, *_ in found})
    place = next((each for each in first if each[0] == job), None)
    if place is None:
        assert FACTS[job].deadline or (FACTS[job].kind == "each" and len(FACTS[job].assets) == 1)
        return
    fewer = {each: members for each, members in run.open.items() if each != place}
    assert sum(_counts(check(replace(run, open=fewer)))) > 0


def test_a_round_that_is_open_after_its_deadline_is_lost(run: Logs) -> None:
    entry = next(each for each in run.audit if b"deadline-dropped" in (each.value or b""))
    said = json.loads(entry.value or b"null")
    left = frozenset((0, 0, (one["source"], one["id"])) for one in said["details"]["events"])
    still = {**(run.open or {}), (said["job"], said["partition_key"]): left}
    assert check(replace(run, open=still, audit=[each for each in run.audit if each is not entry])).lost >= 1


def test_an_action_needs_its_audit_entry_and_an_entry_its_action(run: Logs) -> None:
    assert check(replace(run, actions=run.actions[1:])).unexplained >= 1
    more = Action("fire", "day_acted", "2026-01-01", "contributions/3@99")
    assert _counts(check(replace(run, actions=[*run.actions, more]))) == (0, 0, 1)
    about = {"job": more.job, "partition_key": more.key, "details": {"by": "chaos", "action": "fire"}}
    entry = {"id": "x", "kind": "action-without-effect", "service": "rollup", "position": more.position}
    audit = [*run.audit, _raw("audit-log", 0, entry | about)]
    assert _counts(check(replace(run, actions=[*run.actions, more], audit=audit))) == (0, 0, 0)


def test_an_event_of_a_dependency_may_have_no_fate_only_once_that_was_removed(run: Logs) -> None:
    waiting = dict(run.open or {})
    of_right = [(job, key) for (job, key), found in waiting.items() if {1} == {asset for asset, *_ in found}]
    del waiting[next(each for each in of_right if each[0] == "fewer_assets")]
    without = replace(run, open=waiting)
    assert _counts(check(without)) == (0, 0, 0)
    assert check(replace(without, unchanged=dict.fromkeys(range(4), 10**6))).lost == 1


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
