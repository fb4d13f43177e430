"""Measurements stay runnable. What they measure is for bench/RESULTS.md: here only counts and shapes are looked at."""

import json
from pathlib import Path

import pytest

from bench import compare, growth, pipeline, profile, relay, start
from bench.common.results import Report
from bench.common.road import STAGES
from bench.common.servers import Servers
from bench.common.workloads import days, fan_out
from tests.servers.backends import Backend
from tests.servers.kafka import Kafka
from tests.servers.redis import Redis

pytestmark = [
    pytest.mark.parametrize("backend", ["real"], indirect=True),
    pytest.mark.timeout(240),
]

LOAD = growth.Load(events=48, warm_up=0, rate=200, seconds=0.25, warm_s=0)


@pytest.fixture
def servers(backend: Backend, tmp_path: Path) -> Servers:
    kafka, redis = backend.kafka_server, backend.redis_server
    if not isinstance(kafka, Kafka) or not isinstance(redis, Redis):
        pytest.skip("measurements look at processes, and these servers are somebody else's")
    return Servers(kafka, redis, tmp_path)


def shape(report: Report) -> dict[str, int]:
    """The number of rows by table, of a run in which exactly the commands came that were due."""
    assert report.problems == []
    return {table.title: len(table.rows) for table in report.tables}


def test_relay(servers: Servers) -> None:
    # Single records are copied in the tests below.
    report = relay.run(servers, days(1), events=240, warm_up=0, repeats=1, modes=["packed"])
    assert shape(report) == {"Events a second": 1, "Processor seconds for 1,000 events (medians)": 1}
    assert report.tables[0].rows[0]["median"] > 0


def test_pipeline(servers: Servers) -> None:
    report = pipeline.run(
        servers,
        [fan_out()],
        events=30,
        warm_up=5,
        repeats=1,
        rates=(20.0, 1e9),
        seconds=0.5,
        warm_s=0.25,
    )
    assert shape(report) == {
        "Full speed (medians)": 1,
        "Processor seconds for 1,000 events at full speed (medians)": 1,
        "Peak memory in MiB": 1,
        "Latency at fixed rates": 2,
        "Where the milliseconds go, p50 / p99": 1,
    }
    (speed,), (used,), (memory,), (slow, beyond), (stages,) = (table.rows for table in report.tables)
    assert speed["events"] == 30
    assert speed["times the relay"] > 0
    everybody = {"ingest", "mapper", "rollup", "dispatcher", "kafka", "redis"}
    assert everybody <= used.keys() & memory.keys()
    assert all(memory[name] > 1 for name in everybody)
    assert slow["commands"] == 70
    assert 0 < slow["p50 ms"] <= slow["p99 ms"] <= slow["p99.9 ms"] <= slow["worst ms"]
    assert beyond["commands"] is None
    assert set(STAGES) <= stages.keys()
    assert "nan" not in str(stages)


def test_compare(servers: Servers) -> None:
    report = compare.run(servers, events=240, warm_up=24, repeats=1, rate=100, seconds=0.25, warm_s=0)
    assert shape(report) == {"Turns": 1, "Latency at 100 events/s": 1}
    summary = json.loads(report.lines()[-1])
    assert list(summary) == ["relay_events_per_s", "pipeline_events_per_s", "share", "p50_ms", "p99_ms"]
    assert all(value > 0 for value in summary.values())


def test_growth(servers: Servers) -> None:
    report = growth.run(servers, LOAD, pending=[230], jobs=[3], gathered=1)
    found = shape(report)
    at_the_end = found.pop(f"Redis at the end, {230 + 1_439} members pending")
    assert at_the_end > 3
    assert found == {
        "By pending members": 1,
        "Redis, bytes a pending member": 2,
        "By jobs": 1,
        "Seconds until a service is ready": 1,
    }
    assert [row["pending members"] for row in report.tables[1].rows] == [230, 1_439]
    assert all(row["rounds"] > 36 for row in report.tables[1].rows), "less than the ids of the events"


def test_profile(servers: Servers, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    report = profile.run(servers, "mapper", days(1), events=48, top=10, stats=kept)
    assert shape(report) == {"Functions of mapper by their own processor time": 10}
    assert kept.stat().st_size > 0


def test_start(servers: Servers) -> None:
    report = start.run(turns=1, warm_up=0)
    assert shape(report) == {"From the command to its line": 2}
    assert all(row["seconds"] > 0 and row["processor seconds"] > 0 for row in report.tables[0].rows)
