"""What topics hold from a time on, read once up to their present ends, for people's questions."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from tidegate.runtime.installing import partition_counts
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.topic_admin import admin_client


class LogReader:
    """Reads committed records, of one partition after the other."""

    def __init__(self, consumer: AIOKafkaConsumer, counts: Mapping[str, int]) -> None:
        self._consumer, self._counts = consumer, counts

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 where there is none of that name."""
        return self._counts.get(topic, 0)

    async def since(
        self, topic: str, at: int, partitions: Collection[int] | None = None
    ) -> AsyncIterator[ConsumerRecord]:
        """Every record that came at or after `at`, in ms since 1970, each partition in order.

        Nothing where the topic, or a partition of it, does not exist.
        """
        numbers = range(self.partitions(topic))
        wanted = [
            TopicPartition(topic, number) for number in numbers if partitions is None or number in partitions
        ]
        if not wanted:
            return
        ends = await self._consumer.end_offsets(wanted)
        # aiokafka takes only times, and a log may hold none so late.
        starts = await self._consumer.offsets_for_times(dict.fromkeys(wanted, max(0, at)))
        for tp in wanted:
            if (start := starts[tp]) is not None:
                async for record in self._read(tp, start.offset, ends[tp]):
                    yield record

    async def record_at(self, tp: TopicPartition, offset: int) -> ConsumerRecord | None:
        """One record, None where the log does not hold it."""
        if not 0 <= tp.partition < self.partitions(tp.topic):
            return None
        beginning = (await self._consumer.beginning_offsets([tp]))[tp]
        end = (await self._consumer.end_offsets([tp]))[tp]
        if not beginning <= offset < end:
            return None
        async for record in self._read(tp, offset, end):
            return record if record.offset == offset else None
        return None

    async def _read(self, tp: TopicPartition, start: int, end: int) -> AsyncIterator[ConsumerRecord]:
        """The records of a partition from `start` on, up to `end`; markers and compacted ones take offsets too."""
        self._consumer.assign([tp])
        self._consumer.seek(tp, start)
        while await self._consumer.position(tp) < end:
            for record in (await self._consumer.getmany(tp, timeout_ms=200)).get(tp, ()):
                if record.offset >= end:
                    return
                yield record


@asynccontextmanager
async def log_reader(bootstrap: str) -> AsyncIterator[LogReader]:
    """A reader of the topics that there are now."""
    async with admin_client(bootstrap) as admin:
        counts = await partition_counts(admin)  # asked of all, since naming a missing one may create it
    async with log_consumer(bootstrap, "tidegate-reader") as consumer:
        yield LogReader(consumer, counts)
