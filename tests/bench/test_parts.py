"""What measurements count with, without servers: a wrong count or percentile would make every figure worthless."""

import cProfile
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.common.counting import differences
from bench.common.latency import matched, percentile
from bench.common.memory import kind_of
from bench.common.processes import cpu_between, held, usage
from bench.common.receiving import Arrival
from bench.common.results import Report, Table
from bench.common.workloads import WORKLOADS, Command, Workload, days, events_of, fan_in
from bench.hop import PACK, Copier, Hop
from bench.profile import functions
from tidegate.contracts.redis_keys import due_key, round_key, runs_key
from tidegate.contracts.topics import RUN_COMMANDS_PREFIX
from tidegate.sdk.events import encode_event
from tidegate.simulate import Simulation

ROOT = Path(__file__).parents[2]
SMALL = [
    pytest.param(WORKLOADS[letter]() if letter != "b100" else days(3), id=letter) for letter in WORKLOADS
]


@pytest.mark.parametrize("workload", SMALL)
def test_what_a_workload_says_is_due_is_what_its_events_give(workload: Workload) -> None:
    steps = [workload.step(number) for number in range(2)]
    simulation = Simulation(workload.jobs)
    for step in steps:
        before = len(simulation.runs)
        for event in step.events[:-1]:
            simulation.event(event.asset, event.key)
        assert len(simulation.runs) == before, "a command came before the last event of its step"
        simulation.event(step.events[-1].asset, step.events[-1].key)
        came = [
            Command(RUN_COMMANDS_PREFIX + run.job, run.partition_key or "")
            for run in simulation.runs[before:]
        ]
        assert sorted(came) == sorted(step.due)
    assert workload.keep * len(simulation.runs) == workload.spread * len(list(events_of(steps)))


@pytest.mark.parametrize("workload", SMALL)
def test_events_are_written_as_the_sdk_writes_them(workload: Workload) -> None:
    event = workload.step(0).events[0]
    raw = event.to_bytes("2026-03-10T09:00:00+00:00")
    written = json.loads(raw)
    assert len(written["id"]) == 36
    assert raw == encode_event(
        "/bench",
        event.asset,
        id=written["id"],
        partition_key=event.key,
        time=datetime(2026, 3, 10, 9, tzinfo=UTC),
    )


def test_percentiles_are_values_that_were_measured() -> None:
    hundred = [float(number) for number in range(100, 0, -1)]
    assert [percentile(hundred, each) for each in (50, 99, 99.9, 100)] == [50, 99, 100, 100]
    assert percentile([7.0], 50) == 7
    assert str(percentile([], 50)) == "nan"


def test_a_command_of_a_key_that_recurs_is_held_against_its_own_turn() -> None:
    due = [("x", 1.0), ("y", 2.0), ("x", 3.0), ("z", 4.0)]
    came = ["x1", "x2", "?", "y1"]
    assert matched(due, came, lambda each: each[0]) == [(1.0, "x1"), (3.0, "x2"), (2.0, "y1")]


def arrival(topic: str, key: str, run_id: str) -> Arrival:
    return Arrival(0.0, topic, key, run_id)


def test_exactly_the_commands_due_are_right_in_any_order() -> None:
    due = [Command("t", "a"), Command("t", "a"), Command("u", "a")]
    came = [arrival("u", "a", "1"), arrival("t", "a", "2"), arrival("t", "a", "3")]
    assert differences(due, came) == []


def test_a_lost_a_surplus_and_a_doubled_command_are_told_apart() -> None:
    due = [Command("t", "a"), Command("t", "b")]
    lost, surplus, doubled = differences(
        due, [arrival("t", "a", "1"), arrival("t", "a", "1"), arrival("u", "b", "2")]
    )
    assert lost.startswith("1 of 2 commands are missing")
    assert "key='b'" in lost
    assert surplus.startswith("2 commands came that were not due")
    assert doubled == "1 runs were commanded more than once: 1"


def test_the_relay_brings_as_many_commands_about_as_the_workload_has() -> None:
    for workload in (days(3), WORKLOADS["d"](), WORKLOADS["f"](), fan_in()):
        for is_packed in (False, True):
            assert relayed(workload, steps=2, is_packed=is_packed) == 2 * workload.commands_per_step


def relayed(workload: Workload, steps: int, is_packed: bool) -> int:
    """How many commands the hops make of so many steps, in batches that cut across steps."""
    hops = [
        Copier(Hop("", "", "", "", "", 10, 10, packed_in, packed_out, spread, keep))
        for packed_in, packed_out, spread, keep in (
            (False, is_packed, 1, 1),
            (is_packed, is_packed, workload.spread, 1),
            (is_packed, False, 1, workload.keep),
            (False, False, 1, 1),
        )
    ]
    values = [b"x" * 10] * (steps * workload.events_per_step)
    for hop in hops:
        given = [SimpleNamespace(value=value) for value in values]
        values = [copy for start in range(0, len(given), 7) for copy in hop.copies(given[start : start + 7])]
        assert all(len(value) <= 10 * PACK for value in values)
    return len(values)


def test_processor_time_and_the_end_of_a_freeze_are_seen() -> None:
    spin = "import sys\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            pids = {"spin": process.pid}
            with held(process.pid):
                before = usage(pids)
                ours = time.process_time()
                while time.process_time() < ours + 0.1:
                    pass
                assert cpu_between(before, usage(pids))["spin"] <= 0.02
            deadline = time.monotonic() + 30
            while cpu_between(before, usage(pids))["spin"] < 0.05:
                assert time.monotonic() < deadline
            assert 1 < usage(pids)["spin"].peak_mib < 1_000
        finally:
            process.kill()


def test_keys_of_redis_are_told_apart_by_kind() -> None:
    keys = {
        round_key("ns", 3, "job/1/a}b:c"): "round",
        due_key("ns", 12): "due",
        runs_key("ns", 0): "runs",
        "ns:seen:/bench|1": "events seen",
        "ns:installation": "installation",
    }
    assert {key: kind_of(key, "ns") for key in keys} == keys


def test_a_profile_is_listed_by_own_time(tmp_path: Path) -> None:
    def dear() -> int:
        return sum(number * number for number in range(200_000))

    profile = cProfile.Profile(time.process_time)
    profile.runcall(dear)
    profile.dump_stats(tmp_path / "p")
    first, *_ = functions(tmp_path / "p", 5)
    assert "<genexpr>" in first["function"]
    assert first["function"].startswith(Path(__file__).name) or "/test_parts.py:" in first["function"]
    assert first["calls"] == 200_001
    assert 20 < first["own %"] <= 100


def test_a_report_is_a_table_for_people_and_json_for_programs() -> None:
    report = Report("some", "About it.", {"events": 3}, {"cores": 2})
    report.tables = [
        Table("Speeds", [{"mode": "single", "events/s": 10}, {"mode": "packed", "events/s": None}])
    ]
    report.summary = {"share": 1.5}
    lines = report.lines()
    assert lines[-1] == '{"share": 1.5}'
    assert "| single | 10       |" in lines
    assert "| packed |          |" in lines
    assert json.loads(report.to_json())["tables"]["Speeds"][1] == {"mode": "packed", "events/s": None}


def test_the_core_can_be_measured(tmp_path: Path) -> None:
    file = tmp_path / "core.json"
    command = [sys.executable, "-m", "bench", "core", "--keys", "150", "--json", str(file)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True)
    measured = json.loads(file.read_text())["tables"]["Microseconds a key"]
    assert len(measured) == 9
    assert all(each["median_us"] >= 0 for each in measured)
