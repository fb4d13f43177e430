"""What aliases stood for in a run (rule D13)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.definitions.asset import Asset, AssetAlias


@dataclass(frozen=True, slots=True)
class AliasedUpdate:
    """`outlet_events[alias].add(asset, extra)`: an alias stood for an asset."""

    alias: AssetAlias
    asset: Asset
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ResolvedUpdate:
    """One event of an asset that came about through aliases."""

    asset: Asset
    extra: Mapping[str, Any]
    aliases: tuple[AssetAlias, ...]
    """Every alias that it came through, in order."""


def resolve_aliases(updates: Iterable[AliasedUpdate]) -> tuple[ResolvedUpdate, ...]:
    """The events that aliases give, in order: one for the same asset with the same extra, another for another extra."""
    through: dict[tuple[Asset, str], list[AssetAlias]] = {}
    extras: dict[tuple[Asset, str], Mapping[str, Any]] = {}
    for update in updates:
        same = (update.asset, json.dumps(update.extra, sort_keys=True, default=str))
        aliases = through.setdefault(same, [])
        extras.setdefault(same, update.extra)
        if update.alias not in aliases:
            aliases.append(update.alias)
    return tuple(
        ResolvedUpdate(asset, extras[asset, text], tuple(found)) for (asset, text), found in through.items()
    )


def unresolved(declared: Iterable[AssetAlias], updates: Iterable[AliasedUpdate]) -> tuple[AssetAlias, ...]:
    """Declared aliases that stood for nothing; what was published for them is refused with an audit entry (D13)."""
    used = {update.alias for update in updates}
    return tuple(alias for alias in dict.fromkeys(declared) if alias not in used)
