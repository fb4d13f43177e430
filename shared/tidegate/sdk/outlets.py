"""`run.outlet_events[asset]`: what a successful run says about the assets that it updates (Airflow's names)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tidegate.core.errors import InvalidEventError
from tidegate.core.keys import validate_key
from tidegate.definitions.asset import Asset
from tidegate.definitions.metadata import Metadata
from tidegate.sdk.errors import OutletTypeError, UndeclaredOutletError
from tidegate.sdk.events import asset_name, encode_event, event_id


class OutletEvent(NamedTuple):
    """One asset event that a run publishes, encoded."""

    asset: str
    id: str
    partition_key: str | None
    value: bytes


class OutletAccessor:
    """One outlet of a run. Left alone, it gives one event with the run's own partition key and date."""

    def __init__(self, asset: str) -> None:
        self.asset = asset
        self._extra: dict[str, Any] = {}
        self._partitions: dict[str, dict[str, Any]] = {}

    @property
    def extra(self) -> dict[str, Any]:
        """JSON data that every event of this outlet carries; may be assigned or changed in place."""
        return self._extra

    @extra.setter
    def extra(self, extra: Mapping[str, Any]) -> None:
        self._extra = _mapping(extra, f"outlet_events[{self.asset!r}].extra")

    @property
    def partitions(self) -> Mapping[str, Mapping[str, Any]]:
        """The keys added so far, in order, with the extra of each."""
        return self._partitions

    def add_partitions(self, keys: str | Iterable[str], extra: Mapping[str, Any] | None = None) -> None:
        """Publish one event per key instead of one with the run's key; repeated keys give one event.

        `extra` is joined to the outlet's own. Nothing is added unless every key is valid; an empty list adds nothing.
        Raises OutletTypeError for None and other things that are no text, InvalidPartitionKeyError for an empty key,
        a key over 250 characters, or one with control characters.
        """
        what = f"outlet_events[{self.asset!r}].add_partitions"
        if not isinstance(keys, str | Iterable) or isinstance(keys, bytes | Mapping):
            raise OutletTypeError(f"{what} takes a partition key or a list of them, not {keys!r:.100}")
        checked: list[str] = []
        for key in (keys,) if isinstance(keys, str) else keys:
            if not isinstance(key, str):
                raise OutletTypeError(f"{what}: a partition key must be text, not {key!r:.100}")
            checked.append(validate_key(key))
        own = {} if extra is None else _mapping(extra, f"{what}(extra=...)")
        for key in checked:
            self._partitions[key] = {**self._partitions.get(key, {}), **own}


class OutletEvents(Mapping[str, OutletAccessor]):
    """The outlets that the job declares, by asset or by its name.

    Touching any other raises UndeclaredOutletError, since an event that nobody declared is a typo.
    """

    def __init__(self, job: str, declared: Iterable[str]) -> None:
        self._job = job
        self._accessors = {name: OutletAccessor(name) for name in declared}

    def __getitem__(self, asset: Asset | str) -> OutletAccessor:
        try:
            return self._accessors[asset_name(asset)]
        except (KeyError, InvalidEventError) as error:
            declared = ", ".join(map(repr, self._accessors)) or "none"
            name = asset.name if isinstance(asset, Asset) else asset
            raise UndeclaredOutletError(
                f"{name!r} is no outlet of job {self._job!r} (declared: {declared}): add it to the job's outlets"
            ) from error

    def record(self, metadata: Metadata) -> None:
        """Take what a run's function yields: `metadata.extra` is joined to the asset's own."""
        accessor = self[metadata.asset]
        accessor.extra = {**accessor.extra, **metadata.extra}

    def __contains__(self, asset: object) -> bool:
        return (asset.name if isinstance(asset, Asset) else asset) in self._accessors

    def __iter__(self) -> Iterator[str]:
        return iter(self._accessors)

    def __len__(self) -> int:
        return len(self._accessors)


def key_written_back(outlets: OutletEvents, partition_key: str | None) -> str | None:
    """The key that a run's own record has in the end: the one that it added, if it started without and added just one.

    Several keys are no key of the run (rule D8).
    """
    added = {key for outlet in outlets.values() for key in outlet.partitions}
    return added.pop() if partition_key is None and len(added) == 1 else partition_key


def encode_outlets(
    outlets: OutletEvents,
    *,
    job: str,
    run_id: str,
    partition_key: str | None,
    partition_date: datetime | None,
    extra: Mapping[str, Any],
    time: datetime,
) -> list[OutletEvent]:
    """The events of a run that succeeded; raises InvalidEventError for an extra that is no JSON or too large.

    Ids are made from run, asset and key, and not from the attempt, so that a run done twice publishes once
    (rule T9). The run's date belongs to the run's key only; other keys go without.
    """
    source = f"/tidegate/jobs/{job}"
    events = []
    for name, outlet in outlets.items():
        added: list[tuple[str | None, Mapping[str, Any]]] = [*outlet.partitions.items()] or [
            (partition_key, {})
        ]
        for key, own in added:
            id = event_id(source, name, key, run_id)
            value = encode_event(
                source,
                name,
                id=id,
                partition_key=key,
                partition_date=partition_date if key == partition_key else None,
                extra={**extra, **_mapping(outlet.extra, f"outlet_events[{name!r}].extra"), **own},
                time=time,
            )
            events.append(OutletEvent(name, id, key, value))
    return events


def _mapping(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OutletTypeError(f"{what} must be a dict of JSON data, not {value!r:.100}")
    for name in value:
        if not isinstance(name, str):
            raise OutletTypeError(f"{what}: a name must be text, not {name!r:.100}")
    return dict(value)
