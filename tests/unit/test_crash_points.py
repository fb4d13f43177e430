"""Crash points: named, called where they say, and harmless unless asked for."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.runtime.crash_points import POINTS, VARIABLE, CrashPoint, InjectedError

ROOT = Path(__file__).parents[2]
_THREE_TIMES = """
from tidegate.runtime.crash_points import crash_point
for number in range(3):
    print(number, flush=True)
    crash_point("mapper.sent")
    crash_point("mapper.mapped")
"""


def _run(**env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "shared"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", _THREE_TIMES],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_point_is_called_at_one_place() -> None:
    text = "".join(
        file.read_text(encoding="utf-8")
        for folder in ("shared/tidegate", "services")
        for file in sorted((ROOT / folder).rglob("*.py"))
    )
    assert sorted(re.findall(r'crash_point\("([^"]+)"\)', text)) == sorted(POINTS)


def test_without_the_variable_nothing_happens() -> None:
    done = _run()
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n")


def test_a_process_dies_at_the_counted_time_it_gets_there() -> None:
    done = _run(**{VARIABLE: "mapper.sent:2"})
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "0\n1\n")


def test_a_point_fails_as_often_as_it_is_told_to_and_then_works() -> None:
    point = CrashPoint("mapper.sent:2:fail")
    point.passed("mapper.mapped")
    for left in (1, 0):
        with pytest.raises(InjectedError, match=f"mapper.sent was told to fail, {left} more"):
            point.passed("mapper.sent")
    for _ in range(3):
        point.passed("mapper.sent")


@pytest.mark.parametrize(
    "text", ["", "mapper.sent", "mapper.send:1", "mapper.sent:x", "mapper.sent:0", "mapper.sent:1:pause"]
)
def test_a_point_that_would_never_be_reached_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        CrashPoint(text)
