"""Dead letters as people see them, and what goes out when one is sent again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.rejected import DeadLetter, base64_text
from tidegate.core.audit import AuditKind
from tidegate.runtime.dead_letters import CannotRedriveError, Kept, redriven_entry, refused_record

Headers = tuple[tuple[str, bytes | None], ...]


def kept(value: bytes | None = b"{}", headers: Headers = (), key: bytes | None = b"k", **more: Any) -> Kept:
    fields: dict[str, Any] = {"code": "not-json", "reason": "no", "size": len(value or b"")} | more
    letter = DeadLetter(
        topic="asset-events.blue",
        partition=3,
        offset=42,
        at=5,
        value_base64=base64_text(value),
        headers=tuple((name, base64_text(raw)) for name, raw in headers),
        **fields,
    )
    return Kept(0, 17, 9, key, DeadLetter.from_bytes(letter.to_bytes()))


@given(
    st.none() | st.binary(max_size=40),
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=9)),
        max_size=4,
    ),
    st.none() | st.binary(max_size=9),
)
def test_a_record_goes_out_as_it_came_with_one_header_that_says_it_was_sent_again(
    value: bytes | None, headers: list[tuple[str, bytes | None]], key: bytes | None
) -> None:
    earlier = ("tidegate-redriven", b"0@3")
    out = refused_record(kept(value, (*headers[:1], earlier, *headers[1:]), key))
    assert (out.topic, out.partition, out.key, out.value) == ("asset-events.blue", 3, key, value)
    assert list(out.headers) == [*headers, ("tidegate-redriven", b"0@17")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"truncated": True, "size": 300_000},
            "only a part of its record, which has a value of 300000 bytes",
        ),
        ({"code": "undecodable"}, "holds nothing of its record"),
    ],
)
def test_what_was_not_kept_whole_is_not_sent(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotRedriveError, match=words):
        refused_record(kept(**fields))


@pytest.mark.parametrize(
    ("value", "headers", "event_id"),
    [
        (b'{"id": "e1", "data": 7}', (), "e1"),
        (b'{"asset": "a"}', (("ce_id", b"e2"),), "e2"),
        (b'{"id": 7}', (), None),
        (b'["id"]', (), None),
        (b"[" * 100_000, (), None),
        (b"\xff", (), None),
        (b'{"id": "cut', (), None),
        (None, (("ce_id", None),), None),
    ],
)
def test_the_id_of_the_event_is_read_where_there_is_one(
    value: bytes | None, headers: Headers, event_id: str | None
) -> None:
    assert kept(value, headers).event_id == event_id


def test_a_letter_knows_its_place_its_origin_and_which_one_it_was_before() -> None:
    one = kept(headers=(("tidegate-redriven", b"0@3"),))
    assert (one.place, one.origin, one.redriven_from) == ("0@17", "asset-events.blue/3@42", "0@3")
    assert kept().redriven_from is None


def test_every_sending_has_an_entry_of_its_own() -> None:
    letter = kept(json.dumps({"id": "e1"}).encode())
    first, second = (redriven_entry(letter, "ana", 1_000, number) for number in (1, 2))
    assert first.id != second.id
    assert first.id == redriven_entry(letter, "ana", 2_000, 1).id
    assert (first.kind, first.event_id, first.position) == (
        AuditKind.REDRIVEN,
        "e1",
        "asset-events.rejected/0@17",
    )
    assert "by ana" in first.message
