"""One command for every run id, and a reason where none can be sent: the dispatcher's decisions apart from Kafka."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidegate import Asset, AssetAlias, Job
from tidegate.contracts.runs import (
    Run,
    RunCommand,
    RunEvent,
    RunRequest,
    RunState,
    TriggeringEvent,
    WindowProgress,
)
from tidegate.core.audit import AuditKind
from tidegate.core.keys import MAX_KEY_CHARACTERS
from tidegate_dispatcher.decide import (
    FIRED_AT_ONCE,
    Requested,
    Surroundings,
    decide,
    fired_entries,
    forgettable,
)

NOW = 1_800_000_000_000
AT = datetime(2026, 3, 10, tzinfo=UTC)
LOG = "contributions/0#0"


def surroundings(limit: int | None = 1_048_576, job: Job | None = None) -> Surroundings:
    return Surroundings(partition=3, now=NOW, job_of=lambda request: job, limit_of=lambda topic: limit)


def request(
    run_id: str, offset: int = 1, extra_bytes: int = 0, partition_key: str | None = "k"
) -> RunRequest:
    event = TriggeringEvent(
        asset="a", id="e", source="/s", partition_key="k", received_at=AT, extra={"text": "x" * extra_bytes}
    )
    return RunRequest(
        offset=offset,
        ordinal=0,
        run_id=run_id,
        job="copy",
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
    )


@given(st.lists(st.sampled_from("abcde"), max_size=20), st.sets(st.sampled_from("abcde")))
def test_every_run_id_gives_one_command_and_a_known_one_none(asked: list[str], known: set[str]) -> None:
    decided = decide(
        [Requested(LOG, request(each)) for each in asked],
        {each: stored(each) for each in known},
        surroundings(),
    )
    sent = [RunCommand.from_bytes(each.value).run_id for each in decided.commands]
    assert sorted(sent) == sorted(set(asked) - known)
    assert set(decided.runs) == set(asked) - known
    assert decided.audit == []


def test_a_request_that_failed_before_it_started_is_a_failed_run_without_a_command() -> None:
    failed = request("a").model_copy(update={"failed": "the deadline passed", "cause": "deadline"})
    decided = decide([Requested(LOG, failed), Requested(LOG, failed)], {}, surroundings())
    assert (decided.commands, decided.audit) == ([], [])
    (run,) = decided.runs.values()
    assert (run.state, run.error) == (RunState.FAILED, "the deadline passed")


def test_rounds_that_fire_are_told_once_job_by_job_and_some_hundred_at_a_time() -> None:
    other = request("other").model_copy(update={"job": "other"})
    failed = request("failed").model_copy(update={"failed": "the deadline passed"})
    asked = [*(request(f"r{n}") for n in range(FIRED_AT_ONCE + 1)), other, failed, request("known")]
    decided = decide([Requested(LOG, each) for each in asked * 2], {"known": stored("known")}, surroundings())
    entries = list(fired_entries(decided.fired, NOW))
    assert [(each.kind, each.job, len((each.details or {})["runs"])) for each in entries] == [
        (AuditKind.FIRED, "copy", FIRED_AT_ONCE),
        (AuditKind.FIRED, "copy", 1),
        (AuditKind.FIRED, "other", 1),
    ]
    runs = [run for each in entries for run in (each.details or {})["runs"]]
    wanted = [{"run_id": each.run_id, "partition_key": "k"} for each in asked[:-2]]
    assert runs == wanted
    assert len({each.id for each in entries}) == len(entries)


def test_a_fired_entry_fits_its_topic_whatever_the_keys() -> None:
    key = "\U0001f600" * MAX_KEY_CHARACTERS
    fired = [request(f"{n:032x}", partition_key=key) for n in range(FIRED_AT_ONCE)]
    (entry,) = fired_entries(fired, NOW)
    assert len(entry.to_bytes()) < 1024 * 1024 - 1024


def test_a_command_says_whether_its_round_was_fired_as_it_was() -> None:
    partial = request("a").model_copy(update={"is_partial": True, "cause": "manual", "completed_by": None})
    (command,) = decide([Requested(LOG, partial)], {}, surroundings()).commands
    sent = RunCommand.from_bytes(command.value)
    assert (sent.is_partial, sent.cause, sent.completed_by) == (True, "manual", None)


def test_a_known_run_id_from_another_place_is_audited_and_sends_nothing() -> None:
    decided = decide([Requested(LOG, request("a", offset=9))], {"a": stored("a", offset=1)}, surroundings())
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
    asked = [Requested(LOG, request("large", extra_bytes=extra_bytes)), Requested(LOG, request("small"))]
    decided = decide(asked, {}, surroundings(limit, job))
    assert decided.runs["large"].state is RunState.UNDELIVERABLE
    assert reason in (decided.runs["large"].error or "")
    assert decided.audit[0].kind is AuditKind.DISPATCH_FAILED
    assert decided.runs["small"].state is (RunState.SENT if limit else RunState.UNDELIVERABLE)


def test_a_command_names_its_reports_partition_and_the_outlets_of_the_definition() -> None:
    job = Job("copy", outlets=[Asset("out", "s3://bucket/out"), AssetAlias("made")])
    (command,) = decide([Requested(LOG, request("a"))], {}, surroundings(job=job)).commands
    read = RunCommand.from_bytes(command.value)
    assert (command.topic, command.key) == ("run-commands.copy", "k")
    assert read.run_events_partition == 3
    assert [(each.kind, each.name, each.uri) for each in read.outlets] == [
        ("asset", "out", "s3://bucket/out"),
        ("alias", "made", None),
    ]


def test_a_run_without_partitions_has_no_key_and_its_record_that_of_the_job() -> None:
    asked = Requested(LOG, request("a", partition_key=None))
    decided = decide([asked], {}, surroundings())
    (command,) = decided.commands
    assert command.key == "copy"
    assert b"partition_key" not in command.value.split(b"triggering_asset_events")[0]
    assert RunCommand.from_bytes(command.value).partition_key is None
    assert decided.runs["a"].partition_key is None
    refused = decide([asked], {}, surroundings(limit=None))
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


def test_reports_move_a_run_along() -> None:
    reports = [
        RunEvent(run_id="a", job="copy", state=state) for state in (RunState.RUNNING, RunState.SUCCEEDED)
    ]
    decided = decide([Requested(LOG, request("a")), *reports], {}, surroundings())
    assert decided.runs["a"].state is RunState.SUCCEEDED


def test_ids_are_forgotten_after_the_horizon_once_the_rollup_cannot_ask_again() -> None:
    old = NOW - 1_001
    runs = [stored("acknowledged", offset=4, sent_at=old), stored("may-come-again", offset=5, sent_at=old)]
    runs.append(stored("young", offset=4, sent_at=NOW - 999))
    assert forgettable(runs, 1_000, NOW, {"contributions/0": 5}) == ["acknowledged"]
    assert forgettable(runs, 1_000, NOW, {}) == []
