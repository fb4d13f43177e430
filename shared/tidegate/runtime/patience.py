"""Waiting where aiokafka does not: between empty fetches, and before it connects again to a broker that is away.

Kafka holds an empty fetch back until records come or `fetch_max_wait_ms` has passed. The embedded broker answers at
once, and a consumer that has nothing to read then asks 500 to 1,500 times a second (measured). With a broker that
waits by itself, nothing here ever waits.

A refused connection asks for new metadata, which asks for a connection: while its broker is away, every client of
aiokafka 0.14 keeps a core busy with that and writes hundreds of lines of log a second (measured: ten processes on two
cores held a starting Kafka up for a minute).
"""

import asyncio
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

_PAUSE_S: Final = 0.02
"""A record waits at most this long, half of it on average; some forty questions a second were measured with it."""

_FIRST_RETRY_S: Final = 0.02
_LONGEST_RETRY_S: Final = 1.0
"""As the Java client has it (reconnect.backoff.max.ms)."""

C = TypeVar("C", bound=AIOKafkaConsumer)
K = TypeVar("K", AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient)


def reconnecting_slowly(owner: K) -> K:
    """The same consumer, producer or admin client, which now waits ever longer before it tries a broker again."""
    # aiokafka has no setting or hook for this either.
    client = owner.client if isinstance(owner, AIOKafkaProducer) else owner._client
    if isinstance(owner, AIOKafkaProducer):
        _keep_topics(client)
    connect = client._get_conn
    waits: dict[Any, float] = {}

    async def connect_slowly(node_id: Any, **options: Any) -> Any:
        connection = await connect(node_id, **options)
        if connection is not None:
            waits.pop(node_id, None)
        else:
            wait_s = waits.get(node_id, _FIRST_RETRY_S)
            waits[node_id] = min(2 * wait_s, _LONGEST_RETRY_S)
            await asyncio.sleep(wait_s)
        return connection

    client._get_conn = connect_slowly
    return owner


def _keep_topics(client: Any) -> None:
    """Has a producer go on asking for every topic that it writes to.

    The embedded broker answers the first question, for no topic at all, with every topic there is. aiokafka then
    does not note those that it writes to, and the next question, for a topic that is new, has it forget the others: a
    transaction on both stood for 40 s, until its records expired.
    """
    wait_on_metadata = client._wait_on_metadata

    async def note_and_wait(topic: str) -> Any:
        if topic not in client._topics:
            client.add_topic(topic)
        return await wait_on_metadata(topic)

    client._wait_on_metadata = note_and_wait


def patient(consumer: C) -> C:
    """The same consumer, which now reconnects slowly and pauses a little after an empty answer that came at once."""
    # aiokafka has no setting or hook for this: its fetcher asks again as soon as it has an answer.
    client = reconnecting_slowly(consumer)._client
    send = client.send

    async def send_patiently(node_id: Any, request: Any, **options: Any) -> Any:
        clock = asyncio.get_running_loop().time
        began = clock()
        answer = await send(node_id, request, **options)
        if (
            type(request).__name__.startswith("Fetch")
            and clock() - began < _PAUSE_S
            and not _has_records(answer)
        ):
            await asyncio.sleep(_PAUSE_S)
        return answer

    client.send = send_patiently
    return consumer


def _has_records(answer: Any) -> bool:
    """Whether a fetch gave anything; an error counts too, since the fetcher has to act on it."""
    return any(partition[1] or partition[-1] for _, partitions in answer.topics for partition in partitions)
