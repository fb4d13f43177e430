"""One process of the relay: `python -m bench.hop`, told by TIDEGATE_BENCH_HOP what to copy from where to where.

It reads batches, writes so many messages of the right size for them, waits until they are acknowledged, and commits.
Nothing is parsed and nothing decided. The hop in the place of the rollup hands what it read to a script in Redis that
does nothing, one call for every shard of a partition; the last hop writes inside transactions.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import redis.asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

VARIABLE: Final = "TIDEGATE_BENCH_HOP"
PACK: Final = 500
"""Messages in one record of a packed topic."""
KEY: Final = b"2026-03-10"
"""Of every record."""
_BATCH: Final = 2_000
_MOST_BYTES: Final = 8 * 1024 * 1024
_BATCH_BYTES: Final = 512 * 1024
_SCRIPT: Final = "return #ARGV[1]"


@dataclass(frozen=True)
class Hop:
    """What one process does."""

    kafka: str
    redis: str
    source: str
    target: str
    group: str
    size_in: int
    size_out: int
    """Bytes of one message."""
    packed_in: bool
    packed_out: bool
    spread: int = 1
    """How many messages are written for each that is read."""
    keep: int = 1
    """And then one for so many of them."""
    scripts: int = 0
    """Calls of the script for the records of one partition."""
    is_transactional: bool = False
    session_timeout_ms: int = 300_000

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


class Copier:
    """What goes out for what comes in: a count of messages, each a filler of one size."""

    def __init__(self, hop: Hop) -> None:
        self._hop, self._seen = hop, 0
        self._filler = b"x" * hop.size_out

    def copies(self, records: Sequence[ConsumerRecord]) -> Iterator[bytes]:
        """The value of every record to write for those of one partition."""
        if self._hop.packed_out:
            left = sum(map(self._messages, records))
            while left > 0:
                yield self._filler * min(left, PACK)
                left -= PACK
            return
        for record in records:
            for _ in range(self._messages(record)):
                yield self._filler

    def _messages(self, record: ConsumerRecord) -> int:
        """How many messages a record gives."""
        read = len(record.value) // self._hop.size_in if self._hop.packed_in else 1
        before = self._seen // self._hop.keep
        self._seen += read * self._hop.spread
        return self._seen // self._hop.keep - before


async def run(hop: Hop) -> None:
    """Copy without end."""
    consumer = AIOKafkaConsumer(
        hop.source,
        bootstrap_servers=hop.kafka,
        group_id=hop.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=hop.session_timeout_ms,
        fetch_max_wait_ms=200,
        fetch_max_bytes=4 * _MOST_BYTES,
        max_partition_fetch_bytes=_MOST_BYTES,
    )
    producers = [_producer(hop, number) for number in range(2 if hop.is_transactional else 1)]
    await consumer.start()
    for producer in producers:
        await producer.start()
    client = redis.asyncio.Redis.from_url(hop.redis)
    sha = await client.script_load(_SCRIPT)
    copier, turn = Copier(hop), 0
    while True:
        batch = await consumer.getmany(timeout_ms=200, max_records=_BATCH)
        if not batch:
            continue
        producer, turn = producers[turn], (turn + 1) % len(producers)
        if hop.scripts:
            await _call_scripts(client, sha, batch, hop.scripts)
        if hop.is_transactional:
            await producer.begin_transaction()
        sent = [
            await producer.send(hop.target, value, KEY, partition.partition)
            for partition, records in batch.items()
            for value in copier.copies(records)
        ]
        await producer.flush()
        for future in sent:
            future.result()
        offsets = {partition: records[-1].offset + 1 for partition, records in batch.items()}
        if hop.is_transactional:
            await producer.send_offsets_to_transaction(offsets, hop.group)
            await producer.commit_transaction()
        else:
            await consumer.commit(offsets)


def _producer(hop: Hop, number: int) -> AIOKafkaProducer:
    """Those of transactions are two, in turn: one that begins right after its last waits for the markers of that."""
    mode: dict[str, Any] = {"enable_idempotence": True}
    if hop.is_transactional:
        mode = {"transactional_id": f"{hop.group}-{number}", "retry_backoff_ms": 2}
    return AIOKafkaProducer(
        bootstrap_servers=hop.kafka,
        acks="all",
        max_batch_size=_BATCH_BYTES,
        max_request_size=_MOST_BYTES,
        **mode,
    )


async def _call_scripts(
    client: redis.asyncio.Redis, sha: str, batch: dict[TopicPartition, list[ConsumerRecord]], count: int
) -> None:
    async with client.pipeline(transaction=False) as pipeline:
        for partition, records in batch.items():
            read = b"".join([record.value for record in records])
            size = -(-len(read) // count)
            for number in range(count):
                part = read[number * size : (number + 1) * size]
                pipeline.execute_command("EVALSHA", sha, 1, f"{{{partition.partition}-{number}}}", part)
        await pipeline.execute()


def main() -> None:
    hop = Hop(**json.loads(os.environ[VARIABLE]))
    with contextlib.suppress(ImportError):  # as the services do
        import uvloop

        uvloop.install()
    asyncio.run(run(hop))


if __name__ == "__main__":
    main()
