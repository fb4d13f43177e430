"""What a service process knows about its own condition: ready or why not, alive or stuck."""

import asyncio
from time import monotonic

from tidegate.runtime import metrics


class ServiceState:
    """Readiness is the absence of reasons against it; liveness is a step of the loop within `stall_after_s`.

    Retries of a broken dependency are steps, so an outage makes a service not ready but leaves it alive.
    """

    def __init__(self, stall_after_s: float) -> None:
        self._stall_after_s = stall_after_s
        self._reasons: dict[str, str] = {"starting": "the service is starting"}
        self._last_step = monotonic()
        self.lag: dict[tuple[str, int], int] = {}
        self.stopping = asyncio.Event()

    def step(self) -> None:
        """The loop made progress, or tried to."""
        self._last_step = monotonic()

    def block(self, name: str, reason: str) -> None:
        """Not ready for `reason` until `unblock(name)`."""
        self._reasons[name] = reason
        metrics.READY.set(0)

    def unblock(self, name: str) -> None:
        self._reasons.pop(name, None)
        metrics.READY.set(int(self.is_ready))

    def set_lag(self, topic: str, partition: int, records: int) -> None:
        self.lag[topic, partition] = records
        metrics.LAG.labels(topic, partition).set(records)

    @property
    def is_ready(self) -> bool:
        return not self._reasons

    @property
    def reasons(self) -> dict[str, str]:
        """Why the service is not ready, by name."""
        return dict(self._reasons)

    @property
    def stalled_for_s(self) -> float | None:
        """Seconds without a step, where they are too many while records wait; None while the loop is alive."""
        idle = monotonic() - self._last_step
        return idle if idle > self._stall_after_s and any(self.lag.values()) else None
