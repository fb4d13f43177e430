"""One command for every run id, and a reason where none can be sent: the dispatcher's decisions apart from Kafka."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.queues import active, known, place, waiting
from tidegate import Asset, AssetAlias, Job
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import (
    FailRun,
    JobControl,
    PassedEvent,
    Redrive,
    Run,
    RunCommand,
    RunEvent,
    RunRequest,
    RunState,
    WindowProgress,
)
from tidegate.core.audit import AuditKind
from tidegate.core.keys import MAX_KEY_CHARACTERS
from tidegate_dispatcher import decide as deciding
from tidegate_dispatcher.decide import (
    FIRED_AT_ONCE,
    Controlled,
    Decisions,
    Failed,
    Input,
    Redriven,
    Requested,
    Surroundings,
    cap_reached,
    fired_entries,
    forgettable,
    wanted,
)

NOW = 1_800_000_000_000
AT = datetime(2026, 3, 10, tzinfo=UTC)
LOG = "contributions/0#0"


TOPICS = ("run-commands.copy", "run-commands.other", "mine")


class Around(NamedTuple):
    """What decisions depend on besides their inputs and the runs."""

    surroundings: Surroundings
    limits: Mapping[str, int]
    paused: Collection[str]


def surroundings(
    limit: int | None = 1_048_576,
    job: Job | None = None,
    active_runs: int | None = None,
    cap: int = 500,
    paused: Collection[str] = (),
) -> Around:
    return Around(
        Surroundings(
            partition=2,  # of four the one of job "copy"
            partitions=4,
            now=NOW,
            job_of=lambda request: job,
            active_runs_of=lambda job: active_runs,
            cap=cap,
        ),
        {} if limit is None else dict.fromkeys(TOPICS, limit),
        paused,
    )


def decide(
    inputs: Sequence[Input], runs: Mapping[str, Run], around: Around, look: Collection[str] = ()
) -> Decisions:
    """The decisions where `runs` is all that is stored."""
    read = wanted(inputs, look, around.surroundings.active_runs_of)
    there = known(list(runs.values()), around.paused, read, around.surroundings.cap)
    return deciding.decide(inputs, there, around.surroundings, around.limits)


def asked(request: RunRequest, at: int = NOW, by: str | None = None) -> Requested:
    return Requested(LOG, request, at, by)


def request(
    run_id: str, offset: int = 1, extra_bytes: int = 0, partition_key: str | None = "k", job: str = "copy"
) -> RunRequest:
    event = PassedEvent(
        asset="a", id="e", source="/s", partition_key="k", received_at=AT, extra={"text": "x" * extra_bytes}
    )
    return RunRequest(
        offset=offset,
        ordinal=0,
        run_id=run_id,
        job=job,
        incarnation="i",
        revision=1,
        partition_key=partition_key,
        generation=1,
        completed_by="e",
        windows=(WindowProgress(asset="a", arrived=1, expected=1),),
        events=(event,),
    )


def stored(
    run_id: str,
    state: RunState = RunState.SENT,
    offset: int = 1,
    sent_at: int = NOW,
    partition_key: str | None = "k",
) -> Run:
    return Run(
        run_id=run_id,
        job="copy",
        incarnation="i",
        partition_key=partition_key,
        generation=1,
        state=state,
        source=LOG,
        offset=offset,
        sent_at=sent_at,
        updated_at=sent_at,
        request=request(run_id) if state is RunState.QUEUED else None,
    )


@given(st.lists(st.sampled_from("abcde"), max_size=20), st.sets(st.sampled_from("abcde")))
def test_every_run_id_gives_one_command_and_a_known_one_none(names: list[str], there: set[str]) -> None:
    decided = decide(
        [asked(request(each)) for each in names],
        {each: stored(each) for each in there},
        surroundings(),
    )
    sent = [RunCommand.from_bytes(each.value).run_id for each in decided.commands]
    assert sorted(sent) == sorted(set(names) - there)
    assert set(decided.runs) == set(names) - there
    assert decided.audit == []


def test_a_request_that_failed_before_it_started_is_a_failed_run_without_a_command() -> None:
    failed = request("a").model_copy(update={"failed": "the deadline passed", "cause": "deadline"})
    decided = decide([asked(failed), asked(failed)], {}, surroundings())
    assert (decided.commands, decided.audit) == ([], [])
    (run,) = decided.runs.values()
    assert (run.state, run.error) == (RunState.FAILED, "the deadline passed")


def test_rounds_that_fire_are_told_once_job_by_job_and_some_hundred_at_a_time() -> None:
    other = request("other").model_copy(update={"job": "other"})
    failed = request("failed").model_copy(update={"failed": "the deadline passed"})
    told = [*(request(f"r{n}") for n in range(FIRED_AT_ONCE + 1)), other, failed, request("known")]
    decided = decide([asked(each) for each in told * 2], {"known": stored("known")}, surroundings(cap=1000))
    entries = list(fired_entries(decided.fired, NOW))
    assert [(each.kind, each.job, len((each.details or {})["runs"])) for each in entries] == [
        (AuditKind.FIRED, "copy", FIRED_AT_ONCE),
        (AuditKind.FIRED, "copy", 1),
        (AuditKind.FIRED, "other", 1),
    ]
    runs = [run for each in entries for run in (each.details or {})["runs"]]
    wanted = [{"run_id": each.run_id, "partition_key": "k"} for each in told[:-2]]
    assert runs == wanted
    assert len({each.id for each in entries}) == len(entries)


def test_a_fired_entry_fits_its_topic_whatever_the_keys() -> None:
    key = "\U0001f600" * MAX_KEY_CHARACTERS
    fired = [request(f"{n:032x}", partition_key=key) for n in range(FIRED_AT_ONCE)]
    (entry,) = fired_entries(fired, NOW)
    assert len(entry.to_bytes()) < 1024 * 1024 - 1024


def test_a_command_says_whether_its_round_was_fired_as_it_was() -> None:
    partial = request("a").model_copy(update={"is_partial": True, "cause": "manual", "completed_by": None})
    (command,) = decide([asked(partial)], {}, surroundings()).commands
    sent = RunCommand.from_bytes(command.value)
    assert (sent.is_partial, sent.cause, sent.completed_by) == (True, "manual", None)


def test_a_known_run_id_from_another_place_is_audited_and_sends_nothing() -> None:
    decided = decide([asked(request("a", offset=9))], {"a": stored("a", offset=1)}, surroundings())
    assert (decided.commands, decided.runs) == ([], {})
    assert [each.kind for each in decided.audit] == [AuditKind.RUN_ID_MISMATCH]


@pytest.mark.parametrize(
    ("limit", "extra_bytes", "reason"),
    [(None, 0, "does not exist"), (100_000, 100_000, "more than the 97952 that fit into topic 'mine'")],
)
def test_what_a_topic_cannot_take_is_undeliverable_and_stops_nobody(
    limit: int | None, extra_bytes: int, reason: str
) -> None:
    job = Job("copy", run_commands_topic="mine")
    inputs = [asked(request("large", extra_bytes=extra_bytes)), asked(request("small"))]
    decided = decide(inputs, {}, surroundings(limit, job))
    assert decided.runs["large"].state is RunState.UNDELIVERABLE
    assert reason in (decided.runs["large"].error or "")
    assert decided.audit[0].kind is AuditKind.DISPATCH_FAILED
    assert decided.runs["small"].state is (RunState.SENT if limit else RunState.UNDELIVERABLE)


def test_a_command_names_its_reports_partition_and_the_outlets_of_the_definition() -> None:
    job = Job("copy", outlets=[Asset("out", "s3://bucket/out"), AssetAlias("made")])
    (command,) = decide([asked(request("a"))], {}, surroundings(job=job)).commands
    read = RunCommand.from_bytes(command.value)
    assert (command.topic, command.key) == ("run-commands.copy", "k")
    assert read.run_events_partition == 2
    assert [(each.kind, each.name, each.uri) for each in read.outlets] == [
        ("asset", "out", "s3://bucket/out"),
        ("alias", "made", None),
    ]


def test_a_run_without_partitions_has_no_key_and_its_record_that_of_the_job() -> None:
    one = asked(request("a", partition_key=None))
    decided = decide([one], {}, surroundings())
    (command,) = decided.commands
    assert command.key == "copy"
    assert b"partition_key" not in command.value.split(b"triggering_asset_events")[0]
    assert RunCommand.from_bytes(command.value).partition_key is None
    assert decided.runs["a"].partition_key is None
    refused = decide([one], {}, surroundings(limit=None))
    assert [(each.kind, each.partition_key) for each in refused.audit] == [(AuditKind.DISPATCH_FAILED, None)]


@pytest.mark.parametrize(
    ("own", "state", "reported", "key"),
    [
        (None, RunState.SUCCEEDED, "us", "us"),
        (None, RunState.SUCCEEDED, None, None),
        (None, RunState.FAILED, "us", None),
        (None, RunState.RUNNING, "us", None),
        ("k", RunState.SUCCEEDED, "us", "k"),
        ("k", RunState.SUCCEEDED, None, "k"),
    ],
)
def test_a_run_that_succeeded_has_the_one_key_that_it_gave_itself(
    own: str | None, state: RunState, reported: str | None, key: str | None
) -> None:
    report = RunEvent(run_id="a", job="copy", state=state, partition_key=reported)
    changed = decide([report], {"a": stored("a", partition_key=own)}, surroundings()).runs["a"]
    assert (changed.state, changed.partition_key) == (state, key)


@pytest.mark.parametrize("key", ["", " ", "x" * 251, "a\nb"])
def test_a_report_with_a_key_that_is_none_is_refused(key: str) -> None:
    raw = json.dumps({"v": 1, "run_id": "a", "job": "copy", "state": "succeeded", "partition_key": key})
    with pytest.raises(ValidationError, match="partition key"):
        RunEvent.from_bytes(raw.encode())


@pytest.mark.parametrize("ended", [RunState.SUCCEEDED, RunState.FAILED, RunState.UNDELIVERABLE])
def test_an_end_is_final_and_reports_of_other_attempts_or_runs_are_nothing(ended: RunState) -> None:
    reports = [
        RunEvent(run_id="a", job="copy", state=RunState.RUNNING),
        RunEvent(run_id="b", job="copy", attempt=2, state=RunState.FAILED),
        RunEvent(run_id="unknown", job="copy", state=RunState.FAILED),
    ]
    assert decide(reports, {"a": stored("a", ended), "b": stored("b")}, surroundings()).runs == {}


def test_a_report_that_came_to_another_partition_is_passed_on_once_as_it_is() -> None:
    around = surroundings()
    elsewhere = around._replace(surroundings=replace(around.surroundings, partition=3))
    report = RunEvent(run_id="a", job="copy", state=RunState.FAILED, error="no data", partition_key="us")
    passed_on = decide([report], {}, elsewhere)
    assert passed_on.runs == {}
    (record,) = passed_on.forwarded
    assert (record.topic, record.partition, record.key) == ("run-events", 2, b"copy")
    assert record.value is not None
    arrived = RunEvent.from_bytes(record.value)
    assert arrived == report
    there = decide([arrived], {"a": stored("a")}, around)
    assert (there.runs["a"].state, there.forwarded) == (RunState.FAILED, [])
    # A run that is forgotten, or one of a job that was named wrongly, is looked for no further.
    assert decide([arrived], {}, around).forwarded == []


def test_the_run_id_decides_what_a_report_is_about_whatever_job_it_names() -> None:
    report = RunEvent(run_id="a", job="other", state=RunState.SUCCEEDED)
    assert partition_of("other", 4) != 2
    decided = decide([report], {"a": stored("a")}, surroundings())
    assert (decided.runs["a"].state, decided.forwarded) == (RunState.SUCCEEDED, [])


@pytest.mark.parametrize("name", ["run_id", "job"])
def test_a_report_whose_names_are_longer_than_any_can_be_is_refused(name: str) -> None:
    """Else what is passed on, with the job as its key, could be too large for the topic that it came from."""
    raw = {"v": 1, "run_id": "a", "job": "copy", "state": "succeeded", name: "x" * 251}
    with pytest.raises(ValidationError, match="at most 250"):
        RunEvent.from_bytes(json.dumps(raw).encode())


def test_reports_move_a_run_along() -> None:
    reports = [
        RunEvent(run_id="a", job="copy", state=state) for state in (RunState.RUNNING, RunState.SUCCEEDED)
    ]
    assert decide(reports, {"a": stored("a")}, surroundings()).runs["a"].state is RunState.SUCCEEDED


def left_over(
    runs: Sequence[Run], acknowledged: Mapping[str, int], active_runs: int | None = None
) -> list[str]:
    return forgettable(runs, 1_000, NOW, acknowledged, lambda job: active_runs)


def test_ids_are_forgotten_after_the_horizon_once_the_rollup_cannot_ask_again() -> None:
    old = NOW - 1_001
    runs = [stored("acknowledged", offset=4, sent_at=old), stored("may-come-again", offset=5, sent_at=old)]
    runs.append(stored("young", offset=4, sent_at=NOW - 999))
    assert left_over(runs, {"contributions/0": 5}) == ["acknowledged"]
    assert left_over(runs, {}) == []


@pytest.mark.parametrize(
    ("state", "active_runs", "is_left"),
    [
        (RunState.SUCCEEDED, 1, True),
        (RunState.FAILED, None, True),
        (RunState.UNDELIVERABLE, None, True),
        (RunState.SENT, None, True),  # nobody need report where nothing is limited
        (RunState.SENT, 1, False),
        (RunState.RUNNING, None, False),
        (RunState.QUEUED, None, False),
    ],
)
def test_what_waits_or_runs_is_never_forgotten(
    state: RunState, active_runs: int | None, is_left: bool
) -> None:
    run = stored("a", state, sent_at=0)
    assert left_over([run], {"contributions/0": 5}, active_runs) == ["a"] * is_left


# Queues


def sent(decided: Decisions) -> list[str]:
    return [RunCommand.from_bytes(each.value).run_id for each in decided.commands]


def control(kind: str, job: str = "copy", id: str = "c1") -> Controlled:
    return Controlled(JobControl(kind=kind, id=id, by="ana", job=job), NOW)


def ended(run_id: str, state: RunState = RunState.SUCCEEDED) -> RunEvent:
    return RunEvent(run_id=run_id, job="copy", state=state)


def after(runs: Mapping[str, Run], decided: Decisions) -> dict[str, Run]:
    return {**runs, **decided.runs}


def test_b004_runs_go_out_as_they_were_asked_for_and_by_key_where_that_was_at_one_time() -> None:
    names = {"r1": "k5", "r2": "k2", "r3": "k4", "r4": "k1", "r5": "k3"}
    inputs = [asked(request(run_id, partition_key=key)) for run_id, key in names.items()]
    inputs.append(asked(request("r0", partition_key="k0"), at=NOW + 1))
    around = surroundings(active_runs=1)
    decided = decide(inputs, {}, around)
    order, runs = sent(decided), after({}, decided)
    while decided.commands:
        decided = decide([ended(order[-1])], runs, around)
        order, runs = order + sent(decided), after(runs, decided)
    assert order == ["r4", "r2", "r5", "r3", "r1", "r0"]


def test_b054_the_next_run_goes_out_when_one_ends_with_no_other_event() -> None:
    around = surroundings(active_runs=1)
    decided = decide([asked(request(each, partition_key=each)) for each in "abc"], {}, around)
    assert sent(decided) == ["a"]
    runs = after({}, decided)
    assert [runs[each].state for each in "abc"] == [RunState.SENT, RunState.QUEUED, RunState.QUEUED]
    assert decide([ended("a", RunState.RUNNING)], runs, around).commands == []
    assert decide([ended("b")], runs, around).runs == {}  # what was never sent cannot have ended
    decided = decide([ended("a", RunState.FAILED)], runs, around)
    assert sent(decided) == ["b"]
    assert decided.runs["b"].request is None


def test_a_run_that_comes_in_overtakes_none_that_waits_unread_where_the_first_cannot_be_sent() -> None:
    around = surroundings(active_runs=1)
    large = request("b", partition_key="b").model_copy(update={"oversize": 9_000_000})
    inputs = [
        asked(request("a", partition_key="a")),
        asked(large),
        asked(request("c", partition_key="c"), at=NOW + 2),
    ]
    first = decide(inputs, {}, around)
    assert sent(first) == ["a"]
    runs = after({}, first)
    # One place is free, so one of those that wait is read: "b", which does not take it.
    late, early = asked(request("d"), at=NOW + 3), asked(request("0"), at=NOW - 1)
    second = decide([ended("a"), late], runs, around)
    assert (sent(second), second.left, second.is_capped) == ([], {"copy": 1}, False)
    assert second.runs["b"].state is RunState.UNDELIVERABLE
    runs = after(runs, second)
    assert sent(decide([], runs, around, look=second.left)) == ["c"]
    # Nothing keeps back one that was asked for before all that wait.
    assert sent(decide([early], runs, around)) == ["0"]


some_runs = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=6)


@given(some_runs, some_runs, st.integers(1, 3), st.integers(1, 3), st.integers(1, 6))
def test_whichever_cannot_be_sent_the_turn_of_a_run_never_comes_before_that_of_one_asked_for_earlier(
    lines: list[tuple[int, bool]], newer: list[tuple[int, bool]], limit: int, ends: int, cap: int
) -> None:
    def asks(name: str, at: int, is_large: bool) -> Requested:
        return asked(request(name).model_copy(update={"oversize": 9_000_000 if is_large else None}), at)

    def order() -> list[str]:
        """Sorted by when they were asked for; run ids tell those of one time apart."""
        return [run.run_id for run in sorted(runs.values(), key=lambda run: (run.asked_at, run.run_id))]

    around = surroundings(active_runs=limit, cap=cap)
    runs = {f"active{n}": stored(f"active{n}") for n in range(limit)}
    wait = [asks(f"w{n}", *each) for n, each in enumerate(lines)]
    runs |= decide(wait, runs, around).runs
    free = min(ends, limit)
    inputs: list[Input] = [ended(f"active{n}") for n in range(free)]
    inputs += [asks(f"n{n}", *each) for n, each in enumerate(newer)]
    look: Collection[str] = ()
    for _ in range(len(lines) + len(newer) + 1):
        decided = decide(inputs, runs, around, look)
        turns = {name for name, run in decided.runs.items() if run.state is not RunState.QUEUED}
        runs |= decided.runs
        is_turn = [
            name in turns
            for name in order()
            if name.startswith(("w", "n")) and (name in turns or runs[name].state is RunState.QUEUED)
        ]
        assert is_turn == sorted(is_turn, reverse=True)
        inputs, look = [], decided.left
    assert not look
    line, sendable = waiting(runs.values(), "copy"), [*lines, *newer]
    count = sum(not is_large for _, is_large in sendable)
    assert active(runs.values(), "copy") == limit - free + min(free, count)
    assert not line or active(runs.values(), "copy") == limit


def test_a_limit_that_rises_lets_runs_go_out_with_no_event_at_all() -> None:
    decided = decide(
        [asked(request(each, partition_key=each)) for each in "abcd"], {}, surroundings(active_runs=1)
    )
    runs = after({}, decided)
    assert sent(decide([], runs, surroundings(active_runs=1), look=["copy"])) == []
    assert sent(decide([], runs, surroundings(active_runs=3), look=["copy"])) == ["b", "c"]
    assert sent(decide([], runs, surroundings(), look=["copy"])) == ["b", "c", "d"]


def test_a_paused_job_keeps_its_runs_and_a_resumed_one_sends_them_in_order() -> None:
    decided = decide(
        [control("pause"), asked(request("b")), asked(request("a"), at=NOW - 1)], {}, surroundings()
    )
    assert decided.commands == []
    assert decided.jobs["copy"].is_paused
    runs = after({}, decided)
    paused = surroundings(paused=["copy"])
    assert sent(decide([], runs, paused, look=["copy"])) == []
    resumed = decide([control("resume")], runs, paused)
    assert sent(resumed) == ["a", "b"]
    assert not resumed.jobs["copy"].is_paused
    kinds = [each.kind.value for each in (*decided.audit, *resumed.audit)]
    assert kinds == ["job-paused", "job-resumed"]


@pytest.mark.parametrize(("kind", "paused"), [("pause", ["copy"]), ("resume", [])])
def test_pausing_what_is_paused_and_resuming_what_is_not_says_so(kind: str, paused: list[str]) -> None:
    decided = decide([control(kind)], {}, surroundings(paused=paused))
    assert (decided.jobs, [each.kind for each in decided.audit]) == ({}, [AuditKind.ACTION_WITHOUT_EFFECT])


def redriven(run_id: str) -> Redriven:
    asks = request(run_id)
    return Redriven(Redrive(id="d1", by="ana", origin="run-requests/0@1", request=asks), NOW + 5)


@pytest.mark.parametrize("state", [None, *RunState])
def test_only_an_undeliverable_run_is_sent_again(state: RunState | None) -> None:
    runs = {} if state is None else {"a": stored("a", state)}
    around = surroundings(paused=["copy"] if state is RunState.QUEUED else [])
    decided = decide([redriven("a"), redriven("a")], runs, around)
    is_sent = state is RunState.UNDELIVERABLE
    assert sent(decided) == ["a"] * is_sent
    kinds = [each.kind for each in decided.audit]
    assert kinds == [
        AuditKind.RUN_REDRIVEN if is_sent else AuditKind.ACTION_WITHOUT_EFFECT,
        AuditKind.ACTION_WITHOUT_EFFECT,
    ]


def failed_by_hand(run_id: str, attempt: int = 1, job: str = "copy") -> Failed:
    return Failed(FailRun(id="f1", by="ana", run_id=run_id, job=job, attempt=attempt, partition_key="k"))


@pytest.mark.parametrize("state", [None, *RunState])
def test_only_an_active_run_is_ended_by_hand_and_its_place_goes_to_the_next(state: RunState | None) -> None:
    others = {"x": stored("x", RunState.SENT), "next": stored("next", RunState.QUEUED)}
    runs = others | ({} if state is None else {"a": stored("a", state)})
    is_active = state in (RunState.SENT, RunState.RUNNING)
    around = surroundings(active_runs=2 if is_active else 1)
    decided = decide([failed_by_hand("a"), failed_by_hand("a"), ended("a")], runs, around)
    kinds = [each.kind for each in decided.audit]
    assert kinds == [
        AuditKind.RUN_FAILED if is_active else AuditKind.ACTION_WITHOUT_EFFECT,
        AuditKind.ACTION_WITHOUT_EFFECT,
    ]
    assert {(each.job, each.partition_key) for each in decided.audit} == {("copy", "k")}
    assert sent(decided) == ["next"] * is_active
    if is_active:
        assert (decided.runs["a"].state, decided.runs["a"].error) == (
            RunState.FAILED,
            "ended as failed by ana",
        )


def test_another_attempt_is_not_ended_by_hand() -> None:
    decided = decide([failed_by_hand("a", attempt=2)], {"a": stored("a")}, surroundings())
    assert (decided.runs, [each.kind for each in decided.audit]) == ({}, [AuditKind.ACTION_WITHOUT_EFFECT])


def test_a_run_that_is_undeliverable_again_is_audited_again() -> None:
    first = decide([asked(request("a"))], {}, surroundings(limit=None))
    second = decide([redriven("a")], first.runs, surroundings(limit=None))
    failures = [each for each in (*first.audit, *second.audit) if each.kind is AuditKind.DISPATCH_FAILED]
    assert len({each.id for each in failures}) == 2


@pytest.mark.parametrize(("count", "is_capped"), [(2, False), (3, True)])
def test_b007_the_cap_is_reached_where_it_leaves_runs_behind(count: int, is_capped: bool) -> None:
    inputs = [asked(request(f"r{n}")) for n in range(count)]
    assert decide(inputs, {}, surroundings(cap=2)).is_capped == is_capped


def test_b007_the_cap_is_said_with_totals_and_twenty_jobs_in_order() -> None:
    left = {f"job{n:02}": 20 for n in range(29, 4, -1)}
    entry = cap_reached(0, {f"r{n}" for n in range(100)}, left, NOW)
    assert entry.details == {
        "evaluated": 100,
        "total": 600,
        "jobs": [f"job{n:02}" for n in range(5, 25)],
        "more_jobs": 5,
        "partition": 0,
    }


JOBS = ("copy", "other")
steps = st.lists(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["ask", "ask", "ask for too much"]),
                *(st.sampled_from(JOBS), st.integers(0, 3), st.sampled_from("xyz")),
            ),
            st.tuples(st.just("end"), st.integers(0, 30), st.sampled_from(list(RunState))),
            st.tuples(st.sampled_from(["pause", "resume"]), st.sampled_from(JOBS)),
            st.tuples(st.just("redrive"), st.integers(0, 30)),
        ),
        max_size=6,
    ),
    max_size=12,
)


@given(steps, st.integers(1, 4), st.none() | st.integers(1, 3), st.sets(st.sampled_from(JOBS)))
def test_no_limit_is_passed_no_order_lost_and_no_run_forgotten_or_doubled(
    batches: list[list[tuple[object, ...]]], cap: int, limit: int | None, topics: set[str]
) -> None:
    """Whatever comes in whatever batches; then all jobs are resumed and all runs end."""
    runs: dict[str, Run] = {}
    paused: set[str] = set()
    requests: dict[str, RunRequest] = {}
    commands: Counter[str] = Counter()
    left: set[str] = set()
    limits = {f"run-commands.{job}": 1_000_000 for job in topics}

    def tried() -> set[str]:
        """The runs whose turn it was."""
        return {name for name, run in runs.items() if run.state is not RunState.QUEUED}

    def turn(inputs: list[Input]) -> None:
        nonlocal left
        around = surroundings(active_runs=limit, cap=cap, paused=paused)._replace(limits=limits)
        decided = decide(inputs, runs, around, look=left)
        before = tried()
        commands.update(sent(decided))
        assert len(decided.commands) <= cap
        runs.update(decided.runs)
        for job, state in decided.jobs.items():
            (paused.add if state.is_paused else paused.discard)(job)
        for job in JOBS:
            line, count = waiting(runs.values(), job), active(runs.values(), job)
            assert limit is None or count <= limit
            gone = [runs[name] for name in tried() - before if runs[name].job == job]
            if gone and line:
                assert max(map(place, gone)) < place(line[0])
            room = len(line) if limit is None else min(len(line), limit - count)
            assert decided.left.get(job, 0) == (0 if job in paused else room)
        left = set(decided.left)

    clock = NOW
    for batch in batches:
        inputs: list[Input] = []
        for kind, *rest in batch:
            clock += 1
            names = sorted(requests)
            if str(kind).startswith("ask"):
                job, earlier, key = rest
                name = f"r{len(requests):03}"
                oversize = None if kind == "ask" else 9_000_000
                asks = request(name, partition_key=str(key), job=str(job))
                requests[name] = asks.model_copy(update={"oversize": oversize})
                inputs.append(asked(requests[name], at=clock - int(str(earlier))))
            elif kind in ("pause", "resume"):
                inputs.append(control(str(kind), str(rest[0]), id=str(clock)))
            elif names:
                name = names[int(str(rest[0])) % len(names)]
                if kind == "redrive":
                    again = Redrive(id=str(clock), by="ana", origin="o", request=requests[name])
                    inputs.append(Redriven(again, clock))
                else:
                    inputs.append(RunEvent(run_id=name, job=requests[name].job, state=rest[1]))
        turn(inputs)
    turn([control("resume", job, id=f"last-{job}") for job in JOBS])
    for _ in range(3 * len(requests) + 1):
        running = [run for run in runs.values() if run.state in (RunState.SENT, RunState.RUNNING)]
        turn([RunEvent(run_id=run.run_id, job=run.job, state=RunState.SUCCEEDED) for run in running])
    assert set(runs) == set(requests)
    for name, run in runs.items():
        is_sendable = run.job in topics and requests[name].oversize is None
        assert commands[name] == is_sendable
        assert (run.state is RunState.UNDELIVERABLE) == (not is_sendable)
        assert run.request is None
