"""What happens in a simulation, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegate.core.audit import AuditKind
from tidegate.core.rounds import Event
from tidegate.definitions.asset import Asset, AssetAlias


@dataclass(frozen=True, slots=True)
class AssetEvent:
    """One accepted event of an asset."""

    asset: Asset
    key: str | None
    id: str
    source: str
    at: int
    """When it came, milliseconds since 1970."""
    date: datetime | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    team: str | None = None
    aliases: tuple[AssetAlias, ...] = ()
    """The aliases that it came through."""

    @property
    def as_member(self) -> Event:
        return Event(self.key, self.id, self.source)


@dataclass(frozen=True, slots=True)
class Audit:
    """One visible record of something dropped, refused, late or conflicting."""

    kind: AuditKind
    message: str
    job: str | None = None
    asset: str | None = None
    partition_key: str | None = None
    event_id: str | None = None
    replaced_event_id: str | None = None
    """The older event whose place `event_id` took."""
