"""Reading a partition once, from its beginning to the end that it has now: what commands look things up in."""

from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition


async def committed_records(bootstrap: str, tp: TopicPartition) -> AsyncIterator[ConsumerRecord]:
    """Every committed record that the partition holds, in order."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id="tidegate-look-up",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
    )
    try:
        await consumer.start()
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        await consumer.seek_to_beginning(tp)
        while await consumer.position(tp) < end:
            for record in (await consumer.getmany(tp, timeout_ms=100)).get(tp, ()):
                yield record
    finally:
        await consumer.stop()
