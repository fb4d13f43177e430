"""Answers to the vectors of whole scenarios: one consumer, driven through the simulation."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

from tests.conformance.harness import Answer, Ask, Vector
from tidegate.core.conditions import Condition
from tidegate.core.mappers import IdentityMapper
from tidegate.core.plain import from_plain
from tidegate.core.timetables import AssetTriggeredTimetable, PartitionedAssetTimetable
from tidegate.definitions import Asset, Job
from tidegate.simulate import PendingRound, Run, Simulation

AUDITS: Final = {
    "no-partition-key": "missing partition key",
    "mapping-failed": "failed to map partition_key",
    "partition-fan-out-exceeded": "partition fan-out exceeded",
}
"""What the vectors call the kinds of audit entries that they know."""


def _asset(name: str) -> Asset:
    return Asset(name, f"x-scenario://{name}")


def _job(subject: Mapping[str, Any]) -> Job:
    assets = {name: _asset(name) for name in subject["assets"]}
    every: list[Condition] = list(assets.values())
    condition = reduce(lambda a, b: a | b if subject.get("condition") == "any" else a & b, every)
    if not subject.get("partitioned", True):
        return Job("consumer", AssetTriggeredTimetable(condition))
    config = {}
    for name, mapper in subject["assets"].items():
        if mapper is not None:
            how = subject.get("config_refs", {}).get(name, "asset")
            asset = assets[name]
            named = {"asset": asset, "name": Asset.ref(name=name), "uri": Asset.ref(uri=asset.uri)}[how]
            config[named] = from_plain(mapper)
    default = from_plain(subject["default_mapper"]) if "default_mapper" in subject else IdentityMapper()
    return Job("consumer", PartitionedAssetTimetable(condition, default, config))


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _run(run: Run) -> dict[str, Any]:
    return {
        "partition_key": run.partition_key,
        "partition_date": _text(run.partition_date),
        "events": len(run.events),
    }


def _pending(pending: PendingRound) -> dict[str, Any]:
    received = {
        asset: sorted(str(event.key) for event in events) for asset, events in pending.arrived.items()
    }
    carried = _text(pending.carried_date)
    return {"partition_key": pending.partition_key, "carried_date": carried, "received": received}


def _send(simulation: Simulation, step: Mapping[str, Any]) -> None:
    """An event, or several that differ in their keys."""
    keys = step["partition_keys"] if "partition_keys" in step else [step.get("partition_key")]
    date = step.get("partition_date")
    for key in keys:
        simulation.event(
            _asset(step["asset"]), key, partition_date=None if date is None else datetime.fromisoformat(date)
        )


def scenario(vector: Vector) -> Answer:
    subject = vector["subject"]
    simulation = Simulation([_job(subject)])
    if subject.get("paused"):
        simulation.pause("consumer")
    partitioned = subject.get("partitioned", True)
    after_ticks = []
    steps = vector["input"]["steps"]
    for step in steps:
        (what, given), *_ = step.items()
        if what in ("event", "events"):
            _send(simulation, given)
        elif what == "redefine":
            simulation.define(_job(given))
        elif what == "pause":
            simulation.pause("consumer", given)
        elif what == "tick":
            after_ticks.append(len(simulation.runs) if partitioned else 0)
    if "tick" not in steps[-1]:
        after_ticks.append(len(simulation.runs) if partitioned else 0)
    final: dict[str, Any] = {
        "audit": [AUDITS[entry.kind] for entry in simulation.audit if entry.kind in AUDITS],
        "pending": [_pending(pending) for pending in simulation.pending()],
        "runs": [_run(run) for run in simulation.runs] if partitioned else [],
    }
    if not partitioned:
        final["unpartitioned_queue"] = len({event.asset for run in simulation.runs for event in run.events})
    return {"runs_after_each_tick": after_ticks, "final": final}


ANSWERS: dict[str, Ask] = {"scenario": scenario}
