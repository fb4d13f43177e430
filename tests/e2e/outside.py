"""Kafka as somebody else sees it: librdkafka and plain JSON, nothing of ours."""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition


class Record(NamedTuple):
    """One committed record; `value` is its JSON."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: Any


class Outside:
    """A client that reads committed records and asks where groups stand, and is a member of none."""

    deadline_s = 30.0

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "allow.auto.create.topics": False,
            "log_level": 0,  # brokers come and go under tests
        }
        self._reader = Consumer({**self._settings, "group.id": "outside"})
        self._groups: dict[str, Consumer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in (self._reader, *self._groups.values()):
            consumer.close()

    def read(self, *topics: str) -> list[Record]:
        """Every committed record that the topics hold now, partition by partition."""
        return self._read(
            [TopicPartition(each.topic, each.partition, 0) for each in self._partitions(topics)]
        )

    def audit(self, *kinds: str) -> list[Mapping[str, Any]]:
        """The audit entries by distinct id: of some kinds, or of all that tell of what did not run."""
        found = {record.value["id"]: record.value for record in self.read("audit-log")}
        return [
            each
            for each in found.values()
            if (each["kind"] in kinds if kinds else each["kind"] not in ("consumer-registered", "fired"))
        ]

    def value_of(self, raw: bytes | None) -> Any:
        """What a record's `value` is made from its bytes."""
        return json.loads(raw or b"null")

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """The end of every partition's log, transaction markers included."""
        return {
            (each.topic, each.partition): self._reader.get_watermark_offsets(each, timeout=10)[1]
            for each in self._partitions(topics)
        }

    def waiting(
        self,
        group: str,
        topics: Sequence[str],
        among: Collection[tuple[str, int]] | None = None,
        enough: int | None = None,
    ) -> dict[tuple[str, int], int]:
        """How many records lie behind what `group` has committed, by partition, of all or `among` some.

        Counted by reading them, since markers of transactions take offsets too; at most until `enough` are found.
        """
        behind = []
        ends = self.ends(topics)
        for each in self._committed(group, topics):
            start = 0 if each.offset == OFFSET_INVALID else each.offset
            if (among is None or (each.topic, each.partition) in among) and start < ends[
                each.topic, each.partition
            ]:
                behind.append(TopicPartition(each.topic, each.partition, start))
        found: dict[tuple[str, int], int] = {}
        for record in self._read(behind, enough):
            found[record.topic, record.partition] = found.get((record.topic, record.partition), 0) + 1
        return found

    def committed(self, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """The offsets that `group` has committed, by partition; without those where it never did."""
        return {
            (each.topic, each.partition): each.offset
            for each in self._committed(group, topics)
            if each.offset != OFFSET_INVALID
        }

    def _committed(self, group: str, topics: Iterable[str]) -> list[TopicPartition]:
        if group not in self._groups:
            self._groups[group] = Consumer({**self._settings, "group.id": group})
        return list(self._groups[group].committed(self._partitions(topics), timeout=10))

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        known = self._reader.list_topics(timeout=10).topics  # all: asking for one may create it
        return [
            TopicPartition(topic, number) for topic in topics for number in sorted(known[topic].partitions)
        ]

    def _read(self, places: Sequence[TopicPartition], enough: int | None = None) -> list[Record]:
        if not places:
            return []
        self._reader.assign(list(places))
        found: dict[tuple[str, int], list[Record]] = {(each.topic, each.partition): [] for each in places}
        at_end: set[tuple[str, int]] = set()
        deadline = time.monotonic() + self.deadline_s
        while len(at_end) < len(places) and (enough is None or sum(map(len, found.values())) < enough):
            assert time.monotonic() < deadline, f"could not read {places} to the end in {self.deadline_s:g} s"
            for message in self._reader.consume(1_000, timeout=0.05):
                place = (message.topic() or "", message.partition() or 0)
                if (error := message.error()) is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    at_end.add(place)
                    continue
                key = message.key()
                text = None if key is None else key.decode()
                value = self.value_of(message.value())
                found[place].append(Record(*place, message.offset() or 0, text, value))
        self._reader.unassign()
        return [record for records in found.values() for record in records]
