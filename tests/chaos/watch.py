"""How long nothing moved though work was waiting, apart from the faults themselves."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import KafkaException

from tests.chaos.fleet import RawOutside

_EVERY_S: Final = 0.5
_SUSPECT_S: Final = 2.0
"""A standstill this long is looked at: records may wait, or only markers of transactions."""


class StallWatch:
    """Samples what every group has committed, on a thread of its own."""

    def __init__(self, bootstrap: str, namespace: str, reads: Mapping[str, tuple[str, ...]]) -> None:
        self.longest_s = 0.0
        self.of = ""
        """The service that stood still for longest."""
        self.behind = 0
        """Records that wait at the beginning and at the end of the road; markers of transactions count too."""
        self._outside = RawOutside(bootstrap)
        self._namespace, self._reads = namespace, reads
        self._faults: list[tuple[float, float | None]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(60)
        self._outside.__exit__()

    @contextmanager
    def fault(self) -> Iterator[None]:
        """While the block runs, no progress is expected."""
        place = len(self._faults)
        began = time.monotonic()
        self._faults.append((began, None))
        try:
            yield
        finally:
            self._faults[place] = (began, time.monotonic())

    def _run(self) -> None:
        committed: dict[str, dict[tuple[str, int], int]] = {}
        moved = dict.fromkeys(self._reads, time.monotonic())
        while not self._ending.wait(_EVERY_S):
            for name, topics in self._reads.items():
                try:
                    now = self._outside.committed(f"{self._namespace}-{name}", topics)
                    if now != committed.get(name) or self._is_idle(name, moved[name]):
                        committed[name], moved[name] = now, time.monotonic()
                except (KafkaException, AssertionError):
                    self._outside.begin_anew()  # the broker is away, which somebody will call a fault
                self._note(name, moved[name])
            with suppress(KafkaException, AssertionError):
                self.behind = sum(
                    end - committed.get(name, {}).get(place, 0)
                    for name in {"ingest", "worker"} & self._reads.keys()
                    for place, end in self._outside.ends(self._reads[name]).items()
                )

    def _is_idle(self, name: str, since: float) -> bool:
        if time.monotonic() - since < _SUSPECT_S:
            return False
        return not self._outside.waiting(f"{self._namespace}-{name}", self._reads[name], None, 1)

    def _note(self, name: str, since: float) -> None:
        now = time.monotonic()
        during = sum(
            max(0.0, min(now, end if end is not None else now) - max(since, began))
            for began, end in self._faults
        )
        if (stall := now - since - during) > self.longest_s:
            self.longest_s, self.of = stall, name
