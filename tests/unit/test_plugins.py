"""Types of users' own, and definitions that name what nobody brings."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tidegate import (
    Asset,
    DefinitionError,
    DefinitionTypeError,
    Job,
    PartitionedAssetTimetable,
    PartitionMapper,
    TidegatePlugin,
    Timetable,
    UnknownTypeError,
    load_definitions,
)
from tidegate.core.conditions import Condition
from tidegate.core.plain import from_plain, plain
from tidegate.core.timetables import DagRunInfo, DataInterval
from tidegate.definitions import load_plugins, register_plugin


@dataclass(frozen=True)
class StripNamespace(PartitionMapper):
    """`ns:key` -> `key`."""

    separator: str = ":"

    def to_downstream(self, key: str) -> str:
        return key.rpartition(self.separator)[2]


class Workday:
    """A timetable by its shape alone."""

    description = "workdays"
    periodic = True
    can_be_scheduled = True
    run_ordering: Sequence[str] = ("run_after",)
    active_runs_limit: int | None = None
    asset_condition: Condition | None = None
    partitioned = False
    partitioned_at_runtime = False

    def __init__(self, hour: int = 0) -> None:
        self.hour = hour

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> DagRunInfo | None:
        return None

    def infer_manual_data_interval(self, *, run_after: datetime) -> DataInterval:
        return DataInterval.exact(run_after)

    def validate(self) -> None: ...

    def serialize(self) -> dict[str, Any]:
        return {"hour": self.hour}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "Workday":
        return cls(**data)


class MyPlugin(TidegatePlugin):
    name = "mine"
    partition_mappers = (StripNamespace,)
    timetables = (Workday,)


def test_types_of_a_plugin_go_through_plain_data() -> None:
    register_plugin(MyPlugin)
    job = Job("job", PartitionedAssetTimetable(Asset("a"), StripNamespace("/")))
    assert from_plain(json.loads(json.dumps(plain(job)))) == job
    timed = Job("timed", Workday(7))
    assert isinstance(timed.schedule, Timetable)
    again = from_plain(json.loads(json.dumps(plain(timed))))
    assert again.schedule.hour == 7


def test_classes_that_do_not_belong_are_refused() -> None:
    class NotOne(TidegatePlugin):
        partition_mappers = (Workday,)

    class NoTimetable(TidegatePlugin):
        timetables = (StripNamespace,)

    with pytest.raises(DefinitionTypeError, match="must derive from PartitionMapper"):
        register_plugin(NotOne)
    with pytest.raises(DefinitionTypeError, match="is no timetable, as it lacks"):
        register_plugin(NoTimetable)
    with pytest.raises(DefinitionTypeError):
        register_plugin(StripNamespace)  # type: ignore[arg-type]


def test_two_types_of_one_name_are_refused() -> None:
    register_plugin(MyPlugin)
    other = type("Workday", (Workday,), {"__module__": "other"})
    with pytest.raises(DefinitionError, match="are both called 'Workday'"):
        register_plugin(type("Other", (TidegatePlugin,), {"timetables": (other,)}))


def test_entry_points_bring_types_and_one_that_fails_harms_no_other() -> None:
    here = __name__
    found = [
        EntryPoint("strip", f"{here}:StripNamespace", "tidegate.mappers"),
        EntryPoint("broken", "no.such.module:Thing", "tidegate.windows"),
        EntryPoint("wrong", f"{here}:StripNamespace", "tidegate.wait_policies"),
        EntryPoint("all", f"{here}:MyPlugin", "tidegate.plugins"),
    ]
    failures = load_plugins(found)
    assert [failure.source.partition(" ")[0] for failure in failures] == [
        "tidegate.windows:broken",
        "tidegate.wait_policies:wrong",
    ]
    assert "ModuleNotFoundError" in failures[0].reason


def test_an_unknown_type_refuses_only_the_job_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    good = plain(Job("good", PartitionedAssetTimetable(Asset("a"))))
    bad = plain(Job("bad", PartitionedAssetTimetable(Asset("a"))))
    bad["schedule"]["default_partition_mapper"] = {"type": "TheirMapper"}
    path.write_text(json.dumps([good, bad]))
    with pytest.raises(UnknownTypeError, match="'TheirMapper' is not known: install the plugin"):
        load_definitions(path)
    found = load_definitions(path, refuse_singly=True)
    assert [job.id for job in found.jobs] == ["good"]
    assert [(refused.id, "TheirMapper" in refused.reason) for refused in found.refused] == [("bad", True)]
