"""Two test processes on two cores: one takes the tests that mostly wait, the other those that mostly compute.

Both start at an end of their own and meet in the middle. All tests of a file and a backend stay together, in the order
in which pytest has them, since they share what is started for a module.
"""

import re
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

WORKERS: Final = 2
_WAITING: Final = ("chaos", "e2e", "broker", "deploy", "bench")
"""Folders whose tests wait for servers and services; those with the longest files first."""
_BACKEND: Final = re.compile(r"\[(?:.*-)?(embedded|real)\b")


class TwoEnded(LoadScopeScheduling):  # type: ignore[misc]  # it says nothing of types
    """Hands out files: the first worker gets waiting ones as long as there are some, the others computing ones."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False  # it would put those with few tests, the longest, last
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        backend = _BACKEND.search(test)
        return f"{file} {backend[1]}" if backend else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_first = node is self.nodes[0]
        chosen = min(self.workqueue, key=lambda scope: _preference(scope, is_first))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def _preference(scope: str, for_waiting: bool) -> tuple[bool, int]:
    """Smallest for what is to run next; what computes is taken in pytest's order, and so is what is left."""
    folder = scope.split("/")[1] if "/" in scope else ""
    waits = folder in _WAITING
    return waits is not for_waiting, _WAITING.index(folder) if waits and for_waiting else 0
