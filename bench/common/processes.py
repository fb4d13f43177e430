"""What processes used, from /proc: processor time to 10 ms, and the most memory that they ever had."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


class Usage(NamedTuple):
    """Of one process since it started."""

    cpu_s: float
    """In user and system mode, with that of children that ended."""
    peak_mib: float
    """Resident memory."""


def usage_of(pid: int) -> Usage:
    """Raises FileNotFoundError where the process is gone."""
    # proc(5): the name in brackets may hold anything; utime, stime, cutime, cstime are fields 14 to 17.
    fields = (
        Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    )
    found = _PEAK.search(Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace"))
    peak_mib = int(found[1]) / 1024 if found else 0.0
    return Usage(sum(map(int, fields[11:15])) / _TICKS_PER_S, peak_mib)


def usage(pids: Mapping[str, int]) -> dict[str, Usage]:
    return {name: usage_of(pid) for name, pid in pids.items()}


def cpu_between(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Seconds of processor time by process."""
    return {name: after[name].cpu_s - used.cpu_s for name, used in before.items()}


@contextmanager
def held(pid: int) -> Iterator[None]:
    """Freeze a process for the length of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
