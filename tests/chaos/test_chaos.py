"""Short chaos runs with fixed seeds, and one that is broken on purpose: the driver must notice."""

from pathlib import Path

import pytest

from tests.chaos.driver import Report, Stage, run
from tests.chaos.plan import plan
from tests.chaos.segments import VICTIMS, segments_plan, segments_scenario
from tests.servers.backends import unavailable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(unavailable("real") is not None, reason=str(unavailable("real"))),
]


def _said(report: Report) -> str:
    return "\n".join(report.lines())


@pytest.mark.parametrize(
    ("seed", "kills", "faults"),
    [
        (101, 5, ["kill", "crash", "failover", "poison", "action"]),
        (102, 3, ["kill", "crash", "zombie", "redis", "flush", "clock", "kafka", "change"]),
    ],
)
def test_nothing_is_lost_or_doubled_under_faults(
    servers: Stage, tmp_path: Path, seed: int, kills: int, faults: list[str]
) -> None:
    report = run(plan(seed, 5_000, kills, faults), servers, tmp_path)
    print(_said(report))
    assert report.is_right, _said(report)
    assert report.kills.total() + report.idle_kills == kills
    assert report.kills.total() > 0
    assert report.rollbacks > 0 or "failover" not in faults, "no failover lost a write: nothing was shown"


def test_a_product_that_loses_run_requests_is_caught(servers: Stage, tmp_path: Path) -> None:
    report = run(plan(103, 2_000, 0, ["flush"]), servers, tmp_path, replicas=1, sabotage="lose")
    assert report.verdict.lost > 0, _said(report)


def test_b109_every_round_of_many_segments_runs_once_with_all_of_them(servers: Stage, tmp_path: Path) -> None:
    """A hundredth of the case; the whole is `--plan segments` of `python -m tests.chaos`."""
    planned, scenario = segments_plan(109, 24, 125, 3), segments_scenario(24, 125)
    report = run(planned, servers, tmp_path, victims=VICTIMS, scenario=scenario)
    assert report.is_right, _said(report)
    assert report.verdict.commands == 24
    assert report.kills.total() == 3
