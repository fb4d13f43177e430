"""What happens in a simulation, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegate.core.audit import AuditKind
from tidegate.core.rounds import Event
from tidegate.core.timetables import DagRunInfo
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
    chain: tuple[str, ...] = ()
    """The jobs whose runs led to it, the first one first; none for an event from outside."""

    @property
    def as_member(self) -> Event:
        return Event(self.key, self.id, self.source)


@dataclass(frozen=True, slots=True)
class Audit:
    """One visible record of something dropped, refused, late, shifted or conflicting."""

    kind: AuditKind
    message: str
    job: str | None = None
    asset: str | None = None
    partition_key: str | None = None
    event_id: str | None = None
    replaced_event_id: str | None = None
    """The older event whose place `event_id` took."""
    event_source: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class WindowCount:
    """How full one asset's part of a round is."""

    asset: str
    """As the condition names it."""
    arrived: int
    expected: int
    needed: int
    """How many members the wait policy asks for."""
    missing: tuple[str, ...]
    """Members that are not in, by name, in window order."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run command."""

    job: str
    partition_key: str | None
    partition_date: datetime | None
    cause: str
    """`assets` or `schedule`."""
    generation: int = 1
    events: tuple[AssetEvent, ...] = ()
    """The events of the round, by asset and member."""
    info: DagRunInfo | None = None
    """What the timetable said of it."""
    windows: tuple[WindowCount, ...] = ()
    """The assets that are in, in the order of the condition."""
    completed_by: AssetEvent | None = None
    id: str = ""
    """`run-1` for the first of a simulation; empty while the run waits for its paused job."""


@dataclass(frozen=True, slots=True)
class PendingRound:
    """A round that waits."""

    job: str
    partition_key: str | None
    arrived: Mapping[str, tuple[AssetEvent, ...]]
    """The events that it has, by asset."""
    windows: tuple[WindowCount, ...]
    """Every asset of the condition, in its order."""
    carried_date: datetime | None

    @property
    def progress(self) -> Mapping[str, tuple[int, int]]:
        """Members that are in, and members of the window, by asset; assets of which nothing is in are left out."""
        return {each.asset: (each.arrived, each.expected) for each in self.windows if each.arrived}


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that came of a simulation, with the simulated time."""

    at: datetime
    what: Run | Audit
