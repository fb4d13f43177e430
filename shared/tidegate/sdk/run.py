"""What a job's function is given: one run, with what triggered it and a place to say what it updated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import pendulum
from pendulum import DateTime

from tidegate.contracts.runs import RunCommand, WindowProgress
from tidegate.definitions.asset import Asset
from tidegate.sdk.outlets import OutletEvents

CONTEXT_NAMES: Final = frozenset(
    {
        *("run", "dag_run", "run_id", "job", "partition_key", "partition_date", "generation", "attempt"),
        *("triggering_asset_events", "windows", "outlet_events"),
    }
)
"""The names that `Run.context` gives."""


@dataclass(frozen=True, slots=True)
class TriggeringAssetEvent:
    """One asset event that a run was started by."""

    asset: str
    id: str
    source: str
    member: int
    """Index of the window member that it stands for, from 0; several events may stand for one."""
    partition_key: str | None
    partition_date: DateTime | None
    received_at: DateTime
    extra: Mapping[str, Any]
    """Empty where the event carried none."""


class TriggeringAssetEvents(Mapping[str, Sequence[TriggeringAssetEvent]]):
    """The triggering events by asset or its name, each in window order; an asset without events gives an empty tuple.

    Iteration yields the names of the assets that have events.
    """

    def __init__(self, events: Sequence[TriggeringAssetEvent]) -> None:
        by_asset: dict[str, list[TriggeringAssetEvent]] = {}
        for event in events:
            by_asset.setdefault(event.asset, []).append(event)
        self._by_asset = {asset: tuple(found) for asset, found in by_asset.items()}

    def __getitem__(self, asset: Asset | str) -> tuple[TriggeringAssetEvent, ...]:
        return self._by_asset.get(asset.name if isinstance(asset, Asset) else asset, ())

    def __repr__(self) -> str:
        counts = (f"{len(events)} of {asset!r}" for asset, events in self._by_asset.items())
        return f"<TriggeringAssetEvents: {', '.join(counts) or 'none'}>"

    def __contains__(self, asset: object) -> bool:
        return (asset.name if isinstance(asset, Asset) else asset) in self._by_asset

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_asset)

    def __len__(self) -> int:
        return len(self._by_asset)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. Everything is fixed but `outlet_events` and `extra`, which the function may fill."""

    run_id: str
    """The same on every attempt and every redelivery: use it to make what the function does repeatable."""
    job: str
    partition_key: str | None
    """None for a job without partitions."""
    partition_date: DateTime | None
    """The UTC instant that the key stands for."""
    generation: int
    """The deliberate runs of this (job, key) are numbered from 1."""
    attempt: int
    cause: str
    completed_by: str | None
    """Id of the event that completed the round; None where none did."""
    triggering_asset_events: TriggeringAssetEvents
    windows: Mapping[str, WindowProgress]
    """By asset name: how many members its window had and how many had arrived."""
    outlet_events: OutletEvents
    """The assets and aliases that it may update."""
    command: RunCommand = field(repr=False)
    """The message itself."""
    extra: dict[str, Any] = field(default_factory=dict)
    """JSON data for every outlet event of this run; what an outlet says itself comes first."""

    @classmethod
    def from_command(cls, command: RunCommand) -> "Run":
        return cls(
            run_id=command.run_id,
            job=command.job,
            partition_key=command.partition_key,
            partition_date=_utc(command.partition_date),
            generation=command.generation,
            attempt=command.attempt,
            cause=command.cause,
            completed_by=command.completed_by,
            triggering_asset_events=TriggeringAssetEvents(
                [
                    TriggeringAssetEvent(
                        asset=event.asset,
                        id=event.id,
                        source=event.source,
                        member=event.member,
                        partition_key=event.partition_key,
                        partition_date=_utc(event.partition_date),
                        received_at=_instant(event.received_at),
                        extra=MappingProxyType(event.extra or {}),
                    )
                    for event in command.triggering_asset_events
                ]
            ),
            windows=MappingProxyType({window.asset: window for window in command.windows}),
            outlet_events=OutletEvents(
                command.job,
                [outlet.name for outlet in command.outlets if outlet.kind == "asset"],
                [outlet.name for outlet in command.outlets if outlet.kind == "alias"],
            ),
            command=command,
        )

    def context(self) -> dict[str, Any]:
        """The run's values by the names that templates and `@asset` functions know; those of Airflow where it has them.

        `dag_run` is the run itself, for code that comes from there.
        """
        return {
            "run": self,
            "dag_run": self,
            "run_id": self.run_id,
            "job": self.job,
            "partition_key": self.partition_key,
            "partition_date": self.partition_date,
            "generation": self.generation,
            "attempt": self.attempt,
            "triggering_asset_events": self.triggering_asset_events,
            "windows": self.windows,
            "outlet_events": self.outlet_events,
        }


def _utc(at: datetime | None) -> DateTime | None:
    return None if at is None else _instant(at)


def _instant(at: datetime) -> DateTime:
    """The same instant as pendulum's type in UTC; eight times as fast as pendulum's own conversion."""
    at = at.astimezone(UTC)
    return DateTime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, pendulum.UTC)
