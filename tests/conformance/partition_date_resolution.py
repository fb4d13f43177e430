"""Answers to the vectors of a run's partition date."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from tests.conformance.harness import Answer, Ask, Vector
from tidegate.contracts.events import EVENT_TYPE, parse_event
from tidegate.core.conditions import Condition
from tidegate.core.dates import ContributedDate, resolve_partition_date
from tidegate.core.instants import from_us
from tidegate.core.mappers import PartitionMapper
from tidegate.core.plain import from_plain
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.core.timetables import resolve_partition_date as resolve_typed_key
from tidegate.definitions import Asset, Job
from tidegate.definitions.routes import named_date
from tidegate.sdk.outlets import OutletEvents, encode_outlets
from tidegate.simulate import Simulation

SOME_DATE = "2026-03-10T00:00:00+00:00"


@dataclass(frozen=True)
class _Raises(PartitionMapper):
    """A mapper whose hooks fail."""

    def to_downstream(self, key: str) -> str:
        return key

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        raise RuntimeError("no date today")

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        raise RuntimeError("nothing is carried today")


def _mapper(data: Mapping[str, Any] | str) -> PartitionMapper:
    mapper = _Raises() if isinstance(data, str) else from_plain(data)
    assert isinstance(mapper, PartitionMapper)
    return mapper


def _mappers(vector: Vector) -> dict[str, PartitionMapper]:
    return {name: _mapper(data) for name, data in vector["subject"]["assets"].items()}


def _at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def resolve(vector: Vector) -> Answer:
    given = vector["input"]
    dates = [ContributedDate(_at(given["carried_date"]), False)]
    for mapper in _mappers(vector).values():
        at, problem = named_date(mapper, given["partition_key"])
        dates.append(ContributedDate(None if at is None else from_us(at), True, is_failed=bool(problem)))
    return {"partition_date": _text(resolve_partition_date(dates).at)}


def _timetable(mappers: Mapping[str, PartitionMapper]) -> PartitionedAssetTimetable:
    assets = {name: Asset(name) for name in mappers}
    every: list[Condition] = list(assets.values())
    condition = reduce(lambda a, b: a & b, every)
    return PartitionedAssetTimetable(
        condition, partition_mapper_config={assets[name]: mapper for name, mapper in mappers.items()}
    )


def manual_trigger_date(vector: Vector) -> Answer:
    return {"instant": _text(resolve_typed_key(_timetable(_mappers(vector)), vector["input"]))}


def reconcile(vector: Vector) -> Answer:
    """Dates that arrive one after the other on a round that waits for something else.

    Each comes through an asset of its own, since a later event of one asset and key replaces the older one.
    """
    given = vector["input"]
    (mapper,) = _mappers(vector).values()
    assets = {f"asset {n}": mapper for n in range(len(given["carried_dates"]))}
    simulation = Simulation([Job("consumer", _timetable({**assets, "waited for": mapper}))])
    for asset, date in zip(assets, given["carried_dates"], strict=True):
        simulation.event(asset, given["partition_key"], partition_date=_at(date))
    pending = simulation.pending()
    return {"carried_date": _text(pending[0].carried_date), "pending_rows": len(pending)}


def emitted_event_date(vector: Vector) -> Answer:
    run = vector["subject"]["producer_run"]
    outlets = OutletEvents("producer", ["made"])
    outlets["made"].add_partitions(vector["input"]["emitted_keys"])
    events = encode_outlets(
        outlets,
        job="producer",
        run_id="run",
        partition_key=run["partition_key"],
        partition_date=_at(run["partition_date"]),
        extra={},
        time=datetime(2026, 3, 10, tzinfo=UTC),
    )
    data = [json.loads(event.value)["data"] for event in events]
    return {
        "events": [
            {
                "partition_key": each.get("partition_key"),
                "partition_date": _text(_at(each.get("partition_date"))),
            }
            for each in data
        ]
    }


def carry_failure(vector: Vector) -> Answer:
    mappers: dict[str, PartitionMapper] = {"a": _Raises(), "b": _mapper({"type": "IdentityMapper"})}
    simulation = Simulation([Job("consumer", _timetable(mappers))])
    simulation.event("a", "k", partition_date=_at(vector["input"]["partition_date"]))
    (pending,) = simulation.pending()
    return {"queued": "a" in pending.arrived, "carried_date": _text(pending.carried_date)}


def event_origin_date(vector: Vector) -> Answer:
    data = {"asset": "a", "partition_key": "k"}
    if vector["input"]["producer_has_date"]:
        data["partition_date"] = SOME_DATE
    attributes = {"specversion": "1.0", "id": "1", "source": "/watcher", "type": EVENT_TYPE, "data": data}
    event = parse_event(json.dumps(attributes).encode()).data
    return {
        "partition_date": _text(event.partition_date),
        "partition_key_possible": event.partition_key is not None,
    }


ANSWERS: dict[str, Ask] = {
    "resolve": resolve,
    "manual_trigger_date": manual_trigger_date,
    "reconcile": reconcile,
    "emitted_event_date": emitted_event_date,
    "carry_failure": carry_failure,
    "event_origin_date": event_origin_date,
}
