"""Readings published in the background, slowly enough that there is work left for whoever is killed next."""

import random
import threading
import time
from collections.abc import Sequence

from tests.e2e.readings import Reading
from tests.e2e.road import Feeder

_AT_ONCE = 25


class SlowFeed:
    """A thread that publishes readings at `rate` events a second until `hurry`."""

    def __init__(self, bootstrap: str, readings: Sequence[Reading], rate: float) -> None:
        self.rate = rate
        self._feeder, self._readings, self._sent = Feeder(bootstrap), readings, 0
        self._hurry = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def left(self) -> int:
        """How many readings have not been published yet."""
        return len(self._readings) - self._sent

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Publish the rest as fast as it goes, and return when everything is acknowledged."""
        self._hurry.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the feed did not end within 120 s"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            due = time.monotonic()
            for start in range(0, len(self._readings), _AT_ONCE):
                for each in self._readings[start : start + _AT_ONCE]:
                    self._feeder.send(each)
                    self._sent += 1
                due = max(due + _AT_ONCE / self.rate, time.monotonic() - 1)
                self._hurry.wait(max(0.0, due - time.monotonic()))
            self._feeder.flush()
        except BaseException as error:
            self._error = error


def mixed_locally(readings: Sequence[Reading], dice: random.Random, within: int = 500) -> list[Reading]:
    """Nearly in order: every block of `within` readings is shuffled."""
    found: list[Reading] = []
    for start in range(0, len(readings), within):
        block = list(readings[start : start + within])
        dice.shuffle(block)
        found += block
    return found


def some_doubled(readings: Sequence[Reading], dice: random.Random, share: float) -> tuple[list[Reading], int]:
    """Readings with a share of them sent a second time soon after; also says how many were."""
    found: list[tuple[int, Reading]] = [(place, each) for place, each in enumerate(readings)]
    again = [
        (place + dice.randint(0, 300), each) for place, each in enumerate(readings) if dice.random() < share
    ]
    return [each for _, each in sorted(found + again, key=lambda item: item[0])], len(again)
