"""Hostile input with a new seed each time: a few thousand events through the service, more through its decisions, and
definitions through `apply`. `python -m tests.fuzz` takes the seed that is printed, and as many as one likes.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.deciding import decided
from tests.fuzz.events import events
from tests.servers.backends import unavailable

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

needs_a_broker = pytest.mark.skipif(unavailable("embedded") is not None, reason=str(unavailable("embedded")))


def fuzz(what: str, count: int) -> list[str]:
    """What the command says, line by line."""
    command = [sys.executable, "-m", "tests.fuzz", what, "--count", str(count)]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout.splitlines()


def number(line: str, name: str) -> int:
    return int(dict(each.split("=") for each in line.split())[name])


@needs_a_broker
def test_the_service_accepts_or_refuses_every_hostile_event_and_goes_on() -> None:
    last = fuzz("events", 5_000)[-1]
    assert number(last, "sent") == 5_015  # with the good events behind each thousand
    assert number(last, "accepted") > 500
    assert number(last, "refused") > 2_500
    assert number(last, "duplicates") > 0


def test_every_hostile_event_is_accepted_or_a_dead_letter_or_a_duplicate() -> None:
    seed = secrets.randbelow(10**6)
    print(f"seed {seed}")
    verdict = decided(events(seed, 20_000))
    assert verdict.problems == [], f"seed {seed}"
    assert verdict.sent == verdict.accepted + verdict.refused + verdict.duplicates
    assert len(verdict.codes) >= 12
    assert verdict.codes["not-json"] < verdict.refused // 2


@needs_a_broker
def test_every_hostile_definition_is_applied_or_refused_with_its_place() -> None:
    last = fuzz("definitions", 1_000)[-1]
    assert number(last, "accepted") + number(last, "refused") == 1_000
    assert number(last, "accepted") > 50
