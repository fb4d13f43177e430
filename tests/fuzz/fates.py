"""What must have become of every record that was sent: exactly one fate each, and said so."""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.events import EVENT_TYPE, Sent

Place = tuple[int, int]
"""Partition and offset on `asset-events`."""

HEAD = 1024
MOST = 256 * 1024
_DATA = {"asset", "asset_uri", "aliases", "partition_key", "partition_date", "extra"}
_FIELDS = ("offset", "definitions", "at", "source", "id", "asset", "partition_key", "partition_date", "extra")


@dataclass(slots=True)
class Fates:
    """Everything that came out, as plain JSON: nothing of the product reads it."""

    accepted: dict[Place, dict[str, Any]] = field(default_factory=dict)
    letters: dict[Place, dict[str, Any]] = field(default_factory=dict)
    audited: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Audit entries by id."""

    def take_accepted(self, value: bytes) -> None:
        batch = json.loads(value)
        partition = int(batch["source"].partition("/")[2].partition("#")[0])
        for values in batch["events"]:
            event = dict(zip(_FIELDS, values, strict=False))
            self.accepted[partition, event["offset"]] = event

    def take_letter(self, value: bytes) -> None:
        letter = json.loads(value)
        self.letters[letter["partition"], letter["offset"]] = letter

    def take_audit(self, value: bytes) -> None:
        entry = json.loads(value)
        self.audited[entry["id"]] = entry

    def by_kind(self, kind: str) -> dict[Place, dict[str, Any]]:
        return {_place(entry["position"]): entry for entry in self.audited.values() if entry["kind"] == kind}

    def count(self) -> int:
        """How many records have a fate."""
        return len(self.accepted) + len(self.letters) + len(self.by_kind("duplicate-event"))


def _place(position: str) -> Place:
    log, _, offset = position.rpartition("@")
    return int(log.partition("/")[2].partition("#")[0]), int(offset)


@dataclass(slots=True)
class Verdict:
    sent: int
    accepted: int
    refused: int
    duplicates: int
    codes: Counter[str]
    problems: list[str]

    def line(self) -> str:
        return (
            f"sent={self.sent} accepted={self.accepted} refused={self.refused} duplicates={self.duplicates}"
            f" problems={len(self.problems)}"
        )


def judge(sent: Mapping[Place, Sent], fates: Fates) -> Verdict:
    """Hold what came out against what was sent."""
    duplicates, refusals = fates.by_kind("duplicate-event"), fates.by_kind("event-refused")
    refusals |= fates.by_kind("alias-without-asset")
    problems: list[str] = []
    for place, one in sent.items():
        found = [name for name, some in _named(fates, duplicates) if place in some]
        if len(found) != 1:
            problems.append(f"{place} has the fates {found}: {_shown(one)}")
        elif found == ["refused"]:
            problems += (
                f"{place}: {each}: {_shown(one)}"
                for each in _of_letter(one, fates.letters[place], refusals.get(place))
            )
            if one.is_untouched:
                problems.append(f"{place} is well-formed, but refused: {fates.letters[place]['reason']}")
        elif found == ["accepted"]:
            problems += (
                f"{place}: {each}: {_shown(one)}" for each in _of_accepted(one, fates.accepted[place])
            )
    for name, some in _named(fates, duplicates):
        problems += (f"{place} is {name}, but was never sent" for place in some.keys() - sent.keys())
    return Verdict(
        len(sent),
        len(fates.accepted),
        len(fates.letters),
        len(duplicates),
        Counter(letter["code"] for letter in fates.letters.values()),
        problems,
    )


def _named(fates: Fates, duplicates: Mapping[Place, Any]) -> Iterable[tuple[str, Mapping[Place, Any]]]:
    return ("accepted", fates.accepted), ("refused", fates.letters), ("a duplicate", duplicates)


def _of_letter(one: Sent, letter: Mapping[str, Any], entry: Mapping[str, Any] | None) -> Iterable[str]:
    if not letter["reason"].strip() or not letter["code"]:
        yield "the dead letter gives no reason"
    if len(letter["reason"]) > 500:
        yield f"the reason has {len(letter['reason'])} characters"
    value = one.value
    kept = value[:HEAD] if value is not None and len(value) > MOST else value
    if (letter.get("value_base64") is None) != (kept is None) or b64decode(
        letter.get("value_base64") or ""
    ) != (kept or b""):
        yield "the dead letter does not hold the value as it was sent"
    if letter["size"] != len(value or b""):
        yield f"the dead letter says {letter['size']} bytes"
    if entry is None:
        yield "the refusal is not in the audit log"
    elif entry["message"] != letter["reason"]:
        yield f"the audit log gives another reason: {entry['message']}"


def _of_accepted(one: Sent, event: Mapping[str, Any]) -> Iterable[str]:
    """What another reader of JSON finds in the record is what was accepted."""
    is_structured = not any(name.startswith("ce_") and raw is not None for name, raw in one.headers) or any(
        name == "content-type" and (raw or b"").startswith(b"application/cloudevents+json")
        for name, raw in one.headers
    )
    try:
        read: Any = json.loads(one.value or b"")
        whole: Any = (
            read
            if is_structured
            else {name[3:]: (raw or b"").decode() for name, raw in one.headers if name[:3] == "ce_"}
        )
        data: Any = whole["data"] if is_structured else read
        said = {
            "specversion": whole["specversion"],
            "type": whole["type"],
            "id": whole["id"],
            "source": whole["source"],
            "partition_key": data.get("partition_key"),
        }
        names = {data.get("asset"), data.get("asset_uri")} - {None}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"accepted, though Python's json does not find an event in it: {error!r}"
        return
    kept = {
        "specversion": "1.0",
        "type": EVENT_TYPE,
        **{name: event.get(name) for name in ("id", "source", "partition_key")},
    }
    if said != kept:
        yield f"accepted as {kept}, but the record says {said}"
    if unknown := data.keys() - _DATA:
        yield f"accepted, though nothing knows {sorted(unknown)[:3]}"
    if not names:
        yield "accepted without an asset"
    elif isinstance(data.get("asset"), str) and "@" not in data["asset"] and event["asset"] != data["asset"]:
        yield f"accepted for {event['asset']!r}, but the record says {data['asset']!r}"
    if data.get("extra") != event.get("extra") and not _is_close(data.get("extra"), event.get("extra")):
        yield f"accepted with extra {str(event.get('extra'))[:200]}, but the record says {str(data.get('extra'))[:200]}"


def _is_close(one: Any, other: Any) -> bool:
    """Equal, but for what a float cannot hold of a number and the entries of empty dictionaries."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return (
            isinstance(one, int | float)
            and isinstance(other, int | float)
            and abs(one - other) <= 1e-12 * abs(one)
        )
    return type(one) is type(other) and bool(one == other)


def _shown(one: Sent) -> str:
    headers = [(name[:60], (raw or b"")[:60]) for name, raw in one.headers[:8]]
    return f"{(one.value or b'')[:700]!r} with headers {headers}"
