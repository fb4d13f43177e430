"""Processes that do not outlive the one that started them."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """The `preexec_fn` of a child that is sent `number` when its parent dies without stopping it.

    None where the system is not Linux, which alone can do it.
    """
    if _libc is None:
        return None
    libc, us = _libc, os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != us:  # died in between
            os._exit(1)

    return ask
