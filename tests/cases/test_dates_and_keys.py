"""Cases from public trackers: dates that differ, keys that are none, keys on their way through runs and aliases."""

import json
from collections.abc import Callable
from datetime import datetime
from itertools import permutations
from pathlib import Path

import pytest

from tests.cases.standard import at, d_and, d_day, d_id, job, kinds, runs
from tests.servers.command_line import invoke
from tests.unit.test_ingest_decide import accepted, event, ingest, record
from tests.unit.test_sdk_run import command
from tidegate import (
    Asset,
    AssetAccessControl,
    IdentityMapper,
    InvalidEventError,
    InvalidPartitionKeyError,
    Job,
    PartitionMapper,
    StartOfDayMapper,
)
from tidegate.contracts.events import parse_event
from tidegate.contracts.rejected import DeadLetter
from tidegate.contracts.runs import Outlet
from tidegate.contracts.topics import REJECTED
from tidegate.core.access import refusal
from tidegate.core.conditions import Leaf
from tidegate.core.timetables import resolve_partition_date
from tidegate.sdk import Run
from tidegate.sdk.outlets import encode_outlets
from tidegate.simulate import Simulation


def test_b036_a_malformed_key_of_a_manual_run_is_refused_with_the_form_that_works() -> None:
    schedule = d_day().schedule
    assert schedule is not None
    with pytest.raises(InvalidPartitionKeyError, match=r"'2026-13-45'.*%Y-%m-%d"):
        resolve_partition_date(schedule, "2026-13-45")
    assert resolve_partition_date(schedule, "2026-03-10") == at("2026-03-10T00:00")


BAD_KEYS = ["", "   ", "x" * 251, "a\nb", "a\x00b"]
GOOD_KEYS = ["x" * 250, "€" * 100]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_b039_a_key_that_is_none_becomes_a_dead_letter_and_the_next_event_is_taken(key: str) -> None:
    decided = ingest([record(0, event("1", partition_key=key)), record(1, event("2"))])
    (letter,) = [
        DeadLetter.from_bytes(each.value or b"") for each in decided.records if each.topic == REJECTED
    ]
    assert (letter.offset, letter.code) == (0, "invalid-key")
    (entry,) = decided.audit
    assert (entry.kind, (entry.details or {})["code"]) == ("event-refused", "invalid-key")
    assert [each.id for events in accepted(decided).values() for each in events] == ["2"]


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_b039_length_is_counted_in_characters(key: str) -> None:
    assert len("€".encode()) == 3
    decided = ingest([record(0, event("1", partition_key=key))])
    assert [each.partition_key for events in accepted(decided).values() for each in events] == [key]
    simulation = Simulation([d_id()])
    simulation.event("a", key)
    assert runs(simulation) == [("copy", key)]


@pytest.mark.parametrize("order", list(permutations([("a", "2026-03-10"), ("b", "2026-03-11")])))
def test_b056_two_carried_dates_are_none_in_every_order(order: tuple[tuple[str, str], ...]) -> None:
    simulation = Simulation([d_and()])
    for asset, day in order:
        simulation.event(asset, "k", partition_date=at(f"{day}T00:00"))
    (run,) = simulation.runs
    assert (run.partition_date, kinds(simulation)) == (None, ["partition-date-conflict"])
    assert simulation.audit[0].message == (
        "the run has no partition date: its events give 2026-03-10T00:00:00+00:00, 2026-03-11T00:00:00+00:00"
    )


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_b056_a_carried_date_never_stands_in_for_two_that_were_read(order: tuple[str, ...]) -> None:
    a, b, c = map(Asset, "abc")
    mappers: dict[Leaf, PartitionMapper] = {
        a: StartOfDayMapper(),
        b: StartOfDayMapper(timezone="Asia/Tokyo"),
        c: IdentityMapper(),
    }
    simulation = Simulation([job("mix", a & b & c, config=mappers)])
    for name in order:
        date = at("2026-03-10T00:00") if name == "c" else None
        simulation.event(name, "2026-03-10" if name == "c" else "2026-03-10T09:00:00", partition_date=date)
    (run,) = simulation.runs
    assert (run.partition_key, run.partition_date) == ("2026-03-10", None)
    # midnight of the day in Tokyo, and in UTC
    assert simulation.audit[0].message.endswith("2026-03-09T15:00:00+00:00, 2026-03-10T00:00:00+00:00")
    assert kinds(simulation) == ["partition-date-conflict"]


def published(function: Callable[[Run], object], key: str | None) -> Simulation:
    """What follows from the outlet events of a run with this key."""
    run = Run.from_command(
        command(job="producer", partition_key=key, partition_date=None, outlets=[Outlet(name="a")])
    )
    function(run)
    simulation = Simulation([d_id()])
    time = datetime.fromisoformat("2026-03-10T00:00:00Z")
    for each in encode_outlets(
        run.outlet_events,
        job=run.job,
        run_id=run.run_id,
        partition_key=key,
        partition_date=None,
        extra=run.extra,
        time=time,
    ):
        read = parse_event(each.value)
        simulation.event(read.data.asset, read.data.partition_key, id=read.id, extra=read.data.extra)
    return simulation


def test_b057_an_event_with_extra_alone_keeps_the_run_s_key() -> None:
    def counts_rows(run: Run) -> None:
        run.outlet_events["a"].extra = {"row_count": 3}

    assert runs(published(lambda run: None, "2026-03-10")) == [("copy", "2026-03-10")]
    simulation = published(counts_rows, "2026-03-10")
    assert runs(simulation) == [("copy", "2026-03-10")]
    assert simulation.runs[0].events[0].extra == {"row_count": 3}


def test_b057_added_partitions_take_the_place_of_the_run_s_key() -> None:
    for key in ("2026-03-10", None):
        simulation = published(lambda run: run.outlet_events["a"].add_partitions(["us", "eu"]), key)
        assert runs(simulation) == [("copy", "us"), ("copy", "eu")]


def test_b057_a_run_without_any_key_is_seen_to_reach_no_partitioned_job() -> None:
    simulation = published(lambda run: None, None)
    assert (runs(simulation), kinds(simulation)) == ([], ["no-partition-key"])


def test_b058_a_key_on_an_alias_event_goes_to_the_asset_or_is_refused(tmp_path: Path) -> None:
    concrete = {"asset": "a", "aliases": ["out"], "partition_key": "2026-03-10", "id": "1"}
    alias_only = {"aliases": ["out"], "partition_key": "2026-03-10", "id": "2"}
    definitions = tmp_path / "definitions.py"
    definitions.write_text(
        "from tidegate import *\n"
        "copy = Job('copy', PartitionedAssetTimetable(Asset('a')))\n"
        "by_alias = Job('by_alias', PartitionedAssetTimetable(AssetAlias('out')))\n"
    )
    lines = "\n".join(map(json.dumps, (concrete, alias_only)))
    result = invoke(None, "simulate", str(definitions), "-", events=lines)
    first, second, refused = map(json.loads, result.done.splitlines())
    assert [(each["run"]["job"], each["run"]["partition_key"]) for each in (first, second)] == [
        ("copy", "2026-03-10"),
        ("by_alias", "2026-03-10"),
    ]
    assert (refused["audit"]["kind"], refused["audit"]["event_id"]) == ("alias-without-asset", "2")
    with pytest.raises(InvalidEventError) as caught:
        parse_event(event("2", asset=None, aliases=["out"]))
    assert caught.value.code == "alias-without-asset"


ALL = {"cx", "cy", "c0"}


@pytest.mark.parametrize(
    ("control", "of_team_x", "of_no_team"),
    [
        (None, {"cx", "c0"}, ALL),
        (AssetAccessControl(), {"cx", "c0"}, ALL),
        (AssetAccessControl(["team_x"]), ALL, ALL),
        (AssetAccessControl(["team_x"], None), ALL, ALL),  # None does not filter
        (AssetAccessControl(["team_x"], []), {"cx", "c0"}, {"c0"}),  # [] is nobody but the own team
        (AssetAccessControl(["team_x"], ["team_y"]), ALL, {"cy", "c0"}),
        (AssetAccessControl(["team_x"], allow_global=True), ALL, ALL),
        (AssetAccessControl(["team_x"], allow_global=False), ALL, {"c0"}),
        (AssetAccessControl(allow_global=False), {"cx", "c0"}, {"c0"}),
    ],
)
def test_b069_the_filter_between_teams(
    control: AssetAccessControl | None, of_team_x: set[str], of_no_team: set[str]
) -> None:
    asset = Asset("a", access_control=control)
    teams = {"cx": "team_x", "cy": "team_y", "c0": None}
    jobs = [job(name, asset, team=team) for name, team in teams.items()]
    for producer, reached in (("team_x", of_team_x), (None, of_no_team)):
        simulation = Simulation(jobs, multi_team=True)
        simulation.event("a", "k", team=producer)
        assert {run.job for run in simulation.runs} == reached
        assert {entry.job for entry in simulation.audit if entry.kind == "cross-team"} == ALL - reached
        alone = Simulation(jobs)
        alone.event("a", "k", team=producer)
        assert {run.job for run in alone.runs} == ALL
    from_api = {
        name
        for name, team in teams.items()
        if refusal(consumer_team=team, consumer=control, producer_teams=(), producer=control, from_api=True)
        is None
    }
    assert from_api == {"c0"}


def test_b069_jobs_are_what_is_filtered_and_not_the_asset() -> None:
    asset = Asset("a", access_control=AssetAccessControl(["team_x"], ["team_y"]))
    simulation = Simulation([Job("plain", [asset], team="team_z")], multi_team=True)
    simulation.event("a", team="team_x")
    assert (runs(simulation), kinds(simulation)) == ([], ["cross-team"])
