"""`run.outlet_events[asset]`: what a successful run says about the assets that it updates (Airflow's names)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, overload

from tidegate.core.keys import validate_key
from tidegate.definitions.aliases import OutletUpdate, resolve_aliases
from tidegate.definitions.asset import Asset, AssetAlias
from tidegate.definitions.metadata import Metadata
from tidegate.sdk.errors import OutletTypeError, UndeclaredOutletError, UnresolvedAliasError
from tidegate.sdk.events import encode_event, event_id


class OutletEvent(NamedTuple):
    """One asset event that a run publishes, encoded."""

    asset: str
    id: str
    partition_key: str | None
    value: bytes


class _Partitioned:
    """An outlet that partition keys may be added to; `what` is how users' code names it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._partitions: dict[str, dict[str, Any]] = {}

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
        what = f"{self._what}.add_partitions"
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


class OutletAccessor(_Partitioned):
    """One outlet of a run. Left alone, it gives one event with the run's own partition key and date.

    The run of a job without partitions has no key, and neither has that event.
    """

    def __init__(self, asset: str) -> None:
        super().__init__(f"outlet_events[{asset!r}]")
        self.asset = asset
        self._extra: dict[str, Any] = {}

    @property
    def extra(self) -> dict[str, Any]:
        """JSON data that every event of this outlet carries; may be assigned or changed in place."""
        return self._extra

    @extra.setter
    def extra(self, extra: Mapping[str, Any]) -> None:
        self._extra = _mapping(extra, f"{self._what}.extra")


class AliasAccessor(_Partitioned):
    """An alias among the outlets of a run. Left alone, it gives no event.

    Partition keys that are added go to every asset that the alias stands for in this run; without any, these get the
    run's own key. Keys on an alias that stands for nothing fail the run, since a key is never dropped in silence (D13).
    """

    def __init__(self, alias: str) -> None:
        super().__init__(f"outlet_events[AssetAlias({alias!r})]")
        self.alias = alias
        self._added: list[tuple[str, Mapping[str, Any]]] = []

    @property
    def added(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Name and extra of every asset that the alias stands for, in order."""
        return tuple(self._added)

    def add(self, asset: Asset, extra: Mapping[str, Any] | None = None) -> None:
        """Say that the alias stands for `asset`, which is updated, with JSON data for its event.

        The same asset with the same extra, through several aliases or named as an outlet too, gives one event that
        names all aliases; another extra gives another event. Raises OutletTypeError for what is no Asset.
        """
        if not isinstance(asset, Asset):
            raise OutletTypeError(f"{self._what}.add takes an Asset, not {asset!r:.100}")
        self._added.append((asset.name, _mapping(extra or {}, f"{self._what}.add(extra=...)")))


class OutletEvents(Mapping[str, OutletAccessor]):
    """The outlets that the job declares: assets, by asset or by name, and aliases, as `outlet_events[AssetAlias("x")]`.

    Touching any other raises UndeclaredOutletError, since an event that nobody declared is a typo. Iteration yields the
    names of the assets; `aliases` has the others.
    """

    def __init__(self, job: str, assets: Iterable[str], aliases: Iterable[str] = ()) -> None:
        self._job = job
        self._assets = {name: OutletAccessor(name) for name in assets}
        self._aliases = {name: AliasAccessor(name) for name in aliases}

    @property
    def aliases(self) -> Mapping[str, AliasAccessor]:
        """The aliases among the outlets, by name."""
        return self._aliases

    @overload
    def __getitem__(self, outlet: AssetAlias) -> AliasAccessor: ...

    @overload
    def __getitem__(self, outlet: Asset | str) -> OutletAccessor: ...

    def __getitem__(self, outlet: Asset | AssetAlias | str) -> OutletAccessor | AliasAccessor:
        found = self._find(outlet)
        if found is None:
            declared = [*map(repr, self._assets), *(f"AssetAlias({name!r})" for name in self._aliases)]
            given = (
                f"AssetAlias({outlet.name!r})" if isinstance(outlet, AssetAlias) else repr(_name_of(outlet))
            )
            raise UndeclaredOutletError(
                f"{given} is no outlet of job {self._job!r} (declared: {', '.join(declared) or 'none'}): add it to the"
                " job's outlets"
            )
        return found

    def _find(self, outlet: object) -> OutletAccessor | AliasAccessor | None:
        if isinstance(outlet, AssetAlias):
            return self._aliases.get(outlet.name)
        name = _name_of(outlet)
        return self._assets.get(name) if isinstance(name, str) else None

    def record(self, metadata: object) -> None:
        """Take what a run's function yields: Metadata, whose extra is joined to the asset's own.

        With an alias, the alias stands for the asset. Raises OutletTypeError for anything but Metadata.
        """
        if not isinstance(metadata, Metadata):
            raise OutletTypeError(
                f"a job's function may yield Metadata only, not {metadata!r:.100}: yield Metadata(asset, extra)"
            )
        if metadata.alias is not None:
            self[metadata.alias].add(metadata.asset, metadata.extra)
        else:
            accessor = self[metadata.asset]
            accessor.extra = {**accessor.extra, **metadata.extra}

    def __contains__(self, outlet: object) -> bool:
        return self._find(outlet) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._assets)

    def __len__(self) -> int:
        return len(self._assets)


def key_written_back(outlets: OutletEvents, partition_key: str | None) -> str | None:
    """The key that a run's own record has in the end: the one that it added, if it started without and added just one.

    Several keys are no key of the run (rule D8).
    """
    accessors = (*outlets.values(), *outlets.aliases.values())
    added = {key for outlet in accessors for key in outlet.partitions}
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
    """The events of a run that succeeded.

    Ids are made from run, asset and key, and not from the attempt, so that a run done twice publishes once (rule T9);
    where several events have one asset and key, their extras tell them apart. The run's date belongs to the run's key
    only; other keys go without. Raises InvalidEventError for an extra that is no JSON or too large, and
    UnresolvedAliasError for partition keys on an alias that stands for nothing (rule D13).
    """
    source = f"/tidegate/jobs/{job}"
    events = resolve_aliases(_updates(outlets, partition_key, extra))
    count = Counter((event.asset, event.partition_key) for event in events)
    encoded = []
    for event in events:
        asset, key = event.asset, event.partition_key
        id = event_id(source, asset, key, run_id, *([event.content] if count[asset, key] > 1 else ()))
        value = encode_event(
            source,
            asset,
            id=id,
            aliases=event.aliases,
            partition_key=key,
            partition_date=partition_date if key == partition_key else None,
            extra=event.extra,
            time=time,
        )
        encoded.append(OutletEvent(asset, id, key, value))
    return encoded


def _updates(
    outlets: OutletEvents, partition_key: str | None, extra: Mapping[str, Any]
) -> Iterator[OutletUpdate]:
    for name, outlet in outlets.items():
        own = {**extra, **_mapping(outlet.extra, f"outlet_events[{name!r}].extra")}
        for key, of_key in _keys(outlet, partition_key):
            yield OutletUpdate(name, None, key, {**own, **of_key})
    for name, alias in outlets.aliases.items():
        if alias.partitions and not alias.added:
            keys = f"{', '.join(map(repr, alias.partitions)):.200}"
            raise UnresolvedAliasError(
                f"alias {name!r} was given the partition keys {keys} but stands for no asset in this run: say which,"
                f" with outlet_events[AssetAlias({name!r})].add(asset)"
            )
        for asset, of_asset in alias.added:
            for key, of_key in _keys(alias, partition_key):
                yield OutletUpdate(asset, name, key, {**extra, **of_asset, **of_key})


def _keys(outlet: _Partitioned, partition_key: str | None) -> Iterable[tuple[str | None, Mapping[str, Any]]]:
    """The keys that an outlet's events have, each with its extra: those added, or else the run's own."""
    return outlet.partitions.items() or ((partition_key, {}),)


def _name_of(outlet: object) -> object:
    return outlet.name if isinstance(outlet, Asset) else outlet


def _mapping(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OutletTypeError(f"{what} must be a dict of JSON data, not {value!r:.100}")
    for name in value:
        if not isinstance(name, str):
            raise OutletTypeError(f"{what}: a name must be text, not {name!r:.100}")
    return dict(value)
