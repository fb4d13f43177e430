"""A plan's records published in the background, slowly enough that there is work left for the faults to come."""

import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.plan import Planned

_EVERY_S: Final = 0.05
_TRICKLE_PER_S: Final = 15.0
_FLUSH_S: Final = 90
"""How long a producer has for the rest; then another one has as long."""
_SLOWEST_PER_S: Final = 100.0
_MOST_BEHIND: Final = 4_000
"""With so many records on their way the feed waits, so that what is left at the end is soon done."""

_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class _Said(logging.Handler):
    """The last that a producer said, which is of interest only where it does not get on."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=lines)
        self.logger = logging.Logger("feed")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("WAKEUP"):  # each flush says it several times a second
            return
        self._lines.append(f"{time.strftime('%X', time.localtime(record.created))} {record.getMessage()}")

    def __str__(self) -> str:
        return "\n".join(self._lines)


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
            "socket.timeout.ms": 10_000,
            "debug": "broker,topic,eos",
        }
        self._said = _Said(lines=60)
        self._error: BaseException | None = None
        self._refused: list[KafkaError] = []
        self._unacknowledged: set[int] = set()
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
        self._thread.join(self.left / _SLOWEST_PER_S + 2 * _FLUSH_S)
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

        producer = Producer(self._settings, logger=self._said.logger)
        producer.produce(topic, value, partition=partition, on_delivery=note)
        assert producer.flush(60) == 0, f"{topic} did not acknowledge a record within 60 s"
        return offsets[0]

    def _run(self) -> None:
        try:
            producer = Producer(self._settings, logger=self._said.logger)
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
                until = min(self.sent + int(owed), len(self._records))
                while self.sent < until:
                    self._produce(producer, self.sent)
                    self.sent += 1
                owed %= 1
                time.sleep(_EVERY_S)
            if producer.flush(_FLUSH_S):
                producer = self._again(producer)
            left = producer.flush(_FLUSH_S)
            assert left == 0, f"{left} records were not acknowledged in time:\n{self._said}"
        except BaseException as error:
            self._error = error

    def _again(self, stuck: Producer) -> Producer:
        """Another producer, which publishes what the one that is stuck did not get acknowledged.

        What is judged is what the topic holds, so that a record that came through twice does not matter.
        """
        missing = sorted(self._unacknowledged)
        warnings.warn(f"the feed was stuck with {len(missing)} records:\n{self._said}", stacklevel=2)
        stuck.purge()
        stuck.poll(1)
        producer = Producer(self._settings, logger=self._said.logger)
        for index in missing:
            self._produce(producer, index)
        return producer

    def _produce(self, producer: Producer, index: int) -> None:
        record = self._records[index]

        def note(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._unacknowledged.discard(index)
            elif error.code() not in _PURGED:
                self._refused.append(error)

        self._unacknowledged.add(index)
        while True:
            try:
                producer.produce("asset-events", record.value, record.key, record.partition, on_delivery=note)
                producer.poll(0)
                return
            except BufferError:  # Kafka is down for the moment
                producer.poll(0.1)
