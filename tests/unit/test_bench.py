"""Measurements stay runnable. What they measure is for bench/RESULTS.md, never for a test."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_core_can_be_measured() -> None:
    command = [sys.executable, "-m", "bench", "core", "--keys", "150", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    measured = json.loads(done.stdout)["measured"]
    assert len(measured) == 9
    assert all(each["median_us"] >= 0 for each in measured)
