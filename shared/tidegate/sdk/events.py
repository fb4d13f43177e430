"""Asset events as the SDK writes them: structured CloudEvents, checked with the rules that ingest applies."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from tidegate.contracts.events import EVENT_TYPE, STRUCTURED, parse_event
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import partition_of
from tidegate.core.errors import InvalidEventError
from tidegate.definitions.asset import Asset, AssetAlias, AssetNameRef, AssetUriRef

HEADERS: Final = (("content-type", STRUCTURED.encode()),)
_NAMESPACE: Final = UUID("6f0b6f0e-3c3b-5f0a-9d55-0b7f7a8e2d41")  # fixed for ever: the ids below depend on it


AnyAsset = Asset | AssetNameRef | AssetUriRef | str
"""An asset, its name, or a reference by its name or by its URI."""


def event_id(source: str, asset: AnyAsset, partition_key: str | None, *parts: object) -> str:
    """An id made from content, 36 characters: the same arguments give the same id in every process.

    `parts` are JSON data or what `str` makes of them; an absent key and an empty one differ.
    """
    made_of = [source, asset_name(asset), partition_key, *parts]
    return str(uuid5(_NAMESPACE, json.dumps(made_of, sort_keys=True, separators=(",", ":"), default=str)))


def asset_name(asset: AnyAsset) -> str:
    """What an event calls its asset: the name, or the URI of a reference by URI; raises InvalidEventError."""
    if isinstance(asset, AssetUriRef):
        return asset.uri
    if isinstance(asset, Asset | AssetNameRef):
        return asset.name
    if isinstance(asset, str):
        return asset
    raise InvalidEventError("invalid-field", f"an asset is an Asset or its name, not {asset!r:.100}")


def alias_names(aliases: Iterable[AssetAlias | str]) -> list[str]:
    """The names of aliases, each once, in order; raises InvalidEventError for anything but a list of them."""
    names: list[str] = []
    for alias in aliases if isinstance(aliases, Iterable) and not isinstance(aliases, str) else (None,):
        name = alias.name if isinstance(alias, AssetAlias) else alias
        if not isinstance(name, str):
            raise InvalidEventError(
                "invalid-field", f"aliases must be a list of AssetAlias or names, not {aliases!r:.100}"
            )
        names.append(name)
    return list(dict.fromkeys(names))


def encode_event(
    source: str,
    asset: AnyAsset,
    *,
    id: str,
    aliases: Iterable[AssetAlias | str] = (),
    partition_key: str | None = None,
    partition_date: datetime | str | None = None,
    extra: Mapping[str, Any] | None = None,
    time: datetime | None = None,
) -> bytes:
    """The value of one `asset-events` record; raises InvalidEventError for what ingest would refuse.

    `aliases` stood for the asset in this update. The finished bytes go through ingest's own parser, so both ends agree
    on every rule.
    """
    data: dict[str, Any] = {"asset_uri" if isinstance(asset, AssetUriRef) else "asset": asset_name(asset)}
    if names := alias_names(aliases):
        data["aliases"] = names
    if partition_key is not None:
        data["partition_key"] = partition_key
    if partition_date is not None:
        data["partition_date"] = _iso(partition_date, "partition_date")
    if extra:
        data["extra"] = dict(extra)
    event: dict[str, Any] = {"specversion": "1.0", "id": id, "source": source, "type": EVENT_TYPE}
    if time is not None:
        event["time"] = _iso(time, "time")
    event["datacontenttype"] = "application/json"
    event["data"] = data
    try:
        value = _json(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError("invalid-field", _what_is_not_json(event, error)) from error
    parse_event(value, HEADERS)
    return value


def outgoing_event(topic: str, partitions: int, asset: str, value: bytes) -> Outgoing:
    """The record of an encoded event: keyed by the asset's name, on the partition that the name has."""
    return Outgoing(topic, partition_of(asset, partitions), asset.encode(), value, HEADERS)


def _json(data: object) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _iso(at: datetime | str, field: str) -> str:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidEventError(
                "invalid-field", f"{field} {at} has no offset from UTC: give an aware datetime"
            )
        return at.isoformat()
    if isinstance(at, str):
        return at
    raise InvalidEventError(
        "invalid-field", f"{field} must be an aware datetime or ISO 8601 text, not {at!r:.100}"
    )


def _what_is_not_json(event: Mapping[str, Any], error: Exception) -> str:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    data = event["data"]
    parts = [(name, value) for fields in (event, data) for name, value in fields.items() if value is not data]
    if "extra" in data:
        parts = [*((f"extra.{name}", value) for name, value in data["extra"].items()), *parts]
    for name, value in parts:
        try:
            _json(value)
        except (TypeError, ValueError, RecursionError):
            return f"{name} must be JSON data (text, numbers, true, false, null, lists, objects): {reason}"
    return f"the event must be JSON data: {reason}"
