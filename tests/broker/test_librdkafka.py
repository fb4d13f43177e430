"""The contract with clients that know nothing of Tidegate: librdkafka and the CloudEvents SDK write, ingest accepts."""

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import KafkaError, Message, Producer

from tests.broker.conftest import Install, Installed, define, read_all, until_async
from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.definitions import Asset

TOPIC = "asset-events"
TYPE = "dev.tidegate.asset.updated.v1"


class Foreign(NamedTuple):
    """A record as a foreign client writes it."""

    value: bytes
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


def produce_with_librdkafka(
    bootstrap: str, records: Sequence[Foreign], topic: str = TOPIC, **settings: Any
) -> None:
    """Write with confluent-kafka's own partitioner and wait until every record is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    failed: list[KafkaError] = []

    def acknowledge(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    for record in records:
        producer.produce(
            topic, record.value, record.key, headers=list(record.headers) or None, on_delivery=acknowledge
        )
    assert producer.flush(30) == 0
    assert not failed
    if "transactional.id" in settings:
        producer.commit_transaction(30)


def by_the_sdk(write: Callable[[CloudEvent], KafkaMessage]) -> Callable[[int], Foreign]:
    """Events that the CloudEvents SDK builds, validates and writes."""

    def make(number: int) -> Foreign:
        event = CloudEvent(
            attributes={
                "id": f"e-{number}",
                "source": "/foreign/sdk",
                "type": TYPE,
                "subject": "seattle",
                "datacontenttype": "application/json",
                "partitionkey": "hourly",
            },
            data=update(number),
        )
        message = write(event)
        assert message.key == "hourly"
        return Foreign(message.value, b"hourly", tuple(message.headers.items()))

    return make


def structured_by_hand(number: int) -> Foreign:
    """What a shell script with a JSON template would send: no key, no headers, default partitioner."""
    event = {
        "specversion": "1.0",
        "id": f"e-{number}",
        "source": "/foreign/sdk",
        "type": TYPE,
        "data": update(number),
    }
    return Foreign(json.dumps(event).encode())


def binary_by_hand(number: int) -> Foreign:
    headers = {"ce_specversion": "1.0", "ce_id": f"e-{number}", "ce_source": "/foreign/sdk", "ce_type": TYPE}
    value = json.dumps(update(number), ensure_ascii=False, indent=2).encode()
    return Foreign(value, b"hourly", tuple((name, text.encode()) for name, text in headers.items()))


def update(number: int) -> dict[str, Any]:
    return {
        "asset": "hourly",
        "partition_key": f"2010-03-14T{number:02}:00:00",
        "partition_date": f"2010-03-14T{number:02}:00:00+00:00",
        "extra": {"celsius": 7.25, "where": "Se\u00e1ttle", "station": None},
    }


WRITERS: dict[str, Callable[[int], Foreign]] = {
    "SDK, structured": by_the_sdk(to_structured_event),
    "SDK, binary": by_the_sdk(to_binary_event),
    "by hand, structured": structured_by_hand,
    "by hand, binary": binary_by_hand,
}


async def accepted(at: Installed, count: int) -> list[AcceptedEvent]:
    """The accepted events, by id, once there are `count`."""
    found: list[AcceptedEvent] = []

    async def are_there() -> bool:
        found[:] = [
            each
            for record in await read_all(at.kafka, "accepted-events")
            for each in AcceptedBatch.from_bytes(record.value).events
        ]
        return len(found) >= count

    await until_async(are_there, f"{count} accepted events")
    return sorted(found, key=lambda each: int(each.id.removeprefix("e-")))


@pytest.mark.parametrize("writer", WRITERS)
async def test_an_event_of_a_foreign_client_is_accepted_as_written(install: Install, writer: str) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    produce_with_librdkafka(at.kafka, [WRITERS[writer](number) for number in range(10)])
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        found = await accepted(at, 10)
    assert [each.id for each in found] == [f"e-{number}" for number in range(10)]
    for number, each in enumerate(found):
        expected = update(number)
        assert (each.source, each.asset, each.team) == ("/foreign/sdk", "hourly", None)
        assert (each.partition_key, each.extra) == (expected["partition_key"], expected["extra"])
        assert each.partition_date == 1_268_524_800_000_000 + number * 3_600_000_000
    assert not await read_all(at.kafka, "asset-events.rejected")
    assert not await read_all(at.kafka, "audit-log")


async def test_the_two_modes_of_one_event_are_one_event(install: Install) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    produce_with_librdkafka(at.kafka, [writer(1)._replace(key=b"one key") for writer in WRITERS.values()])
    produce_with_librdkafka(at.kafka, [WRITERS["SDK, binary"](2)._replace(key=b"one key")])
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        assert [each.id for each in await accepted(at, 2)] == ["e-1", "e-2"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_events_are_accepted(install: Install, codec: str) -> None:
    if codec != "gzip" and find_spec("cramjam") is None:
        pytest.skip("the package cramjam is not installed")
    at = install()
    records = [binary_by_hand(number) for number in range(20)]
    produce_with_librdkafka(at.kafka, records, **{"compression.type": codec, "linger.ms": "50"})
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        assert len(await accepted(at, 20)) == 20


async def test_events_of_a_transaction_are_accepted_once_it_is_committed(install: Install) -> None:
    at = install()
    open_producer = Producer({"bootstrap.servers": at.kafka, "transactional.id": f"{at.namespace}-aborted"})
    open_producer.init_transactions(30)
    open_producer.begin_transaction()
    never = structured_by_hand(99)
    open_producer.produce(TOPIC, never.value, b"hourly", headers=list(never.headers))
    assert open_producer.flush(30) == 0
    open_producer.abort_transaction(30)
    records = [binary_by_hand(number) for number in range(3)]
    produce_with_librdkafka(at.kafka, records, **{"transactional.id": f"{at.namespace}-committed"})
    produce_with_librdkafka(at.kafka, [binary_by_hand(3)])
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        assert [each.id for each in await accepted(at, 4)] == ["e-0", "e-1", "e-2", "e-3"]
