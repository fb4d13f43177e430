"""What `explain` says, worked out from what was read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import (
    Asset,
    AssetAccessControl,
    DayWindow,
    FixedKeyMapper,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    StartOfHourMapper,
)
from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.runs import PassedEvent, Run, RunRequest, RunState
from tidegate.core.audit import AuditKind
from tidegate.core.instants import from_ms
from tidegate.definitions.progress import WindowCount
from tidegate.runtime.audit_log import EventName, Wanted, events_of
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.event_report import ThenAndNow, explain_event
from tidegate.runtime.fates import Fate, OpenRound, fates
from tidegate.runtime.mapping import plan
from tidegate.runtime.pending import PendingRound, RoundState, WaitingEvent
from tidegate.runtime.round_report import LastSeen, RoundReport, explain_round

A = Asset("a")
AT = 1_700_000_000_000
SOURCE = "/s"
SEGMENTS = Job(
    "j",
    PartitionedAssetTimetable(
        A, RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu", "apac"]), MinimumCount(2))
    ),
)
DEFINED = DefinedJob(SEGMENTS, "i1", 5)


def accepted(
    id: str, key: str | None, at: int = AT, offset: int = 0, stamp: int = 6, **more: Any
) -> AcceptedEvent:
    fields: dict[str, Any] = {"asset": "a", "partition_date": None, "extra": None, "team": None} | more
    return AcceptedEvent(
        offset=offset, definitions=stamp, at=at, source=SOURCE, id=id, partition_key=key, **fields
    )


def request(
    run_id: str, *ids: str, completed_by: str | None = None, key: str | None = "all", **more: Any
) -> RunRequest:
    events = tuple(PassedEvent(asset="a", id=id, source=SOURCE, received_at=from_ms(AT)) for id in ids)
    fields: dict[str, Any] = {"offset": 7, "ordinal": 0, "generation": 1, "windows": ()} | more
    return RunRequest(
        run_id=run_id,
        job="j",
        incarnation="i1",
        revision=5,
        partition_key=key,
        completed_by=completed_by,
        events=events,
        **fields,
    )


def entry(kind: AuditKind, event_id: str | None = None, key: str | None = "all", **more: Any) -> AuditEntry:
    fields: dict[str, Any] = {
        "job": "j",
        "at": AT,
        "message": f"{kind} says so",
        "event_source": SOURCE,
    } | more
    return AuditEntry(
        id=f"{kind}-{event_id}", kind=kind, service="s", partition_key=key, event_id=event_id, **fields
    )


def waiting(*members: tuple[int, str], revision: int = 5) -> RoundState:
    """An open round of these members' events."""
    events = tuple(WaitingEvent(0, member, None, id, SOURCE, AT) for member, id in members)
    names = ("us", "eu", "apac")
    missing = tuple(name for n, name in enumerate(names) if n not in {member for member, _ in members})
    count = WindowCount("a", 3 - len(missing), 3, 2, missing)
    return RoundState(PendingRound("all", from_ms(AT), (count,)), revision, events)


def report(
    state: RoundState,
    requests: list[RunRequest] | None = None,
    entries: list[AuditEntry] | None = None,
    job: DefinedJob = DEFINED,
    key: str = "all",
    runs: dict[str, Run] | None = None,
    seen: tuple[AcceptedEvent, ...] = (),
) -> RoundReport:
    last_seen = LastSeen(plan([job], {"a": A}), key)
    for each in seen:
        last_seen.take("asset-events/0", each)
    return explain_round(
        job, key, state, last_seen, requests or [], runs or {}, entries or [], (), from_ms(0)
    )


def hows(found: tuple[Fate, ...]) -> list[tuple[str, str | None]]:
    return [(each.how, each.run_id) for each in found]


def test_an_event_has_every_fate_that_was_read_of_it_in_the_order_of_runs_audit_and_open_rounds() -> None:
    event = EventName(SOURCE, "e1")
    requests = [request("r1", "e0", "e1", completed_by="e1"), request("r2", "e1", "e2", completed_by="e2")]
    requests += requests[:1]  # written again after a crash
    entries = [entry(AuditKind.DUPLICATE_EVENT, "e1"), entry(AuditKind.MEMBER_LATE, "e3")]
    rounds = [OpenRound("other", [EventName(SOURCE, "e1")]), OpenRound("all", [EventName(SOURCE, "e9")])]
    found = fates(event, requests, entries, rounds)
    assert hows(found) == [
        ("completed", "r1"),
        ("included", "r2"),
        ("duplicate-event", None),
        ("waiting", None),
    ]
    assert [each.key for each in found] == ["all", "all", "all", "other"]
    assert fates(EventName("/another", "e1"), requests, entries, rounds) == ()


def test_what_takes_the_place_of_an_event_is_no_fate_of_the_one_that_came() -> None:
    replaced = entry(AuditKind.MEMBER_REPLACED, "new", details={"replaced_event_id": "old"})
    assert hows(fates(EventName(SOURCE, "old"), [], [replaced], [])) == [("member-replaced", None)]
    assert fates(EventName(SOURCE, "new"), [], [replaced], []) == ()
    again = entry(AuditKind.MEMBER_RERUN, "new", details={"replaced_event_id": "old"})
    assert hows(fates(EventName(SOURCE, "new"), [], [again], [])) == [("member-rerun", None)]
    assert fates(EventName(SOURCE, "old"), [], [again], []) == ()


def test_the_events_of_a_round_that_was_dropped_are_told_by_its_entry() -> None:
    held = [
        {"id": "e1", "source": SOURCE, "key": "us", "asset": "a"},
        {"id": "e2", "source": "/t", "key": "eu"},
    ]
    dropped = entry(AuditKind.DEADLINE_DROPPED, details={"events": held})
    assert list(events_of(dropped)) == [EventName(SOURCE, "e1"), EventName("/t", "e2")]
    assert hows(fates(EventName(SOURCE, "e1"), [], [dropped], [])) == [("deadline-dropped", None)]
    assert fates(EventName(SOURCE, "e2"), [], [dropped], []) == ()
    fired = entry(AuditKind.ROUND_FIRED, details={"events": held})
    assert hows(fates(EventName(SOURCE, "e1"), [request("r", "e1")], [fired], [])) == [("included", "r")]
    moved = entry(AuditKind.DEFINITION_CHANGED, details={"event_count": 2})
    assert list(events_of(moved)) == []


ids = st.sampled_from(["e1", "e2", "e3", "e4"])
REQUESTS = st.dictionaries(
    st.sampled_from(["r1", "r2"]), st.tuples(st.sets(ids, min_size=1), ids), max_size=2
).map(lambda found: 2 * [request(run, *events, completed_by=last) for run, (events, last) in found.items()])
"""All written twice."""
ENTRIES = st.lists(
    st.builds(
        entry,
        st.sampled_from([AuditKind.MEMBER_LATE, AuditKind.MEMBER_RERUN, AuditKind.DUPLICATE_EVENT]),
        ids,
    ),
    max_size=3,
)


@given(REQUESTS, ENTRIES, st.sets(st.tuples(st.integers(0, 2), ids), max_size=3))
def test_b103_event_views_and_window_views_agree(
    requests: list[RunRequest], entries: list[AuditEntry], members: set[tuple[int, str]]
) -> None:
    state = waiting(*members) if members else RoundState()
    window = report(state, requests, entries)
    definitions = ThenAndNow(plan([DEFINED], {"a": A}), {"j"}, plan([DEFINED], {"a": A}), {"j": DEFINED})
    rounds = {"j": [OpenRound("all", [EventName(SOURCE, each.id) for each in state.events])]}
    named = {each["id"] for one in requests for each in one.events} | {each.event_id for each in entries}
    assert {each.event_id for each in window.events} == named | {id for _, id in members}
    for each in window.events:
        (job,) = explain_event(
            "asset-events/0", accepted(each.event_id, "us"), definitions, requests, entries, rounds
        ).jobs
        assert job.fates == each.fates


@given(st.permutations([(AT, 3, "early"), (AT + 1, 1, "b"), (AT + 1, 2, "last")]))
def test_b104_of_equal_times_the_later_offset_is_the_last_seen_in_whatever_order_they_are_read(
    order: list[tuple[int, int, str]],
) -> None:
    seen = tuple(accepted(id, "eu", at, offset) for at, offset, id in order)
    found = report(waiting((0, "u")), seen=seen)
    by_name = {each.name: each.last_seen for each in found.assets[0].missing}
    assert by_name.keys() == {"eu", "apac"}
    assert by_name["apac"] is None
    assert by_name["eu"] is not None
    assert (by_name["eu"].event_id, by_name["eu"].position) == ("last", "asset-events/0@2")


def test_only_events_of_the_rounds_key_and_of_what_the_job_takes_are_seen() -> None:
    hourly = Job("j", PartitionedAssetTimetable(A, RollupMapper(StartOfHourMapper(), DayWindow())))
    job = DefinedJob(hourly, "i1", 5)
    seen = (
        accepted("other day", "2010-03-15T01:00:00", AT + 9),
        accepted("no key", None, AT + 9),
        accepted("other asset", "2010-03-14T01:00:00", AT + 9, asset="b"),
        accepted("it", "2010-03-14T01:00:00"),
    )
    found = report(RoundState(), job=job, key="2010-03-14", seen=seen)
    assert found.verdict == "no event of this key has reached the job"
    assert [each.name[11:13] for each in found.assets[0].missing] == [f"{hour:02}" for hour in range(24)]
    assert [(each.name, each.last_seen.event_id) for each in found.assets[0].missing if each.last_seen] == [
        ("2010-03-14T01:00:00", "it")
    ]


def test_an_open_round_says_what_it_waits_for_and_how_long() -> None:
    state = RoundState(
        waiting((2, "e")).open, 5, waiting((2, "e")).events, ("fail", from_ms(AT) + timedelta(hours=1))
    )
    found = report(state)
    assert found.verdict == "waits for a: 1 of 3 are in, 2 are needed"
    assert [each.name for each in found.assets[0].missing] == ["us", "eu"]
    assert found.assets[0].policy == "MinimumCount(2)"
    assert (found.opened_at, found.opened_by_revision, found.revision) == (from_ms(AT), 5, 5)
    assert found.deadline == ("fail", datetime(2023, 11, 14, 23, 13, 20, tzinfo=UTC))
    older = report(waiting((2, "e"), revision=4))
    assert older.verdict == "its events wait to be mapped again by the new definition of the job"


def test_a_window_that_asks_for_more_than_it_has_can_never_fire() -> None:
    count = WindowCount("a", 1, 28, 30, tuple(f"day {n}" for n in range(1, 28)))
    events = (WaitingEvent(0, 0, None, "e", SOURCE, AT),)
    found = report(RoundState(PendingRound("all", from_ms(AT), (count,)), 5, events))
    assert found.verdict == "it can never fire: a asks for more members than its window has"


def run(run_id: str, state: RunState) -> Run:
    return Run(
        run_id=run_id,
        job="j",
        incarnation="i1",
        generation=1,
        state=state,
        source="contributions/0#0",
        offset=1,
        sent_at=AT,
        updated_at=AT,
    )


def test_a_round_that_fired_says_what_became_of_its_runs() -> None:
    requests = [
        request("r1", "e1", completed_by="e1"),
        request("r2", "e1", generation=2, cause="deadline", is_partial=True),
    ]
    found = report(RoundState(fired=(2, from_ms(AT))), requests, runs={"r1": run("r1", RunState.SUCCEEDED)})
    assert [(each.run_id, each.state, each.cause, each.is_partial) for each in found.runs] == [
        ("r1", "succeeded", "assets", False),
        ("r2", "asked for, not dispatched yet", "deadline", True),
    ]
    assert found.verdict == "ran: generation 2 is asked for, not dispatched yet"
    assert found.assets == ()
    forgotten = report(RoundState(fired=(3, from_ms(AT))))
    assert forgotten.verdict == "fired before the time that was read: generation 3 on 2023-11-14 at 22:13:20Z"


@pytest.mark.parametrize(
    ("kind", "fired_at", "is_over"),
    [
        (AuditKind.DEADLINE_DROPPED, AT, True),
        (AuditKind.ROUND_DISCARDED, None, True),
        (AuditKind.ROUND_DISCARDED, AT - 1, True),
        (AuditKind.ROUND_DISCARDED, AT + 1, False),
        (AuditKind.ROUND_CLOSED, None, True),
        (AuditKind.MEMBER_LATE, AT - 1, False),
    ],
)
def test_a_round_that_was_dropped_or_discarded_after_it_last_ran_says_so(
    kind: AuditKind, fired_at: int | None, is_over: bool
) -> None:
    fired = None if fired_at is None else (1, from_ms(fired_at))
    found = report(RoundState(fired=fired), [request("r1", "e0")] if fired else [], [entry(kind, "e1")])
    assert (found.verdict == f"its last round is gone: {kind} says so") is is_over


def test_entries_are_counted_apart_for_the_key_and_for_events_that_have_none() -> None:
    entries = [
        entry(AuditKind.MEMBER_LATE, "e1"),
        entry(AuditKind.MEMBER_LATE, "e2", key="another"),
        entry(AuditKind.NO_PARTITION_KEY, "e3", key=None),
        entry(AuditKind.MAPPING_FAILED, "e4", key="all"),  # the event's own key here
    ]
    found = report(RoundState(), entries=entries)
    assert [each.event_id for each in found.ignored] == ["e1"]
    assert [each.event_id for each in found.ignored_for_all_keys] == ["e3", "e4"]
    assert found.ignored_counts == {"member-late": 1, "no-partition-key": 1, "mapping-failed": 1}


def explained(event: AcceptedEvent, then: list[Job], now: list[Job], **teams: bool) -> dict[str, str | None]:
    """Why the event did not reach each job; None where it did."""
    old = {job.id: DefinedJob(job, "i1", 3) for job in then}
    new = {job.id: old[job.id] if job in then else DefinedJob(job, "i1", 9) for job in now}
    assets = {"a": Asset("a", access_control=AssetAccessControl([]))}
    definitions = ThenAndNow(
        plan(old.values(), assets, **teams), old.keys(), plan(new.values(), assets, **teams), new
    )
    found = explain_event("asset-events/0", event, definitions, [], [], {})
    return {each.job: each.why_not for each in found.jobs}


def test_an_event_says_of_every_job_why_it_did_not_reach_it() -> None:
    takes = Job("takes", PartitionedAssetTimetable(A))
    whole = Job("whole", A)
    other = Job("other", PartitionedAssetTimetable(Asset("b")))
    deleted = Job("deleted", PartitionedAssetTimetable(A))
    changed_from, changed_to = other_of("changed", Asset("b")), other_of("changed", A)
    later = Job("later", PartitionedAssetTimetable(A))
    found = explained(
        accepted("e", "k"),
        [takes, whole, other, deleted, changed_from],
        [takes, whole, other, changed_to, later],
    )
    assert found["takes"] is None
    assert found["deleted"] is None
    assert str(found["whole"]).startswith("partitioned-event: ")
    assert found["other"] == "the job does not wait for asset 'a'"
    assert found["changed"] == "the job waits for the asset only since a later definition"
    assert "defined after the event came (definitions@9, the event saw those below 6)" in str(found["later"])


def other_of(id: str, asset: Asset) -> Job:
    return Job(id, PartitionedAssetTimetable(asset))


def test_an_event_of_another_team_says_so() -> None:
    job = Job("j", PartitionedAssetTimetable(A), team="red")
    event = accepted("e", "k", team="blue")
    assert str(explained(event, [job], [job], multi_team=True)["j"]).startswith("cross-team: ")
    assert explained(event, [job], [job], multi_team=False) == {"j": None}


def test_entries_are_found_by_any_event_that_they_name_and_by_both_keys() -> None:
    late = entry(
        AuditKind.MEMBER_LATE, "new", details={"event_key": "us", "replaced_event_id": "old"}, asset="a"
    )
    assert Wanted().takes(late)
    for wanted in (
        *(Wanted(job="j"), Wanted(asset="a"), Wanted(kind=AuditKind.MEMBER_LATE), Wanted(key="all")),
        *(Wanted(key="us"), Wanted(event_id="new"), Wanted(event_id="old")),
    ):
        assert wanted.takes(late)
        assert all(each in late.to_bytes() for each in wanted.written), "or the record is never parsed"
    for wanted in (
        Wanted(job="k"),
        Wanted(asset="b"),
        Wanted(key="eu"),
        Wanted(event_id="x"),
        Wanted(job="j", key="z"),
    ):
        assert not wanted.takes(late)


@given(st.text(min_size=1, max_size=20))
def test_whatever_the_words_are_a_record_that_is_asked_for_holds_them_as_they_are_written(text: str) -> None:
    try:
        made = entry(AuditKind.MEMBER_LATE, text, key=text, job=text)
        raw = made.to_bytes()
    except ValueError:  # lone surrogates, which no message can hold
        return
    assert all(each in raw for each in Wanted(job=text, key=text, event_id=text).written)
