"""Publishing by librdkafka, which costs little beside what is measured: all at once, or by a schedule."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

_FLUSH_S: Final = 120.0
_AHEAD_S: Final = 0.1
"""Between the start of a schedule and its first record."""


class Record(NamedTuple):
    key: bytes
    value: bytes
    partition: int
    headers: tuple[tuple[str, bytes], ...] = ()


class Schedule(NamedTuple):
    """What became of a schedule; instants of time.monotonic."""

    due: list[float]
    """When each record was to be sent."""
    late_s: list[float]
    """How much later each was handed to the client."""


class Feeder:
    """An idempotent producer (acks=all) of one topic; records are neither lost nor refused, or RuntimeError says so."""

    def __init__(self, bootstrap: str, topic: str, linger_ms: float) -> None:
        self._topic = topic
        self._refused: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
                "socket.nagle.disable": True,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()

    def fill(self, records: Iterable[Record]) -> None:
        """Send as fast as the broker takes them; returns once all are acknowledged."""
        for record in records:
            self._produce(record)
        self._flush()

    def at_rate(self, records: Iterable[Record], per_s: float) -> Schedule:
        """Send each record at its instant, whatever became of those before; returns once all are acknowledged."""
        schedule = Schedule([], [])
        began = time.monotonic() + _AHEAD_S
        for number, record in enumerate(records):
            due = began + number / per_s
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(0)
                time.sleep(left)
            self._produce(record)
            schedule.due.append(due)
            schedule.late_s.append(time.monotonic() - due)
        self._flush()
        return schedule

    def _produce(self, record: Record) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=self._note,
                    headers=list(record.headers),
                )
                self._producer.poll(0)
                return
            except BufferError:  # so much is on its way
                self._producer.poll(0.1)

    def _flush(self) -> None:
        if left := self._producer.flush(_FLUSH_S):
            raise RuntimeError(f"{left} records of {self._topic} were not acknowledged within {_FLUSH_S:g} s")
        if self._refused:
            raise RuntimeError(
                f"{len(self._refused)} records of {self._topic} were refused: {self._refused[0]}"
            )

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error)
