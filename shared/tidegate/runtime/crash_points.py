"""Named places between two steps, where a test has a process die, freeze or fail; without the variable nothing happens.

`TIDEGATE_CRASH_POINT=rollup.applied:3` kills the process with SIGKILL the third time it gets there, and
`rollup.applied:3:stop` freezes it with SIGSTOP, so that it goes on as a zombie once somebody sends SIGCONT. With
`rollup.sent:3:fail` the first three times raise an error, as a fault in the code that mends itself would.
"""

import os
import re
import signal
from typing import Final

VARIABLE: Final = "TIDEGATE_CRASH_POINT"

POINTS: Final = (
    "ingest.read",
    "ingest.marked",
    "ingest.sent",
    "ingest.committed",
    "mapper.read",
    "mapper.mapped",
    "mapper.sent",
    "mapper.committed",
    "rollup.read",
    "rollup.applied",
    "rollup.sent",
    "rollup.confirmed",
    "rollup.changed",  # changes of definitions are on the log
    "rollup.reached",  # deadlines that have come are on the log
    "rollup.committed",
    "dispatcher.fenced",  # the predecessor is, and nothing has been read yet
    "dispatcher.read",
    "dispatcher.decided",
    "transaction.produced",  # of the dispatcher or a worker: all is written but the end of the transaction
    "dispatcher.committed",
    "dispatcher.stored",
    "worker.started",
    "worker.ran",
    "worker.committed",
)
"""Every one, in the order of the road; each is named after the step before it, and is passed only with work at hand."""

_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "fail": None}


class InjectedError(RuntimeError):
    """What a point raises that is told to fail."""


class CrashPoint:
    """Counts how often one point is passed, and signals its own process at the `count`-th time or fails until then."""

    def __init__(self, text: str) -> None:
        """From `NAME:COUNT`, `NAME:COUNT:stop` or `NAME:COUNT:fail`; raises ValueError for anything else."""
        name, _, rest = text.partition(":")
        count, _, how = rest.partition(":")
        if name not in POINTS or not _COUNT.fullmatch(count) or (how or "kill") not in _SIGNALS:
            raise ValueError(
                f"{VARIABLE} {text!r} is not NAME:COUNT, NAME:COUNT:stop or NAME:COUNT:fail with one of {POINTS}"
            )
        self._name, self._left, self._signal = name, int(count), _SIGNALS[how or "kill"]

    def passed(self, name: str) -> None:
        """Signal, or raise InjectedError, where it is time to."""
        if name == self._name:
            self._left -= 1
            if self._signal is None and self._left >= 0:
                raise InjectedError(f"{name} was told to fail, {self._left} more times")
            if self._signal is not None and self._left == 0:
                os.kill(os.getpid(), self._signal)


_armed = CrashPoint(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def crash_point(name: str) -> None:
    """Say that the process is between two steps; does nothing unless the environment names this point."""
    if _armed is not None:
        _armed.passed(name)
