"""The independent reader: librdkafka in a process of its own, read committed, member of no group.

It notes when each command comes in, by time.monotonic, which all processes of a machine share.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_START_S, _REST_S = 60.0, 60.0
_POLL_S: Final = 0.1
_RUN_ID: Final = b'"run_id":"'

_NOT_YET: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

Place = tuple[str, int]
"""A topic and the number of a partition."""


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
                pipe.send(reader.rest())
            else:
                pipe.send(())
                pipe.send(reader.collect(*asked))
        except (KafkaException, RuntimeError) as error:
            pipe.send(str(error))


def ends(bootstrap: str, topics: Iterable[str]) -> dict[Place, int]:
    """The offset that the next record of every partition gets."""
    consumer = _consumer(bootstrap)
    try:
        return _ends(consumer, topics)
    finally:
        consumer.close()


def read_on(bootstrap: str, places: Mapping[Place, int]) -> Iterator[Message]:
    """Every committed record from some offsets on, up to the end of every partition as it is now."""
    consumer = _consumer(bootstrap)
    try:
        yield from _up_to_the_end(consumer, places)
    finally:
        consumer.close()


class _Reader:
    def __init__(self, bootstrap: str, topics: Sequence[str], parent: int) -> None:
        self._parent = parent
        self._consumer = _consumer(bootstrap)
        self._next = _ends(self._consumer, topics)
        _assign(self._consumer, self._next)

    def collect(self, expected: int, silence_s: float) -> list[Arrival]:
        found: list[Arrival] = []
        deadline = time.monotonic() + silence_s
        while len(found) < expected:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > deadline or os.getppid() != self._parent:
                    break
            elif not _is_end(message):
                found.append(self._arrival(message))
                deadline = found[-1].at + silence_s
        return found

    def rest(self) -> list[Arrival]:
        return [self._arrival(message) for message in _up_to_the_end(self._consumer, dict(self._next))]

    def _arrival(self, message: Message) -> Arrival:
        now = time.monotonic()
        topic, key, value = message.topic() or "", message.key() or b"", message.value() or b""
        self._next[topic, message.partition() or 0] = (message.offset() or 0) + 1
        start = value.find(_RUN_ID)
        run_id = value[start + len(_RUN_ID) : value.index(b'"', start + len(_RUN_ID))] if start >= 0 else b""
        return Arrival(now, topic, key.decode(), run_id.decode())


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-reader",  # it must have one, and never joins it
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,  # how long the end of a partition keeps one waiting, not its records
            "fetch.queue.backoff.ms": 5,
            "socket.nagle.disable": True,
        }
    )


def _ends(consumer: Consumer, topics: Iterable[str]) -> dict[Place, int]:
    known = consumer.list_topics(timeout=10).topics
    places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
    return {(each.topic, each.partition): _end(consumer, each) for each in places}


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """Waits for a partition that was made a moment ago, which its broker may not lead yet."""
    deadline = time.monotonic() + _START_S / 2
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=10)[1])
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


def _assign(consumer: Consumer, places: Mapping[Place, int]) -> None:
    consumer.assign([TopicPartition(*place, offset) for place, offset in places.items()])


def _up_to_the_end(consumer: Consumer, places: Mapping[Place, int]) -> Iterator[Message]:
    """Raises RuntimeError where a partition does not say that it is at its end."""
    _assign(consumer, places)  # each says so once for every assignment
    at_end: set[tuple[str | None, int | None]] = set()
    deadline = time.monotonic() + _REST_S
    while len(at_end) < len(places):
        message = consumer.poll(_POLL_S)
        if message is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(places) - len(at_end)} partitions came to no end")
        elif _is_end(message):
            at_end.add((message.topic(), message.partition()))
        else:
            yield message


def _is_end(message: Message) -> bool:
    """Whether it says only that its partition is at its end; raises KafkaException for any other error."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None
