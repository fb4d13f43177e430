"""The independent reader: librdkafka in a process of its own, read committed, member of no group.

It notes when each command comes in, by time.monotonic, which all processes of a machine share.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_START_S, _REST_S = 60.0, 60.0
_POLL_S: Final = 0.1
_RUN_ID: Final = b'"run_id":"'


class Arrival(NamedTuple):
    """A command, as it came in."""

    at: float
    topic: str
    key: str
    run_id: str
    """Empty where the record names none."""


class Receiver:
    """Reads what is committed to `topics` from now on. As a context manager it runs for the length of the block."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        apart = multiprocessing.get_context("spawn")
        self._pipe, theirs = apart.Pipe()
        self._process = apart.Process(
            target=_read, args=(bootstrap, tuple(topics), theirs, os.getpid()), daemon=True
        )
        self._theirs = theirs

    def __enter__(self) -> Self:
        self._process.start()
        self._theirs.close()
        self._answer(_START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join(10)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "the reader was not started"
        return self._process.pid

    def begin(self, expected: int, silence_s: float) -> None:
        """Start to read, until so many are there or none came for so long; `collected` waits for that."""
        self._silence_s = silence_s
        self._pipe.send((expected, silence_s))
        self._answer(_START_S)

    def collected(self) -> list[Arrival]:
        """What came since `begin`, in the order in which it came."""
        return list(self._answer(None))

    def rest(self) -> list[Arrival]:
        """What came beyond that, up to the end of every partition as it is now."""
        self._pipe.send(None)
        return list(self._answer(_REST_S + _START_S))

    def _answer(self, timeout_s: float | None) -> Iterable[Arrival]:
        if not self._pipe.poll(timeout_s):
            raise RuntimeError(f"the reader of commands did not answer within {timeout_s} s")
        try:
            answer: Iterable[Arrival] | str = self._pipe.recv()
        except EOFError:
            raise RuntimeError("the reader of commands has ended, see its error above") from None
        if isinstance(answer, str):
            raise RuntimeError(f"the reader of commands: {answer}")
        return answer


def _read(bootstrap: str, topics: Sequence[str], pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    reader = _Reader(bootstrap, topics, parent)
    pipe.send(())
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        try:
            if asked is None:
                pipe.send(list(reader.rest()))
            else:
                pipe.send(())
                pipe.send(reader.collect(*asked))
        except (KafkaException, RuntimeError) as error:
            pipe.send(str(error))


class _Reader:
    def __init__(self, bootstrap: str, topics: Sequence[str], parent: int) -> None:
        self._parent = parent
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 5,
                "socket.nagle.disable": True,
            }
        )
        known = self._consumer.list_topics(timeout=10).topics
        places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
        self._next = {
            (each.topic, each.partition): self._consumer.get_watermark_offsets(each, timeout=10)[1]
            for each in places
        }
        self._assign()

    def collect(self, expected: int, silence_s: float) -> list[Arrival]:
        found: list[Arrival] = []
        deadline = time.monotonic() + silence_s
        while len(found) < expected:
            message = self._consumer.poll(_POLL_S)
            now = time.monotonic()
            if message is None:
                if now > deadline or os.getppid() != self._parent:
                    break
            elif (arrival := self._arrival(message, now)) is not None:
                found.append(arrival)
                deadline = now + silence_s
        return found

    def rest(self) -> Iterator[Arrival]:
        self._assign()  # so that every partition says again that it is at its end
        at_end: set[tuple[str | None, int | None]] = set()
        deadline = time.monotonic() + _REST_S
        while len(at_end) < len(self._next):
            message = self._consumer.poll(_POLL_S)
            now = time.monotonic()
            if message is None:
                if now > deadline:
                    raise RuntimeError(f"{len(self._next) - len(at_end)} partitions came to no end")
            elif (arrival := self._arrival(message, now)) is not None:
                yield arrival
            else:
                at_end.add((message.topic(), message.partition()))

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._next.items()])

    def _arrival(self, message: Message, now: float) -> Arrival | None:
        """None for the end of a partition."""
        if (error := message.error()) is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            return None
        topic, key, value = message.topic() or "", message.key() or b"", message.value() or b""
        self._next[topic, message.partition() or 0] = (message.offset() or 0) + 1
        start = value.find(_RUN_ID)
        run_id = value[start + len(_RUN_ID) : value.index(b'"', start + len(_RUN_ID))] if start >= 0 else b""
        return Arrival(now, topic, key.decode(), run_id.decode())
