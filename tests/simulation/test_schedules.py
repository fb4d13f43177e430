"""Thousands of schedules by new seeds, all of which must end right; and broken rules, each of which must be noticed.

TIDEGATE_SIMULATION_SEED repeats one schedule, TIDEGATE_SIMULATION_SECONDS says how long to look.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.redis import redis_available
from tests.simulation.broken import SWITCHES

ROOT = Path(__file__).parents[2]
WORKERS = 2
SPACE = 1_000_000
"""Seeds that each worker has to itself."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(redis_available() is not None, reason=redis_available() or ""),
]


def start(*arguments: str) -> "subprocess.Popen[str]":
    """The simulation in a process of its own, which sets how hashing works: the order of a set must not change."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_every_schedule_ends_with_every_event_counted_and_every_round_commanded_once() -> None:
    given = os.environ.get("TIDEGATE_SIMULATION_SEED")
    seconds = os.environ.get("TIDEGATE_SIMULATION_SECONDS", "20")
    if given is not None:
        running = [start("--seeds", "1", "--from", given)]
    else:
        first = secrets.randbelow(10**6) * SPACE * WORKERS
        firsts = [str(first + n * SPACE) for n in range(WORKERS)]
        running = [start("--seeds", str(SPACE), "--for", seconds, "--from", each) for each in firsts]
    said = [process.communicate()[0] for process in running]
    print(*said, sep="\n")
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(said)[-4_000:]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    """What became of every broken rule."""
    said, _ = start("--switches").communicate()
    print(said)
    return dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)


@pytest.mark.parametrize("rule", SWITCHES)
def test_a_schedule_goes_wrong_without_the_rule(rule: str, verdicts: dict[str, str]) -> None:
    assert " caught: " in verdicts.get(rule, ""), verdicts
