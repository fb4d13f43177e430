"""Short chaos runs with fixed seeds, and one that is broken on purpose: the driver must notice."""

from pathlib import Path

import pytest

from tests.chaos.driver import Report, run
from tests.chaos.plan import plan
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
        (101, 8, ["kill", "crash", "failover", "poison"]),
        (102, 5, ["kill", "crash", "zombie", "redis", "flush", "clock", "kafka"]),
    ],
)
def test_nothing_is_lost_or_doubled_under_faults(
    tmp_path: Path, seed: int, kills: int, faults: list[str]
) -> None:
    report = run(plan(seed, 8_000, kills, faults), tmp_path)
    print(_said(report))
    assert report.is_right, _said(report)
    assert report.kills.total() >= kills - report.idle_kills
    assert report.rollbacks > 0 or "failover" not in faults, "no failover lost a write: nothing was shown"


def test_a_product_that_loses_run_requests_is_caught(tmp_path: Path) -> None:
    report = run(plan(103, 3_000, 0, ["flush"]), tmp_path, sabotage="lose")
    assert report.verdict.lost > 0, _said(report)
