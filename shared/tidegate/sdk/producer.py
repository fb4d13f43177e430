"""Publishing asset events: what a data producer's code uses."""

import asyncio
from collections.abc import Generator, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from tidegate.contracts.outgoing import HEADROOM
from tidegate.contracts.topics import ASSET_EVENTS, MAX_EVENT_BYTES
from tidegate.definitions.asset import AssetAlias
from tidegate.runtime.patience import reconnecting_slowly
from tidegate.sdk.errors import KafkaUnreachableError, ProducerStateError, TopicMissingError
from tidegate.sdk.events import AnyAsset, alias_names, asset_name, encode_event, event_id, outgoing_event


class Acknowledged(NamedTuple):
    """Where an event is stored."""

    id: str
    topic: str
    partition: int
    offset: int


class Sent:
    """An event that was handed over for sending; `await` it to wait until Kafka has acknowledged it."""

    __slots__ = ("_future", "id")

    def __init__(self, id: str, future: "asyncio.Future[Any]") -> None:
        self.id = id
        self._future = future

    def __await__(self) -> Generator[Any, None, Acknowledged]:
        stored = yield from asyncio.shield(self._future).__await__()
        return Acknowledged(self.id, stored.topic, stored.partition, stored.offset)


class AssetEventProducer:
    """Publishes asset events, in batches and idempotently (acks=all).

        async with AssetEventProducer("127.0.0.1:9092", "/sensors/seattle") as producer:
            await producer.send("seattle_hourly", partition_key="2010-03-14T01:00:00", extra={"celsius": 7.2})

    `source` says who sends: (source, id) identifies an event, and a repeated one is dropped. Ids are random, unless
    `deterministic_ids`: then they are made from source, asset, aliases, key, date and extra, so that a script that runs
    again adds nothing new. Leaving the block waits for every acknowledgement and raises the first error. `topic` must
    exist.
    """

    def __init__(
        self,
        bootstrap: str,
        source: str,
        *,
        topic: str = ASSET_EVENTS,
        deterministic_ids: bool = False,
        linger_ms: int = 5,
    ) -> None:
        self._bootstrap, self._source, self._topic = bootstrap, source, topic
        self._deterministic, self._linger_ms = deterministic_ids, linger_ms
        self._producer: AIOKafkaProducer | None = None
        self._first_error: BaseException | None = None
        self.acknowledged = 0
        """How many events Kafka has acknowledged since the start."""

    async def start(self) -> None:
        """Connect; raises KafkaUnreachableError, or TopicMissingError where the topic does not exist."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            client_id="tidegate-producer",
            enable_idempotence=True,
            acks="all",
            linger_ms=self._linger_ms,
            max_batch_size=MAX_EVENT_BYTES + HEADROOM,
        )
        try:
            await reconnecting_slowly(producer).start()
            # Listed, since asking some brokers for a topic by name creates it with their own settings.
            if self._topic not in (await producer.client.fetch_all_metadata()).topics():
                raise TopicMissingError(
                    f"topic {self._topic!r} does not exist on {self._bootstrap}: run `tidegate topics create` first"
                )
        except BaseException as error:
            await producer.stop()
            if isinstance(error, KafkaConnectionError):
                raise KafkaUnreachableError(f"no Kafka answers at {self._bootstrap}: {error}") from error
            raise
        self._producer = producer

    async def stop(self) -> None:
        """Send what is waiting and disconnect; errors are left to `flush`."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.stop()

    async def send(
        self,
        asset: AnyAsset,
        *,
        aliases: Iterable[AssetAlias | str] = (),
        partition_key: str | None = None,
        partition_date: datetime | str | None = None,
        extra: Mapping[str, Any] | None = None,
        id: str | None = None,
        time: datetime | None = None,
    ) -> Sent:
        """Hand one event over; waits for room in the batch, not for the acknowledgement.

        `asset` may also be a reference, as `Asset.ref(uri=...)` for an asset that is defined elsewhere.
        Raises InvalidEventError at once for what could never be accepted: a bad key (D12), data that is no JSON, more
        than 256 KiB (D27). `aliases` stood for the asset in this update: who waits for one of them gets the event too
        (D13). `time` is when it happened, by default now.
        """
        if self._producer is None:
            raise ProducerStateError("the producer is not running: use `async with AssetEventProducer(...)`")
        name, through = asset_name(asset), alias_names(aliases)
        if id is None:
            id = self._id(name, through, partition_key, partition_date, extra)
        value = encode_event(
            self._source,
            asset,
            id=id,
            aliases=through,
            partition_key=partition_key,
            partition_date=partition_date,
            extra=extra,
            time=time or datetime.now(UTC),
        )
        # Counted for every event: the topic is public and may grow.
        partitions = len(await self._producer.partitions_for(self._topic))
        record = outgoing_event(self._topic, partitions, name, value)
        future = await self._producer.send(
            record.topic, record.value, record.key, record.partition, headers=list(record.headers)
        )
        future.add_done_callback(self._note)
        return Sent(id, future)

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged; raises the first error since the last flush."""
        if self._producer is not None:
            await self._producer.flush()
            await asyncio.sleep(
                0
            )  # the callbacks of the last acknowledgements run in the next turn of the loop
        if self._first_error is not None:
            error, self._first_error = self._first_error, None
            raise error

    def _id(
        self,
        asset: str,
        aliases: list[str],
        key: str | None,
        date: datetime | str | None,
        extra: Mapping[str, Any] | None,
    ) -> str:
        if not self._deterministic:
            return str(uuid4())
        at = date.astimezone(UTC).isoformat() if isinstance(date, datetime) and date.tzinfo else date
        through = [sorted(aliases)] if aliases else []
        return event_id(self._source, asset, key, at, dict(extra) if extra else None, *through)

    def _note(self, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is None:
            self.acknowledged += 1
        elif self._first_error is None:
            self._first_error = error

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.stop()
