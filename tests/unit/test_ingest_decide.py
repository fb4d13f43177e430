"""What ingest decides, with a dict in place of Redis."""

import json
from base64 import b64decode
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.events import EVENT_TYPE, MAX_REASON_CHARACTERS
from tidegate.contracts.placement import partition_of
from tidegate.contracts.rejected import DeadLetter
from tidegate.contracts.topics import ACCEPTED, MAX_EVENT_BYTES, MIB, PACK_BYTES, REJECTED
from tidegate.core.audit import AuditKind
from tidegate.definitions import Asset
from tidegate.runtime.unreadable import stand_in
from tidegate_ingest.decide import Candidate, Decided, KnownAssets, decide, read_record, team_of

TP = TopicPartition("asset-events", 0)
KNOWN = KnownAssets({name: Asset(name) for name in "abcdef"})
PARTITIONS = 3
SKEW_LIMIT_MS = 60_000


def record(
    offset: int,
    value: bytes | None,
    *,
    tp: TopicPartition = TP,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> ConsumerRecord:
    size = len(value or b"")
    return ConsumerRecord(tp.topic, tp.partition, offset, 1000 + offset, 1, key, value, 0, 0, size, headers)


def event(id: str = "1", **data: Any) -> bytes:
    data = {"asset": "a", "partition_key": "k"} | data
    return json.dumps(
        {"specversion": "1.0", "id": id, "source": "/s", "type": EVENT_TYPE, "data": data}
    ).encode()


def ingest(
    records: list[ConsumerRecord],
    seen: dict[str, str] | None = None,
    assets: KnownAssets = KNOWN,
    stamp: int = 7,
    source: str = "asset-events/0",
) -> Decided:
    """One poll of one partition; `seen` is changed as Redis would be."""
    seen = {} if seen is None else seen
    read = [
        read_record(TopicPartition(each.topic, each.partition), source, each, assets, stamp)
        for each in records
    ]
    candidates = [each for each in read if isinstance(each, Candidate)]
    before = {each.identity: seen[each.identity] for each in candidates if each.identity in seen}
    for each in candidates:
        seen.setdefault(each.identity, each.mark)
    return decide(read, before, assets, PARTITIONS, SKEW_LIMIT_MS)


def accepted(decided: Decided) -> dict[int, list[AcceptedEvent]]:
    """The accepted events by target partition."""
    found: dict[int, list[AcceptedEvent]] = {}
    for each in decided.records:
        if each.topic == ACCEPTED:
            assert each.partition is not None
            assert each.value is not None
            found.setdefault(each.partition, []).extend(AcceptedBatch.from_bytes(each.value).events)
    return found


def offsets(decided: Decided) -> list[int]:
    return sorted(each.offset for events in accepted(decided).values() for each in events)


def kinds(decided: Decided) -> list[AuditKind]:
    return [each.kind for each in decided.audit]


def letters(decided: Decided) -> list[DeadLetter]:
    return [DeadLetter.from_bytes(each.value or b"") for each in decided.records if each.topic == REJECTED]


def test_an_accepted_event_says_everything_that_the_producer_said() -> None:
    tp = TopicPartition("asset-events.blue", 3)
    value = event(
        "e",
        partition_date="2010-03-14T01:00:00.000001-08:00",
        extra={"x": None},
        aliases=["out", "all", "out"],
    )
    decided = ingest([record(5, value, tp=tp)], source="asset-events.blue/3")
    assert accepted(decided) == {
        partition_of("a", PARTITIONS): [
            AcceptedEvent(
                *(5, 7, 1005, "/s", "e", "a", "k"),
                *(1_268_557_200_000_001, {"x": None}, "blue", ("out", "all")),
            )
        ]
    }
    assert decided.records[0].key == b"asset-events.blue/3"
    assert not decided.audit
    assert decided.accepted == 1


@pytest.mark.parametrize(
    ("time", "skew_s"),
    [
        (None, None),
        ("1970-01-01T00:01:01.005Z", None),  # the record is of 1.005 s, the limit 60 s
        ("1970-01-01T00:01:01.006Z", 60.001),
        ("1969-12-31T23:00:01.005-01:00", None),
        ("1969-12-31T22:50:01.005-01:00", -600),
    ],
)
def test_b097_an_event_whose_own_time_is_far_off_is_accepted_and_audited(
    time: str | None, skew_s: float | None
) -> None:
    whole = json.loads(event("e")) | ({} if time is None else {"time": time})
    decided = ingest([record(5, json.dumps(whole).encode())])
    assert offsets(decided) == [5]
    found = [(each.kind, (each.details or {})["skew_s"], each.event_id) for each in decided.audit]
    assert found == ([] if skew_s is None else [(AuditKind.CLOCK_SKEW, skew_s, "e")])


def test_the_team_of_an_event_is_the_topic_it_was_written_to() -> None:
    assert [team_of(topic) for topic in ("asset-events", "asset-events.blue")] == [None, "blue"]


def test_a_repeated_id_in_one_poll_is_accepted_once() -> None:
    decided = ingest([record(0, event("1")), record(1, event("2")), record(2, event("1"))])
    assert offsets(decided) == [0, 1]
    assert kinds(decided) == [AuditKind.DUPLICATE_EVENT]
    entry = decided.audit[0]
    assert (entry.position, entry.details) == ("asset-events/0@2", {"first": "asset-events/0@0"})
    assert (entry.event_id, entry.event_source, entry.partition_key) == ("1", "/s", "k")
    assert "asset-events/0@0" in entry.message


def test_a_repeated_id_in_a_later_poll_is_not_accepted() -> None:
    seen: dict[str, str] = {}
    assert offsets(ingest([record(0, event())], seen)) == [0]
    assert kinds(ingest([record(9, event())], seen)) == [AuditKind.DUPLICATE_EVENT]


def test_a_record_that_is_read_again_is_not_its_own_duplicate() -> None:
    seen: dict[str, str] = {}
    records = [record(0, event()), record(1, event())]
    first = ingest(records, seen)
    assert ingest(records, seen) == first


def test_the_same_id_of_another_source_is_another_event() -> None:
    other = event().replace(b'"/s"', b'"/t"')
    assert offsets(ingest([record(0, event()), record(1, other)])) == [0, 1]


def test_the_same_offset_of_a_log_that_began_anew_is_another_record() -> None:
    seen: dict[str, str] = {}
    ingest([record(0, event())], seen)
    decided = ingest([record(0, event())], seen, source="asset-events/0~1")
    assert kinds(decided) == [AuditKind.DUPLICATE_EVENT]


def test_an_event_for_an_asset_that_nobody_defined_is_kept_and_audited() -> None:
    decided = ingest([record(0, event(asset="nobody's"))])
    assert offsets(decided) == [0]
    assert kinds(decided) == [AuditKind.UNKNOWN_ASSET]
    assert decided.audit[0].asset == "nobody's"


def test_a_uri_is_resolved_by_the_definitions() -> None:
    assets = KnownAssets({"orders": Asset("orders", "s3://bucket/orders")})
    decided = ingest([record(0, event(asset=None, asset_uri="s3://bucket/orders"))], assets=assets)
    assert [each.asset for events in accepted(decided).values() for each in events] == ["orders"]
    assert not decided.audit


def test_a_uri_that_no_definition_gives_is_a_name() -> None:
    decided = ingest([record(0, event(asset=None, asset_uri="s3://bucket/orders"))])
    assert [each.asset for events in accepted(decided).values() for each in events] == ["s3://bucket/orders"]
    assert kinds(decided) == [AuditKind.UNKNOWN_ASSET]


def names(decided: Decided) -> list[str]:
    """The assets of the accepted events, in the order of offsets."""
    events = [each for some in accepted(decided).values() for each in some]
    return [each.asset for each in sorted(events)]


def by_uri(*uris: str, **data: Any) -> list[ConsumerRecord]:
    return [record(n, event(str(n), asset=None, asset_uri=uri, **data)) for n, uri in enumerate(uris)]


def test_every_spelling_of_a_uri_is_the_asset_that_has_it() -> None:
    assets = KnownAssets({"orders": Asset("orders", "s3://bucket/Orders/?b=2&a=1")})
    spellings = [
        "s3://bucket/Orders?a=1&b=2",
        "S3://bucket/Orders/?b=2&a=1#part",
        "s3://me:secret@bucket/Orders//?a=1&b=2",
    ]
    assert names(ingest(by_uri(*spellings), assets=assets)) == ["orders"] * 3
    assert names(ingest(by_uri("s3://bucket/orders?a=1&b=2"), assets=assets)) == [
        "s3://bucket/orders?a=1&b=2"
    ]


def test_a_uri_that_no_definition_gives_is_named_in_its_normal_form() -> None:
    decided = ingest(by_uri("S3://bucket/orders/", "s3://bucket/orders", "no scheme at all"))
    assert names(decided) == ["s3://bucket/orders", "s3://bucket/orders", "no scheme at all"]
    assert [each.asset for each in decided.audit] == names(decided)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://bucket/\u00e9", "percent-encoded"),
        ("airflow://x", "reserved scheme"),
        ("s3:///orders", "names no bucket"),
        ("http://[broken", "cannot be read"),
        ("s3://bucket/\u00e9" + "x" * 1400, "s3://bucket/"),
    ],
)
@pytest.mark.parametrize("asset", [None, "a"])
def test_a_uri_that_breaks_the_rules_is_a_dead_letter(uri: str, words: str, asset: str | None) -> None:
    decided = ingest([record(0, event(asset=asset, asset_uri=uri)), record(1, event())])
    (letter,) = letters(decided)
    assert letter.code == "invalid-uri"
    assert letter.reason.startswith("asset_uri")
    assert words in letter.reason
    assert len(letter.reason) <= MAX_REASON_CHARACTERS
    assert kinds(decided) == [AuditKind.EVENT_REFUSED]
    assert offsets(decided) == [1]


SECRETS = [
    "s3://me:secret@bucket/x",
    "S3://me:se@secret@bucket/x/",
    "s3://me:secret@bucket/\u00e9",
    "s3://:secret@/x",
    "airflow://me:secret@host",
    "x-db://me:secret@host/t",
    "http://me:secret@[broken/x",
    "http://me:secret@exa\u2100mple/x",
    "http://m'e:s ecret@host:port/x",
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("uri", SECRETS)
@pytest.mark.parametrize("field", ["asset", "asset_uri"])
def test_a_password_in_a_uri_goes_nowhere_and_warns_of_nothing(uri: str, field: str) -> None:
    data = {"asset": None} if field == "asset_uri" else {}
    seen: dict[str, str] = {}
    decided = ingest(
        [record(0, event(**{**data, field: uri})), record(1, event(**{**data, field: uri}))], seen
    )
    assert offsets(decided) == ([] if letters(decided) else [0])
    written = [each.value or b"" for each in decided.records if each.topic == ACCEPTED]
    written += [each.reason.encode() for each in letters(decided)]
    written += [each.to_bytes() for each in decided.audit]
    written += [mark.encode() for mark in seen.values()]
    assert written
    assert not any(b"ecret" in each for each in written), written


@given(st.text(max_size=30) | st.from_regex(r"[sS]3:/{0,3}[a-z:@?#&=/\[\]%é ]{0,20}", fullmatch=True))
def test_whatever_a_uri_says_the_event_has_one_name_or_one_dead_letter(uri: str) -> None:
    decided = ingest(by_uri(uri))
    assert len(names(decided)) + len(letters(decided)) == 1
    for name in names(decided):  # as a definition of the same URI would have it
        assert names(ingest(by_uri(uri), assets=KnownAssets({"x": Asset("x", uri)}))) == ["x"]
        assert names(ingest(by_uri(name))) == [name]


def test_b058_an_alias_without_an_asset_is_refused_under_a_name_of_its_own() -> None:
    decided = ingest([record(0, event(asset=None, aliases=["out"])), record(1, event(aliases=["out"]))])
    (letter,) = letters(decided)
    assert letter.code == "alias-without-asset"
    assert kinds(decided) == [AuditKind.ALIAS_WITHOUT_ASSET]
    assert "'out'" in decided.audit[0].message
    (kept,) = [each for some in accepted(decided).values() for each in some]
    assert (kept.offset, kept.asset, kept.partition_key, kept.aliases) == (1, "a", "k", ("out",))


def test_a_uri_resolves_as_at_first_when_the_record_is_read_again_after_a_new_definition() -> None:
    seen: dict[str, str] = {}
    value = event(asset=None, asset_uri="s3://bucket/my orders")
    before = accepted(ingest([record(0, value)], seen, stamp=7))
    defined = KnownAssets({"orders": Asset("orders", "s3://bucket/my orders")})
    assert accepted(ingest([record(0, value)], seen, defined, stamp=7)) == before


def test_a_refused_record_becomes_a_dead_letter_and_an_audit_entry() -> None:
    headers = (("content-type", b"text/plain"), ("empty", None), ("content-type", b"again"))
    decided = ingest([record(4, b"\xff{", key=b"\x00key", headers=headers), record(5, event())])
    (letter,) = letters(decided)
    assert (letter.topic, letter.partition, letter.offset, letter.at) == ("asset-events", 0, 4, 1004)
    assert (letter.code, letter.size, letter.truncated) == ("not-json", 2, False)
    assert b64decode(letter.value_base64 or "") == b"\xff{"
    assert [(name, raw and b64decode(raw)) for name, raw in letter.headers] == list(headers)
    assert [each.key for each in decided.records if each.topic == REJECTED] == [b"\x00key"]
    assert kinds(decided) == [AuditKind.EVENT_REFUSED]
    assert decided.audit[0].position == "asset-events/0@4"
    assert decided.audit[0].message == letter.reason
    assert offsets(decided) == [5]


def test_a_record_without_a_value_becomes_a_dead_letter_without_one() -> None:
    (letter,) = letters(ingest([record(0, None)]))
    assert (letter.value_base64, letter.size, letter.code) == (None, 0, "null-value")


def test_a_record_that_the_client_could_not_decode_becomes_a_dead_letter() -> None:
    decided = ingest([stand_in(TP, 7), record(8, event())])
    (letter,) = letters(decided)
    assert (letter.offset, letter.code, letter.value_base64) == (7, "undecodable", None)
    assert offsets(decided) == [8]


def test_a_value_over_the_limit_is_cut_to_its_first_kib() -> None:
    value = event(extra={"text": "x" * MAX_EVENT_BYTES})
    (letter,) = letters(ingest([record(0, value)]))
    assert (letter.code, letter.size, letter.truncated) == ("too-large", len(value), True)
    assert b64decode(letter.value_base64 or "") == value[:1024]


def test_a_dead_letter_fits_its_topic_whatever_the_record_held() -> None:
    value = b"\x01" * MAX_EVENT_BYTES
    many = tuple((f"\x01{number}", b"") for number in range(20_000))
    for key, headers in [(b"k" * 700_000, ()), (None, (("h", b"x" * 700_000),)), (None, many)]:
        decided = ingest([record(0, value, key=key, headers=headers)])
        (sent,) = decided.records
        assert len(sent.value or b"") + len(sent.key or b"") < MIB - 32 * 1024
        assert letters(decided)[0].truncated
        assert len(decided.audit[0].to_bytes()) < 8192


def test_the_reason_and_the_audit_entry_stay_short() -> None:
    names = ["x" * 100_000, "\u00e9\x01" * 40_000]
    for name in names:
        decided = ingest([record(0, event().replace(b'"asset"', json.dumps(name).encode()))])
        assert len(decided.audit[0].to_bytes()) < 8192


def test_large_events_are_split_over_records() -> None:
    decided = ingest([record(n, event(str(n), extra={"text": "x" * 200_000})) for n in range(8)])
    assert offsets(decided) == list(range(8))
    sizes = [len(each.value or b"") for each in decided.records]
    assert len(sizes) == 4
    assert max(sizes) <= PACK_BYTES


ids = st.sampled_from("12345678")
assets = st.sampled_from("abcdefgh")
inputs = st.lists(st.tuples(ids, assets) | st.just(None), max_size=25)


polls = st.lists(st.tuples(st.integers(1, 8), st.booleans()), max_size=8)
"""How many records each poll returns, and whether its offsets are committed before the process is killed."""


@given(inputs, polls)
def test_whatever_the_polls_and_restarts_the_accepted_stream_is_the_same(
    written: list[tuple[str, str] | None], polls: list[tuple[int, bool]]
) -> None:
    records = [
        record(offset, b"[]" if each is None else event(each[0], asset=each[1]))
        for offset, each in enumerate(written)
    ]
    expected: dict[int, str] = {}
    met: set[str] = set()
    for offset, each in enumerate(written):
        if each is not None and each[0] not in met:
            expected[offset] = each[1]
            met.add(each[0])

    seen: dict[str, str] = {}
    log: dict[int, list[AcceptedEvent]] = {}
    refused: set[int] = set()
    audited: set[str] = set()
    committed = 0
    for length, is_committed in [*polls, (len(records), True)]:
        end = committed + length
        decided = ingest(records[committed:end], seen)
        for partition, events in accepted(decided).items():
            log.setdefault(partition, []).extend(events)
        refused |= {letter.offset for letter in letters(decided)}
        audited |= {entry.id for entry in decided.audit}
        if is_committed:
            committed = end

    kept: list[AcceptedEvent] = []
    for partition, events in log.items():
        high = -1
        for one in events:  # as the mapper drops repeats (E1)
            if one.offset > high:
                high = one.offset
                kept.append(one)
                assert partition == partition_of(one.asset, PARTITIONS)
    assert sorted(each.offset for each in kept) == sorted(expected)
    assert refused == {offset for offset, each in enumerate(written) if each is None}
    unknown = sum(asset not in KNOWN for asset in expected.values())
    assert len(audited) == len(records) - len(expected) + unknown
