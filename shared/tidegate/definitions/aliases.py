"""What aliases stood for in a run, and the events that this gives (rule D13)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OutletUpdate:
    """A run's word that it updated an asset, or one partition of it; assets and aliases go by their names."""

    asset: str
    alias: str | None = None
    """The alias that stood for the asset, None where the asset was named itself."""
    partition_key: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ResolvedUpdate:
    """What becomes one event."""

    asset: str
    partition_key: str | None
    extra: Mapping[str, Any]
    aliases: tuple[str, ...]
    """Every alias that it came through, in order."""
    content: str
    """`extra` as a text, the same for the same JSON data."""


def resolve_aliases(updates: Iterable[OutletUpdate]) -> tuple[ResolvedUpdate, ...]:
    """The events that updates give, in order: one for the same asset, key and extra, another for another extra.

    Raises ValueError or RecursionError for an extra that holds itself or is nested without end.
    """
    found: dict[tuple[str, str | None, str], tuple[Mapping[str, Any], dict[str, None]]] = {}
    for update in updates:
        same = (update.asset, update.partition_key, _content(update.extra))
        _, aliases = found.setdefault(same, (update.extra, {}))
        if update.alias is not None:
            aliases[update.alias] = None
    return tuple(
        ResolvedUpdate(asset, key, extra, tuple(aliases), content)
        for (asset, key, content), (extra, aliases) in found.items()
    )


def _content(extra: Mapping[str, Any]) -> str:
    if not extra:
        return "{}"
    # Twice, since names become text on the way: only then can they be put in order.
    return json.dumps(json.loads(json.dumps(dict(extra), default=str)), sort_keys=True)
