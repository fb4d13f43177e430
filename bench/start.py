"""How long `tidegate up` takes, from the command to its line "Tidegate is up".

Included: the interpreters and what they import, an embedded broker on an empty folder, the topics, and the first
sessions of the four services. The first turn writes what Python compiles and is left out; stopping is not timed.
Processor seconds are those of the command and all that it started, until the line.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from bench.common.processes import usage_of
from bench.common.results import Report, Table, add_json_option, finish, middle, note

_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Started:
    """One turn."""

    seconds: float
    cpu_s: float


def start_once(folder: Path) -> Started:
    """Start everything on an empty folder, and stop it."""
    command = [sys.executable, "-m", "tidegate.cli", "up", "--data", str(folder)]
    command += ["--kafka-port", "0", "--redis-port", "0"]
    environment = {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not any("Tidegate is up" in line for line in process.stdout):
                raise RuntimeError("`tidegate up` ended before it was up")
            seconds = monotonic() - began
            pids = [process.pid, *_children(process.pid)]
            cpu_s = sum(usage_of(pid).cpu_s for pid in pids)
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            process.wait(_STOP_S)
    return Started(round(seconds, 2), round(cpu_s, 2))


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for file in found for each in file.read_text(encoding="utf-8").split()]


def run(turns: int, *, warm_up: int = 1) -> Report:
    """So many turns, and their medians."""
    report = Report("start", __doc__ or "", {"turns": turns})
    done: list[Started] = []
    for turn in range(warm_up + turns):
        with tempfile.TemporaryDirectory() as folder:
            started = start_once(Path(folder))
        note(f"turn {turn}: {started.seconds} s")
        if turn >= warm_up:
            done.append(started)
    medians = Started(
        *(round(middle(each), 2) for each in zip(*(asdict(s).values() for s in done), strict=True))
    )
    report.tables = [
        Table(
            "From the command to its line",
            [
                {"turn": name, "seconds": each.seconds, "processor seconds": each.cpu_s}
                for name, each in [*enumerate(done, start=1), ("median", medians)]
            ],
        )
    ]
    return report


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="how often it is started")
    add_json_option(parser)
    parser.set_defaults(run=lambda arguments: finish(run(arguments.turns), arguments.json))
