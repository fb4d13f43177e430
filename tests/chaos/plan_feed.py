"""A plan's records published in the background, slowly enough that there is work left for the faults to come."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.plan import Planned

_EVERY_S: Final = 0.05
_TRICKLE_PER_S: Final = 15.0
_FLUSH_S: Final = 180
_SLOWEST_PER_S: Final = 100.0
_MOST_BEHIND: Final = 4_000
"""With so many records on their way the feed waits, so that what is left at the end is soon done."""


class Feed:
    """A thread that publishes at `rate` records a second, what is pushed at once, beyond `allowed` much slower."""

    def __init__(
        self, bootstrap: str, records: Sequence[Planned], rate: float, behind: Callable[[], int] = lambda: 0
    ) -> None:
        self._behind = behind
        self.rate, self.sent, self.allowed = rate, 0, len(records)
        self._pushed = 0
        self.is_held = False
        """Whether nothing is published for the moment."""
        self._records = records
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,  # it would tell of every restart of the broker
        }
        self._error: BaseException | None = None
        self._refused: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def left(self) -> int:
        return len(self._records) - self.sent

    def start(self) -> None:
        self._thread.start()

    def push(self, count: int) -> None:
        """Publish so many of the next records at once."""
        self._pushed += count

    def hurry(self, rate: float) -> None:
        """Publish the rest at `rate` at most, and return when everything is acknowledged."""
        self.rate, self.allowed = rate, len(self._records)
        self._thread.join(self.left / _SLOWEST_PER_S + _FLUSH_S)
        assert not self._thread.is_alive(), f"the feed did not end, {self.left} records are left"
        if self._error is not None:
            raise self._error
        assert not self._refused, self._refused[:3]

    def publish(self, topic: str, partition: int, value: bytes | None) -> int:
        """Publish one record elsewhere and return its offset."""
        offsets: list[int] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            offsets.append(message.offset() or 0)

        producer = Producer(self._settings)
        producer.produce(topic, value, partition=partition, on_delivery=note)
        assert producer.flush(60) == 0, f"{topic} did not acknowledge a record within 60 s"
        return offsets[0]

    def _run(self) -> None:
        try:
            producer = Producer(self._settings)
            owed, before = 0.0, time.monotonic()
            while self.left:
                if self.is_held:
                    time.sleep(_EVERY_S)
                    continue
                now = time.monotonic()
                is_free = self.sent < self.allowed and self._behind() < _MOST_BEHIND
                rate = self.rate if is_free else min(self.rate, _TRICKLE_PER_S)
                pushed, self._pushed = self._pushed, 0
                owed, before = min(owed + rate * (now - before), rate) + pushed, now
                for each in self._records[self.sent : self.sent + int(owed)]:
                    self._produce(producer, each)
                    self.sent += 1
                owed %= 1
                time.sleep(_EVERY_S)
            assert producer.flush(_FLUSH_S) == 0, "the broker did not acknowledge every record"
        except BaseException as error:
            self._error = error

    def _produce(self, producer: Producer, record: Planned) -> None:
        while True:
            try:
                producer.produce(
                    "asset-events", record.value, record.key, record.partition, on_delivery=self._note
                )
                producer.poll(0)
                return
            except BufferError:  # Kafka is down for the moment
                producer.poll(0.1)

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error)
