"""What goes over the wire: read forever, refused for one reason only, never larger than it may be."""

import json
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tidegate.contracts import events
from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.contributions import (
    Contribution,
    ContributionBatch,
    DeadlineReached,
    DefinitionChange,
    JobRef,
    MemberEvent,
    OperatorAction,
    read_contributions_record,
)
from tidegate.contracts.definitions import DefinitionRecord, Installation
from tidegate.contracts.events import (
    EVENT_TYPE,
    MAX_REASON_CHARACTERS,
    AssetEvent,
    AssetUpdate,
    Headers,
    event_fields,
)
from tidegate.contracts.message import Message
from tidegate.contracts.packing import pack
from tidegate.contracts.placement import contributions_partition, partition_of, shard_of, shards_of_partition
from tidegate.contracts.rejected import DeadLetter
from tidegate.contracts.runs import (
    FailRun,
    JobControl,
    JobState,
    ManualRun,
    Outlet,
    PassedEvent,
    Redrive,
    Run,
    RunCommand,
    RunEvent,
    RunRequest,
    RunRequestBatch,
    RunState,
    TriggeringEvent,
    WindowProgress,
    encoded_command,
    job_of_key,
    read_run_requests_record,
    read_runs_record,
    record_key,
    requests_in,
)
from tidegate.contracts.topics import MAX_EVENT_BYTES, declared_topics, team_events_topic
from tidegate.core.audit import AuditKind
from tidegate.core.errors import DefinitionError, InvalidEventError
from tidegate.core.instants import from_us, to_us
from tidegate.core.mappers import RollupMapper, StartOfDayMapper
from tidegate.core.plain import from_plain, plain
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.core.windows import DayWindow
from tidegate.definitions import Asset, Job
from tidegate.runtime.positions import Gap, Highs, Position, decide_start, most_metadata, source_of

GOLDEN = Path(__file__).parent.parent / "contracts" / "golden"

SEATTLE, SAN_FRANCISCO = Asset("seattle_hourly"), Asset("san_francisco_hourly", "s3://weather/san-francisco")
DAILY = Job(
    "daily_temperatures",
    schedule=PartitionedAssetTimetable(
        assets=SEATTLE & SAN_FRANCISCO,
        default_partition_mapper=RollupMapper(
            upstream_mapper=StartOfDayMapper(timezone="America/Los_Angeles"), window=DayWindow()
        ),
    ),
    outlets=[Asset("daily_temperatures")],
)
EVENTS = (
    TriggeringEvent(
        asset="seattle_hourly",
        id="e-1",
        source="/sensors/seattle",
        member=1,
        partition_key="2010-03-14T01:00:00",
        partition_date=datetime(2010, 3, 14, 9, tzinfo=UTC),
        received_at=datetime(2010, 3, 14, 9, 0, 5, 250_000, tzinfo=UTC),
        extra={"celsius": 7.2, "station": None},
    ),
)
WINDOWS = (WindowProgress(asset="seattle_hourly", arrived=23, expected=23),)
MIDNIGHT = datetime(2010, 3, 14, 8, tzinfo=UTC)
REQUEST = RunRequest(
    offset=77,
    ordinal=2,
    run_id="daily_temperatures-2010-03-14-1-8c1f",
    job="daily_temperatures",
    incarnation="5f0c",
    revision=17,
    partition_key="2010-03-14",
    partition_date=MIDNIGHT,
    generation=1,
    completed_by="e-1",
    windows=WINDOWS,
    events=TypeAdapter(tuple[PassedEvent, ...]).validate_python(
        [each.model_dump(exclude_none=True) for each in EVENTS]
    ),
)

MESSAGES: dict[str, Message] = {
    "accepted_batch.v1.json": AcceptedBatch(
        source="asset-events.blue/3",
        events=(
            AcceptedEvent(
                offset=41,
                definitions=17,
                at=1_268_557_205_250,
                source="/sensors/seattle",
                id="e-1",
                asset="seattle_hourly",
                partition_key="2010-03-14T01:00:00",
                partition_date=1_268_557_200_000_001,
                extra={"celsius": 7.2, "station": None},
                team="blue",
            ),
            AcceptedEvent(
                43,
                18,
                1_268_557_205_251,
                "/sensors/\u00e9",
                "e-2",
                "whole",
                None,
                None,
                None,
                None,
                ("out", "all"),
            ),
        ),
    ),
    "contribution_batch.v1.json": ContributionBatch(
        source="accepted-events/2",
        jobs=(
            JobRef(
                id="daily_temperatures",
                incarnation="5f0c",
                revision=17,
                rollups=(0, 1),
                assets=("seattle_hourly", "san_francisco_hourly"),
                clauses=((0, 1),),
            ),
            JobRef(
                *("whole", "5f0d", 18, (), ("out",), ((0,),), "refire"),
                deadlines=((3_600_000, "fire", "first_member"),),
                routing="pY3hX0a_kQ-1",
            ),
        ),
        events=(
            MemberEvent(
                "2010-03-14T01:00:00", "e-1", "/sensors/seattle", 1_268_557_205_250, None, {"celsius": 7.2}
            ),
            MemberEvent(
                None,
                "e-2",
                "/s",
                1_268_557_205_251,
                1_268_557_200_000_001,
                None,
                "seattle_hourly",
                "weather",
                ("out",),
            ),
        ),
        entries=(
            Contribution(
                offset=9,
                ordinal=0,
                job=0,
                event=0,
                key="2010-03-14",
                asset=0,
                member=1,
                size=23,
                needed=23,
                decoded=1_268_553_600_000_000,
                carried=None,
            ),
            Contribution(9, 1, 1, 1, "", 0, 0, 1, 1, None, 1_268_557_200_000_001, True),
        ),
    ),
    "deadline_reached.v1.json": DeadlineReached(
        job="daily_temperatures", incarnation="5f0c", key="2010-03-14", opened="77.2", then="fire"
    ),
    "definition_change.v1.json": DefinitionChange(
        job="daily_temperatures", revision=18, routing="pY3hX0a_kQ-1"
    ),
    "operator_action.v1.json": OperatorAction(
        kind="withdraw",
        id="5d8f6c1e",
        by="ana",
        job="daily_temperatures",
        incarnation="5f0c",
        key="2010-03-14",
        opened="77.2",
        event_id="e-1",
    ),
    "run_request_batch.v1.json": RunRequestBatch(source="contributions/1#5", requests=(REQUEST,)),
    "manual_run.v1.json": ManualRun(by="ana", request=REQUEST),
    "redrive.v1.json": Redrive(id="5d8f6c1e", by="ana", origin="run-requests/1@9", request=REQUEST),
    "fail_run.v1.json": FailRun(
        id="5d8f6c20",
        by="ana",
        run_id="daily_temperatures-2010-03-14-1-8c1f",
        job="daily_temperatures",
        attempt=2,
        partition_key="2010-03-14",
    ),
    "job_control.v1.json": JobControl(kind="pause", id="5d8f6c1f", by="ana", job="daily_temperatures"),
    "run_command.v1.json": RunCommand(
        run_id="daily_temperatures-2010-03-14-1-8c1f",
        job="daily_temperatures",
        partition_key="2010-03-14",
        partition_date=MIDNIGHT,
        generation=1,
        cause="assets",
        completed_by="e-1",
        definition_revision=17,
        windows=WINDOWS,
        triggering_asset_events=EVENTS,
        outlets=(
            Outlet(name="daily_temperatures"),
            Outlet(name="report", uri="s3://reports/daily"),
            Outlet(name="out", kind="alias"),
        ),
        run_events_partition=3,
    ),
    "run_event.v1.json": RunEvent(
        run_id="daily_temperatures-2010-03-14-1-8c1f",
        job="daily_temperatures",
        attempt=2,
        state=RunState.FAILED,
        error="the file is empty",
        partition_key="2010-03-14",
    ),
    "run.v1.json": Run(
        run_id="daily_temperatures-2010-03-14-1-8c1f",
        job="daily_temperatures",
        incarnation="5f0c",
        partition_key="2010-03-14",
        partition_date=MIDNIGHT,
        generation=1,
        state=RunState.QUEUED,
        source="contributions/1#5",
        offset=77,
        asked_at=1_268_639_999_900,
        sent_at=1_268_640_000_000,
        updated_at=1_268_640_000_100,
        request=REQUEST,
    ),
    "job_state.v1.json": JobState(job="daily_temperatures", is_paused=True, by="ana", at=1_268_640_000_000),
    "audit_entry.v1.json": AuditEntry(
        id="935e285ed7f1e8e70b0c76c3",
        kind=AuditKind.DUPLICATE_EVENT,
        service="ingest",
        at=1_268_557_205_250,
        message="event 'e-1' of '/sensors/seattle' was received before, at asset-events/0@40",
        asset="seattle_hourly",
        partition_key="2010-03-14T01:00:00",
        event_id="e-1",
        event_source="/sensors/seattle",
        position="asset-events/0@41",
        details={"first": "asset-events/0@40"},
    ),
    "dead_letter.v1.json": DeadLetter(
        topic="asset-events",
        partition=0,
        offset=42,
        at=1_268_557_205_250,
        code="not-an-object",
        reason="the value must be a JSON object, not []",
        size=2,
        value_base64="W10=",
        headers=(("content-type", "YXBwbGljYXRpb24vanNvbg=="), ("empty", None)),
    ),
    "definition_record.v1.json": DefinitionRecord(
        kind="job", id="daily_temperatures", incarnation="5f0c", body=plain(DAILY)
    ),
    "installation.v1.json": Installation(partitions=4, shards=16, multi_team=True),
}

EVENT = AssetEvent(
    specversion="1.0",
    id="e-1",
    source="/sensors/seattle",
    type=EVENT_TYPE,
    time=datetime(2010, 3, 14, 9, 0, 5, tzinfo=UTC),
    subject="seattle",
    data=AssetUpdate(
        asset="seattle_hourly",
        partition_key="2010-03-14T01:00:00",
        partition_date=datetime(2010, 3, 14, 1, tzinfo=timezone(timedelta(hours=-8))),
        extra={"celsius": 7.2, "station": None},
    ),
    **{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},  # an extension attribute
)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_golden_message_reads_as_it_was_written_and_writes_as_it_was_read(name: str) -> None:
    raw = (GOLDEN / name).read_bytes()
    read = type(MESSAGES[name]).from_bytes(raw)
    assert read.model_dump(mode="json") == MESSAGES[name].model_dump(
        mode="json"
    )  # in Python, lists differ from tuples
    assert read.to_bytes() == raw == MESSAGES[name].to_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "contribution_batch.v1.json",
        "deadline_reached.v1.json",
        "definition_change.v1.json",
        "operator_action.v1.json",
    ],
)
def test_every_kind_of_record_on_contributions_is_told_by_its_kind(name: str) -> None:
    read = read_contributions_record((GOLDEN / name).read_bytes())
    assert type(read) is type(MESSAGES[name])
    assert read.to_bytes() == MESSAGES[name].to_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "run_request_batch.v1.json",
        "manual_run.v1.json",
        "redrive.v1.json",
        "fail_run.v1.json",
        "job_control.v1.json",
    ],
)
def test_every_kind_of_record_on_run_requests_is_told_by_its_kind(name: str) -> None:
    read = read_run_requests_record((GOLDEN / name).read_bytes())
    assert type(read) is type(MESSAGES[name])
    assert read.to_bytes() == MESSAGES[name].to_bytes()


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"kind":"other"}', b'{"kind":"pause","job":"j"}'])
def test_another_record_on_run_requests_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read_run_requests_record(raw)


@pytest.mark.parametrize(
    ("name", "key", "job"),
    [
        ("run.v1.json", "daily_temperatures-2010-03-14-1-8c1f", None),
        ("job_state.v1.json", "job:daily_temperatures", "daily_temperatures"),
    ],
)
def test_states_on_runs_are_told_by_their_key(name: str, key: str, job: str | None) -> None:
    state = MESSAGES[name]
    assert isinstance(state, Run | JobState)
    assert (record_key(state), job_of_key(key)) == (key, job)
    assert read_runs_record(key, (GOLDEN / name).read_bytes()) == state


def test_a_run_that_an_older_dispatcher_wrote_is_still_read() -> None:
    old = json.loads((GOLDEN / "run.v1.json").read_bytes())
    for name in ("cause", "asked_at", "request"):
        del old[name]
    assert Run.from_bytes(json.dumps({**old, "state": "sent"}).encode()).asked_at == 0


AT_TEXT = st.datetimes(timezones=st.just(UTC) | st.just(timezone(timedelta(hours=-8)))).map(
    datetime.isoformat
)
ANY_VALUE = st.none() | st.integers() | st.text(max_size=3) | st.just(["a"]) | st.just({"n": None, "x": 1.5})


@given(
    st.fixed_dictionaries(
        {name: st.text(max_size=3) for name in ("asset", "id", "source")} | {"received_at": AT_TEXT},
        optional={
            "member": st.integers(),
            "partition_key": st.none() | st.text(max_size=3),
            "partition_date": st.none() | AT_TEXT | st.integers(0, 10**12),
            "extra": st.none() | st.dictionaries(st.text(max_size=3), ANY_VALUE, max_size=2),
            "routes": st.none() | st.lists(st.text(max_size=3), max_size=2),
        },
    ),
    st.dictionaries(st.sampled_from([*TriggeringEvent.model_fields, "other"]), ANY_VALUE, max_size=1),
    st.none() | st.sampled_from(sorted(TriggeringEvent.model_fields)),
)
def test_an_event_is_passed_on_as_its_model_would(
    fields: dict[str, Any], changed: dict[str, Any], left_out: str | None
) -> None:
    event = {name: value for name, value in {**fields, **changed}.items() if name != left_out}
    request = json.loads(REQUEST.to_bytes()) | {"events": [event]}
    raw = json.dumps({"kind": "requests", "source": "contributions/1#5", "requests": [request]}).encode()
    try:
        expected = TriggeringEvent.from_bytes(json.dumps(event).encode())
    except ValueError:
        with pytest.raises(ValueError, match="validation error"):
            read_run_requests_record(raw)
        return
    (read,) = requests_in(read_run_requests_record(raw))
    assert json.dumps(json.loads(read.to_bytes())["events"]) == json.dumps([json.loads(expected.to_bytes())])
    command = encoded_command(read, 2, (Outlet(name="a", kind="alias"), Outlet(name="b", uri="s3://b")), 3)
    assert RunCommand.from_bytes(command).triggering_asset_events == (expected,)
    assert RunCommand.from_bytes(command).to_bytes() == command


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"kind":"other"}', b'{"kind":"definition","job":"j"}'])
def test_another_record_on_contributions_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read_contributions_record(raw)


def parse_event(value: bytes | None, headers: Headers = ()) -> AssetEvent:
    """The event as the models read it, while `event_fields` says the same, be it by the models or not."""
    headers = tuple(headers)
    assert why_not(event_fields, value, headers) == why_not(events.parse_event, value, headers)
    event, found = events.parse_event(value, headers), event_fields(value, headers)
    assert given_of(found) == given_of({**vars(event), "data": vars(event.data)})
    assert given_of(found["data"]) == given_of(vars(event.data))
    return event


def why_not(
    read: Callable[[bytes | None, Headers], object], value: bytes | None, headers: Headers
) -> tuple[str, str] | None:
    try:
        read(value, headers)
    except InvalidEventError as error:
        return error.code, str(error)
    return None


def given_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: given_of(value) if name == "data" else value
        for name, value in fields.items()
        if value is not None
    }


def test_a_golden_structured_event_reads_as_it_was_written() -> None:
    raw = (GOLDEN / "asset_event_structured.v1.json").read_bytes()
    assert parse_event(raw, [("content-type", b"application/cloudevents+json; charset=UTF-8")]) == EVENT
    assert parse_event(raw) == EVENT
    assert EVENT.to_bytes() == raw


def test_a_golden_binary_event_reads_as_it_was_written() -> None:
    record = json.loads((GOLDEN / "asset_event_binary.v1.json").read_bytes())
    headers = [(name, text.encode()) for name, text in record["headers"]]
    assert parse_event(record["value"].encode(), headers) == EVENT


def test_every_golden_file_is_tested() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {
        *MESSAGES,
        "asset_event_structured.v1.json",
        "asset_event_binary.v1.json",
    }


def test_the_golden_definition_is_still_the_job_that_it_was() -> None:
    record = DefinitionRecord.from_bytes((GOLDEN / "definition_record.v1.json").read_bytes())
    assert from_plain(record.body) == DAILY
    assert record.record_key == "job:daily_temperatures"


@pytest.mark.parametrize("name", MESSAGES)
def test_a_field_that_the_version_does_not_have_is_refused(name: str) -> None:
    data = json.loads((GOLDEN / name).read_bytes())
    with pytest.raises(ValueError, match="surprise"):
        type(MESSAGES[name]).from_bytes(json.dumps({**data, "surprise": 1}).encode())


# Asset events


def write(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def valid(**data: Any) -> dict[str, Any]:
    data = {"asset": "a", "partition_key": "k", **data}
    return {"specversion": "1.0", "id": "1", "source": "/s", "type": EVENT_TYPE, "data": data}


def parsed(value: bytes) -> AssetEvent | None:
    """The event, None where it is refused as it should be."""
    try:
        return parse_event(value)
    except InvalidEventError as error:
        if len(str(error)) > MAX_REASON_CHARACTERS:
            raise
        return None


def refusal(value: bytes | None, headers: Any = ()) -> InvalidEventError:
    with pytest.raises(InvalidEventError) as caught:
        parse_event(value, headers)
    assert len(str(caught.value)) <= MAX_REASON_CHARACTERS
    return caught.value


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
clean_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
visible = st.characters(exclude_categories=("Cc", "Cs"))
names = st.text(visible, min_size=1, max_size=60).filter(str.strip)
sources = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1, max_size=40)
dates = st.builds(
    lambda at, minutes: at.replace(tzinfo=timezone(timedelta(minutes=minutes))),
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),
    st.integers(-14 * 60, 14 * 60),
)
updates = st.fixed_dictionaries(
    {"asset": names},
    optional={
        "asset_uri": names,
        "partition_key": st.text(visible, min_size=1, max_size=250).filter(str.strip),
        "partition_date": dates.map(datetime.isoformat),
        "extra": st.dictionaries(st.text(), clean_values, max_size=4),
    },
)
attributes = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "type": st.just(EVENT_TYPE), "id": names, "source": sources},
    optional={"subject": names, "time": dates.map(datetime.isoformat), "traceparent": names},
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()), st.lists(st.tuples(
    st.sampled_from(["ce_id", "ce_source", "ce_type", "ce_specversion", "ce_data", "content-type", "ce_", "x"]),
    st.none() | st.binary() | st.sampled_from([b"1.0", EVENT_TYPE.encode(), b"application/cloudevents+json"]),
)))  # fmt: skip
@example(b"[" * 10_000 + b"]" * 10_000, [])
@example(b'{"a":' * 10_000 + b"1" + b"}" * 10_000, [])
@example(b"9" * 20_000, [])
@example(b'"\\ud800"', [])
@example(b"", [])
def test_whatever_arrives_is_an_event_or_is_refused(
    value: bytes, headers: list[tuple[str, bytes | None]]
) -> None:
    refusal(value, headers)


@given(
    st.sampled_from(
        ["specversion", "id", "source", "type", "time", "subject", "data", "extension", "datacontenttype"]
    ),
    json_values,
)
def test_whatever_one_attribute_holds_gives_an_event_or_a_refusal(field: str, value: Any) -> None:
    if event := parsed(write({**valid(), field: value})):
        assert event.to_bytes()


@given(st.sampled_from(["asset", "asset_uri", "partition_key", "partition_date", "extra"]), json_values)
@example("asset", 10**4299)
@example("partition_date", 1_772_928_000)
@example("partition_date", "1772928000")
@example("partition_date", "0001-01-01T00:00:00+14:00")
@example("partition_date", "9999-12-31T23:59:59.999999Z")
@example("extra", {"deep": [float("nan")]})
def test_whatever_one_field_of_the_data_holds_can_be_stored_or_is_refused(field: str, value: Any) -> None:
    if event := parsed(write(valid(**{field: value}))):
        assert parse_event(event.to_bytes()) == event
        if (date := event.data.partition_date) is not None:
            assert from_us(to_us(date)) == date


@given(attributes, updates)
def test_a_valid_event_says_the_same_in_both_modes_and_when_written_again(
    attributes: dict[str, str], update: dict[str, Any]
) -> None:
    structured = parse_event(write({**attributes, "data": update}))
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
    assert parse_event(write(update), [*headers, ("content-type", b"application/json")]) == structured
    assert parse_event(structured.to_bytes()) == structured
    assert structured.data.extra == update.get("extra")


def test_a_usual_event_is_read_without_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = valid(partition_date="2026-03-08T02:00:00Z", extra={"a": None}, aliases=["b"], asset_uri="s3://x")
    raws = [write({**event, **dict.fromkeys(("time", "subject"))}) for event in (valid(), whole)]
    found = [parse_event(raw) for raw in raws]
    monkeypatch.delattr(events, "parse_event")
    for headers in ((), (("content-type", b"application/cloudevents+json"),)):
        assert [event_fields(raw, headers)["id"] for raw in raws] == [event.id for event in found]


pieces = st.tuples(
    st.sampled_from(
        ["specversion", "id", "source", "type", "time", "subject", "data", "x", "asset", "aliases", "extra"]
    ),
    st.sampled_from(
        [
            '"1.0"',
            f'"{EVENT_TYPE}"',
            '"/s"',
            "null",
            "1",
            '"2026-03-08T02:00Z"',
            '{"asset":"a"}',
            '["a"]',
            "[]",
            "{}",
        ]
    ),
)


@given(st.lists(pieces, max_size=4), st.lists(pieces, max_size=3))
def test_fields_that_come_twice_or_are_strange_read_alike(
    more: list[tuple[str, str]], inner: list[tuple[str, str]]
) -> None:
    data = "{" + ",".join(f'"{name}":{value}' for name, value in [("asset", '"a"'), *inner]) + "}"
    usual = [
        ("specversion", '"1.0"'),
        ("id", '"1"'),
        ("source", '"/s"'),
        ("type", f'"{EVENT_TYPE}"'),
        ("data", data),
    ]
    with suppress(InvalidEventError):
        parse_event(("{" + ",".join(f'"{name}":{value}' for name, value in usual + more) + "}").encode())


@given(st.text(max_size=260) | st.text(st.sampled_from("k \t\u00a0\u200b\x7f\x85"), max_size=4))
@example("k" * 250)
@example("k" * 251)
@example("\U0001f30a" * 250)
@example("")
def test_a_key_is_accepted_if_and_only_if_d12_allows_it(key: str) -> None:
    allowed = (
        0 < len(key) <= 250
        and any(not character.isspace() for character in key)
        and all(unicodedata.category(character) != "Cc" for character in key)
    )
    raw = write(valid(partition_key=key))
    if allowed:
        assert parse_event(raw).data.partition_key == key
    else:
        assert refusal(raw).code == "invalid-key"


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (None, "null-value", "no value"),
        (b"", "not-json", "EOF"),
        (b"once upon a time", "not-json", "expected"),
        (b"\xff\xfe", "not-json", "line 1"),
        (b'{"id":"\xff"}', "not-json", "invalid unicode"),
        (b"[1]", "not-an-object", "[1]"),
        (write({**valid(), "specversion": "0.3"}), "unknown-version", "0.3"),
        (write({**valid(), "type": "com.example.other"}), "unknown-type", "com.example.other"),
        (write({name: value for name, value in valid().items() if name != "id"}), "missing-field", "'id'"),
        (
            write({name: value for name, value in valid().items() if name != "data"}),
            "missing-field",
            "'data'",
        ),
        (write({**valid(), "data": {"partition_key": "k"}}), "missing-field", "asset_uri"),
        (write(valid(partition_kye="k")), "unknown-field", "partition_kye"),
        (write({**valid(), "partition_key": "k"}), "unknown-field", "partition_key"),
        (write({**valid(), "partition": {"key": "k"}}), "invalid-field", "partition"),
        (write(valid(partition_key="")), "invalid-key", "empty"),
        (write(valid(partition_key=20100314)), "invalid-field", "20100314"),
        (write(valid(partition_date="2010-03-14")), "invalid-field", "offset"),
        (write(valid(extra={"celsius": float("nan")})), "invalid-field", "use null"),
        (write(valid(extra={"text": "x" * MAX_EVENT_BYTES})), "too-large", str(MAX_EVENT_BYTES)),
        (
            write(valid(extra={"n": [0]})).replace(b"0]", b",".join([b"1e15"] * 50_000) + b"]"),
            "too-large",
            "numbers",
        ),
        (write({**valid(), "id": "a\0b"}), "invalid-field", "id"),
        (write({**valid(), "data": {"aliases": ["out"]}}), "alias-without-asset", "alias 'out'"),
        (write({**valid(), "data": {"aliases": []}}), "missing-field", "asset_uri"),
        (write(valid(aliases="out")), "invalid-field", "data.aliases"),
        (write(valid(aliases=["out", " "])), "invalid-field", "data.aliases.1"),
        (write(valid(aliases=[str(n) for n in range(101)])), "invalid-field", "100"),
        (write({**valid(), "data": ["s3://me:secret@bucket/x"]}), "not-an-object", "s3://bucket/x"),
        (write(valid(asset_uri="s3://me:secret@bucket/" + "x" * 1500)), "invalid-field", "s3://bucket/x"),
    ],
)
def test_a_refusal_says_what_is_wrong(value: bytes | None, code: str, words: str) -> None:
    error = refusal(value)
    assert error.code == code
    assert words in str(error)
    assert "secret" not in str(error)


def test_the_aliases_of_an_event_are_read_as_they_were_written() -> None:
    for data in (
        {"aliases": ["out", "all", "out"]},
        {"asset": None, "asset_uri": "s3://b/x", "aliases": ["out"]},
    ):
        event = parse_event(write(valid(**data)))
        assert event.data.aliases == tuple(data["aliases"])
        assert parse_event(event.to_bytes()) == event


def test_a_run_without_a_partition_has_no_key_in_any_message() -> None:
    messages: list[Message] = [
        RunRequest(
            offset=1,
            ordinal=0,
            run_id="r",
            job="j",
            incarnation="i",
            revision=2,
            generation=1,
            completed_by="e",
            windows=(),
            events=(),
        ),
        RunCommand(
            run_id="r",
            job="j",
            generation=1,
            cause="assets",
            completed_by="e",
            definition_revision=2,
            windows=(),
            triggering_asset_events=(),
            outlets=(),
            run_events_partition=0,
        ),
        RunEvent(run_id="r", job="j", state=RunState.SUCCEEDED),
    ]
    for message in messages:
        assert "partition_key" not in json.loads(message.to_bytes())
        assert type(message).from_bytes(message.to_bytes()) == message


def test_partition_dates_travel_to_the_microsecond_and_far_into_the_past() -> None:
    batch = AcceptedBatch(
        source="s/0",
        events=tuple(
            AcceptedEvent(n, 1, 0, "/s", str(n), "a", "k", to_us(date), None, None)
            for n, date in enumerate(
                (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
            )
        ),
    )
    read = AcceptedBatch.from_bytes(batch.to_bytes())
    assert [each.partition_date for each in read.events] == [-62_135_596_800_000_000, 253_402_300_799_999_999]


def test_headers_count_for_the_size_of_an_event() -> None:
    headers = [("ce_specversion", b"1.0"), ("ce_subject", b"x" * MAX_EVENT_BYTES)]
    assert refusal(b"{}", headers).code == "too-large"
    assert refusal(b"{}", [("ce_id", b"\xff")]).code == "invalid-header"
    assert refusal(b"{}", [("ce_data", b"{}")]).code == "invalid-header"


def test_binary_data_cannot_reach_the_attributes() -> None:
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/s"),
        ("ce_type", EVENT_TYPE.encode()),
    ]
    assert refusal(b'{"asset":"a"},"id":"2"', headers).code == "not-json"
    assert parse_event(b'{"asset":"a"}', headers).id == "1"


# Packing and placement


@given(st.lists(st.text(max_size=80), min_size=1), st.integers(1, 200))
def test_packed_records_hold_every_entry_in_order_and_stay_below_the_limit(
    entries: list[str], limit: int
) -> None:
    records = list(pack(entries, lambda some: json.dumps(some).encode(), limit))
    assert [entry for raw in records for entry in json.loads(raw)] == entries
    assert all(len(raw) <= limit or len(json.loads(raw)) == 1 for raw in records)


@given(st.text(), st.text(), st.integers(1, 1024), st.integers(1, 4096))
def test_every_shard_follows_exactly_one_partition(job: str, key: str, partitions: int, shards: int) -> None:
    assert 0 <= partition_of(job, partitions) < partitions
    shard = shard_of(job, key, shards)
    assert 0 <= shard < shards
    fed = [number for number in range(partitions) if shard in shards_of_partition(number, partitions, shards)]
    assert fed == [contributions_partition(shard, partitions)]


def test_placement_never_changes() -> None:
    assert [partition_of(name, 4) for name in ("seattle_hourly", "san_francisco_hourly", "\u00e9")] == [
        1,
        3,
        2,
    ]
    assert [shard_of("daily_temperatures", key, 16) for key in ("2010-03-14", "2010-03-15", "")] == [
        11,
        13,
        15,
    ]


def test_declared_topics_have_names_of_their_own() -> None:
    topics = declared_topics(4)
    assert len({topic.name for topic in topics}) == len(topics)
    assert team_events_topic("blue", 4).name == "asset-events.blue"
    for team in ("rejected", "", "a.b", "a b"):
        with pytest.raises(DefinitionError, match="team"):
            team_events_topic(team, 4)


def test_audit_ids_are_made_from_content() -> None:
    assert audit_id("kind", "asset-events/0@1") == audit_id("kind", "asset-events/0@1")
    assert audit_id("kind", "asset-events/0@1") != audit_id("kind", "asset-events/0@11")
    assert audit_id("a", "bc") != audit_id("ab", "c")


# Positions

topic_names = st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True)
source_names = st.builds(
    "{}/{}{}".format, topic_names, st.integers(0, 1023), st.sampled_from(["", "~1", "#15"])
)
offsets = st.integers(0, 2**63 - 1)


@given(
    st.builds(
        Position,
        offset=offsets,
        at=st.integers(0, 2**53),
        highs=st.dictionaries(source_names, st.tuples(offsets, st.integers(0, 2**31))),
        incarnation=st.integers(0, 9),
    )
)
def test_a_position_survives_its_way_through_the_broker(position: Position) -> None:
    assert Position.from_kafka(position.to_kafka()) == position


@pytest.mark.parametrize("partitions", [1, 8, 400])
def test_where_400_partitions_were_read_to_fits_beside_an_offset_and_never_takes_more_than_is_told(
    partitions: int,
) -> None:
    draw = Random(partitions)  # 12 digits, which compress badly
    names = [f"asset-events.t{number // partitions}/{number % partitions}" for number in range(400)]
    draw.shuffle(names)
    highs = {name: (draw.randrange(10**11, 10**12), 0) for name in names}
    position = Position(10**12, 1_768_557_205_250, highs)
    size = len(position.to_kafka().metadata)
    assert Position.from_kafka(position.to_kafka()) == position
    assert size <= most_metadata(names, with_ordinals=False) + 20
    if partitions > 1:
        assert size <= 4096


def test_of_a_log_that_began_anew_only_the_newest_coordinates_are_kept_and_the_older_are_no_input() -> None:
    highs = Highs({"contributions/1#5": (7, 2), "contributions/1#6": (4, 0), "contributions/11#5": (9, 0)})
    assert highs.is_new("contributions/1#5", 7, 3)
    assert highs.is_new("contributions/1~1#5", 0, 0)
    assert not highs.is_new("contributions/1#5", 8, 0), "what lives on of the older log"
    assert highs.is_new("contributions/1~10#5", 0, 0)
    assert not highs.is_new("contributions/1~9#5", 3, 0)
    assert highs.is_new("contributions/1~10#5", 0, 1)
    kept = {"contributions/1~10#5": (0, 1), "contributions/1#6": (4, 0), "contributions/11#5": (9, 0)}
    assert highs.snapshot() == kept
    for known in (kept, dict(reversed([*kept.items(), ("contributions/1~2#5", (5, 0))]))):
        again = Highs(known)
        assert again.snapshot() == kept
        assert not again.is_new("contributions/1~9#5", 3, 0)


def test_a_log_that_began_anew_is_another_source() -> None:
    tp = TopicPartition("asset-events", 3)
    assert (source_of(tp), source_of(tp, 2)) == ("asset-events/3", "asset-events/3~2")


@given(st.none() | st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_start_never_skips_a_record_in_silence(wanted: int | None, beginning: int, length: int) -> None:
    end = beginning + length
    start = decide_start(wanted, beginning, end)
    if isinstance(start, Gap):
        assert wanted is not None
        assert not beginning <= wanted <= end
        assert start.beginning == beginning
        assert start.recreated == (wanted > end)
    else:
        assert beginning <= start <= end
        assert start == (beginning if wanted is None else wanted)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 2))))
def test_highs_let_every_coordinate_pass_once_and_only_upwards(read: list[tuple[str, int, int]]) -> None:
    highs = Highs({})
    passed = [each for each in read if highs.is_new(*each)]
    for source in "ab":
        coordinates = [each[1:] for each in passed if each[0] == source]
        assert coordinates == sorted(set(coordinates))
        assert Highs(highs.snapshot()).snapshot().get(source) == max(coordinates, default=None)


@pytest.mark.parametrize(("levels", "code"), [(63, None), (64, "too-deep"), (150, "too-deep")])
def test_extra_that_our_own_messages_could_not_carry_is_refused(levels: int, code: str | None) -> None:
    """An event nested almost too deep for a parser made the packed records around it unreadable, with their events."""
    extra = '{"a":' * levels + "{}" + "}" * levels
    data = '{"asset":"a","partition_key":"k","extra":' + extra + "}"
    value = (
        '{"specversion":"1.0","id":"1","source":"/s","type":"dev.tidegate.asset.updated.v1","data":'
        + data
        + "}"
    ).encode()
    if code is None:
        parse_event(value)
    else:
        with pytest.raises(InvalidEventError) as refused:
            parse_event(value)
        assert refused.value.code == code
