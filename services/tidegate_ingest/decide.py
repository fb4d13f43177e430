"""What becomes of every record that producers wrote: pure, and the same whenever a record is read again.

Three steps: `read_record` (is it an event?), the marks in Redis (is it the first of its id?), `decide` (what goes out).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import blake2b
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition

from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.events import Headers, UpdateFields, event_fields, shortened
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.packing import pack
from tidegate.contracts.placement import partition_of
from tidegate.contracts.rejected import DeadLetter, base64_text
from tidegate.contracts.topics import ACCEPTED, ASSET_EVENTS, MAX_EVENT_BYTES, REJECTED
from tidegate.core.audit import AuditKind, kind_of_refusal
from tidegate.core.errors import DefinitionError, InvalidEventError
from tidegate.core.instants import to_ms, to_us
from tidegate.definitions import Asset
from tidegate.definitions.known import names_by_uri, unknown_asset
from tidegate.definitions.uris import normal_uri, without_credentials
from tidegate.runtime.unreadable import is_stand_in, unreadable_record

SERVICE: Final = "ingest"
_HEAD_BYTES: Final = 1024
_MAX_HEADER_BYTES: Final = 64 * 1024
_MAX_KEY_BYTES: Final = 64 * 1024
"""With the value (256 KiB, a third more in base64) a dead letter stays below 1 MiB."""


class KnownAssets:
    """The assets that definitions name; an event may name one by its URI."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._names = frozenset(assets)
        self._by_uri = names_by_uri(assets)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def name_of(self, update: UpdateFields) -> str:
        """The name of the event's asset; a URI that no definition gives is a name itself, in its normal form.

        Credentials in a URI are dropped before anything else looks at it, as definitions drop them from assets (F31):
        nothing keeps, quotes or warns of them. Raises InvalidEventError for a URI that breaks the rules.
        """
        asset, asset_uri = update.get("asset"), update.get("asset_uri")
        uri = None if asset_uri is None else _normal(asset_uri)
        if asset is not None:
            return without_credentials(asset)
        assert uri is not None
        return self._by_uri.get(uri, (uri,))[0]


def _normal(uri: str) -> str:
    try:
        return normal_uri(without_credentials(uri))
    except DefinitionError as error:
        raise InvalidEventError(
            "invalid-uri", shortened(str(error).replace("Asset.uri", "asset_uri"))
        ) from error


class Candidate(NamedTuple):
    """An event that is accepted unless another one with its (source, id) came before it."""

    event: AcceptedEvent
    source: str
    """The source partition."""
    position: str
    time: datetime | None
    """When the producer says that it was made."""
    identity: str
    """A short form of (source, id), 32 characters."""
    mark: str
    """What is remembered under the identity: the position, and the asset's name where a URI was resolved.

    So a record that is read again after a change of definitions still names the asset that it named at first.
    """


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that can never be accepted."""

    key: bytes | None
    position: str
    letter: DeadLetter


class Decided(NamedTuple):
    """What goes out for one poll."""

    records: list[Outgoing]
    audit: list[AuditEntry]
    accepted: int


@cache
def team_of(topic: str) -> str | None:
    """The team whose producers write to a topic, None for the topic of everybody (rule D25)."""
    return topic.removeprefix(f"{ASSET_EVENTS}.") if topic != ASSET_EVENTS else None


def read_record(
    tp: TopicPartition, source: str, record: ConsumerRecord, assets: KnownAssets, stamp: int
) -> Candidate | Refused:
    """The event in a record, or why there is none; `stamp` is the offset up to which definitions are known."""
    value: bytes | None = record.value
    try:
        if value is None and is_stand_in(record):
            raise InvalidEventError(
                "undecodable", "a header name is not UTF-8: the record's value, key and time were not read"
            )
        event = event_fields(value, record.headers)
        data = event["data"]
        name = assets.name_of(data)
    except InvalidEventError as error:
        return _refused(tp, source, record, error)
    id, date, aliases = event["id"], data.get("partition_date"), data.get("aliases")
    position = f"{source}@{record.offset}"
    accepted = AcceptedEvent(
        record.offset,
        stamp,
        record.timestamp,
        event["source"],
        id,
        name,
        data.get("partition_key"),
        None if date is None else to_us(date),
        data.get("extra"),
        team_of(tp.topic),
        tuple(dict.fromkeys(aliases)) if aliases else (),
    )
    return Candidate(
        accepted,
        source,
        position,
        event.get("time"),
        identity_of(event["source"], id),
        position if data.get("asset") is not None else f"{position} {name}",
    )


def identity_of(source: str, id: str) -> str:
    # neither can hold the separator
    return blake2b(f"{source}\0{id}".encode(), digest_size=16).hexdigest()


def decide(
    read: Iterable[Candidate | Refused],
    marks: Mapping[str, str],
    assets: KnownAssets,
    partitions: int,
    skew_limit_ms: int,
) -> Decided:
    """What goes out for records in the order in which they stand in their partitions.

    `marks` gives what was remembered under identities before this read of them: from another record it makes this one
    a duplicate, from the same record it means that the record is read again. An event whose own time is further from
    its record's than `skew_limit_ms` is accepted, and said to be so in the audit (B097).
    """
    accepted: dict[tuple[str, int], list[AcceptedEvent]] = defaultdict(list)
    records: list[Outgoing] = []
    audit: list[AuditEntry] = []
    first: dict[str, str] = dict(marks)
    places: dict[str, int] = {}
    """The partitions of assets that this batch names."""
    for each in read:
        if isinstance(each, Refused):
            records.append(Outgoing(REJECTED, None, each.key, each.letter.to_bytes()))
            audit.append(_refusal(each))
            continue
        event = each.event
        mark = first.setdefault(each.identity, each.mark)
        if mark != each.mark:
            position, _, remembered_asset = mark.partition(" ")
            if position != each.position:
                audit.append(_duplicate(event, each.position, position))
                continue
            if remembered_asset:
                event = event._replace(asset=remembered_asset)
        if event.asset not in assets:
            audit.append(
                _entry(
                    AuditKind.UNKNOWN_ASSET, event, each.position, unknown_asset(event.asset, event.aliases)
                )
            )
        if each.time is not None and abs(skew_ms := to_ms(each.time) - event.at) > skew_limit_ms:
            audit.append(_clock_skew(event, each.position, each.time, skew_ms))
        if (place := places.get(event.asset)) is None:
            place = places[event.asset] = partition_of(event.asset, partitions)
        accepted[each.source, place].append(event)
    batches = [
        Outgoing(ACCEPTED, partition, source.encode(), raw)
        for (source, partition), events in accepted.items()
        for raw in pack(events, lambda some, source=source: _batch(source, some))  # type: ignore[misc]
    ]
    return Decided(batches + records, audit, sum(map(len, accepted.values())))


def _batch(source: str, events: Sequence[AcceptedEvent]) -> bytes:
    return AcceptedBatch.model_construct(v=1, source=source, events=tuple(events)).to_bytes()


def _refused(tp: TopicPartition, source: str, record: ConsumerRecord, error: InvalidEventError) -> Refused:
    value: bytes | None = record.value
    size = len(value or b"")
    kept = value[:_HEAD_BYTES] if value is not None and size > MAX_EVENT_BYTES else value
    headers = _fitting(record.headers)
    key: bytes | None = record.key
    if key is not None and len(key) > _MAX_KEY_BYTES:
        key = key[:_HEAD_BYTES]
    letter = DeadLetter(
        topic=tp.topic,
        partition=tp.partition,
        offset=record.offset,
        at=record.timestamp,
        code=error.code,
        reason=str(error),
        size=size,
        value_base64=base64_text(kept),
        truncated=kept != value or len(headers) < len(record.headers) or key != record.key,
        headers=tuple((name, base64_text(raw)) for name, raw in headers),
    )
    return Refused(key, f"{source}@{record.offset}", letter)


def _fitting(headers: Headers) -> Headers:
    """The first headers that fit into a dead letter; a character of a name takes up to 6 bytes of JSON."""
    room = _MAX_HEADER_BYTES
    for count, (name, raw) in enumerate(headers):
        room -= 16 + 6 * len(name) + len(raw or b"")
        if room < 0:
            return headers[:count]
    return headers


def unreadable_definition(record: ConsumerRecord, error: Exception) -> AuditEntry:
    """That a definition cannot be read, so that its job gets no events; the same from every ingest that finds it so."""
    kind, _, name = (record.key or b"").decode(errors="replace").partition(":")
    entry = unreadable_record(SERVICE, TopicPartition(record.topic, record.partition), record, error)
    return entry.model_copy(update={"job": name}) if kind == "job" else entry


def _refusal(refused: Refused) -> AuditEntry:
    letter = refused.letter
    kind = kind_of_refusal(letter.code)
    return AuditEntry(
        id=audit_id(kind, refused.position),
        kind=kind,
        service=SERVICE,
        at=letter.at,
        message=letter.reason,
        position=refused.position,
        details={"code": letter.code, "size": letter.size},
    )


def _duplicate(event: AcceptedEvent, position: str, first: str) -> AuditEntry:
    message = f"event {event.id!r} of {event.source!r} was received before, at {first}"
    return _entry(AuditKind.DUPLICATE_EVENT, event, position, message, first=first)


def _clock_skew(event: AcceptedEvent, position: str, time: datetime, skew_ms: int) -> AuditEntry:
    side = "after" if skew_ms > 0 else "before"
    message = (
        f"event {event.id!r} says that it was made at {time.isoformat()}, {abs(skew_ms) / 1000:g} s {side} the"
        " broker received it; it counts all the same"
    )
    said, skew_s = time.isoformat(), skew_ms / 1000
    return _entry(AuditKind.CLOCK_SKEW, event, position, message, time=said, skew_s=skew_s)


def _entry(
    kind: AuditKind, event: AcceptedEvent, position: str, message: str, **details: str | float
) -> AuditEntry:
    return AuditEntry(
        id=audit_id(kind, position),
        kind=kind,
        service=SERVICE,
        at=event.at,
        message=message,
        asset=event.asset,
        partition_key=event.partition_key,
        event_id=event.id,
        event_source=event.source,
        position=position,
        details=details or None,
    )
