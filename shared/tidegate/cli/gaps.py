"""`tidegate accept-gap`: let a service read on where records were lost before it had read them."""

import asyncio
from typing import Annotated

import typer
from aiokafka import TopicPartition

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS,
    KafkaOption,
    NamespaceOption,
    RedisOption,
)
from tidegate.runtime.gaps import ACCEPTANCE_TTL_S, accept_gap
from tidegate.runtime.installing import partition_counts
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.topic_admin import admin_client
from tidegate.sdk.errors import TopicMissingError


def accept(
    group: Annotated[
        str, typer.Argument(help="Consumer group, such as tidegate-mapper, or the service's name alone.")
    ],
    topic: Annotated[str, typer.Argument()],
    partition: Annotated[int, typer.Argument(min=0)],
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Accept that what GROUP had not read of TOPIC/PARTITION before the log's present beginning is lost."""
    name = group if group.startswith(f"{namespace}-") else f"{namespace}-{group}"
    beginning = asyncio.run(_accept(kafka, redis, namespace, name, topic, partition))
    typer.echo(
        f"accepted: {name} may read {topic}/{partition} from offset {beginning};"
        f" used at its next look, or void in {ACCEPTANCE_TTL_S // 60} minutes"
    )


async def _accept(kafka: str, redis_url: str, namespace: str, group: str, topic: str, partition: int) -> int:
    async with admin_client(kafka) as admin:
        if partition >= (await partition_counts(admin)).get(topic, 0):
            raise TopicMissingError(f"there is no partition {partition} of a topic {topic!r} on {kafka}")
    tp = TopicPartition(topic, partition)
    async with log_consumer(kafka, "tidegate-gaps") as consumer:
        beginning = int((await consumer.beginning_offsets([tp]))[tp])
    async with connect_redis(redis_url) as redis:
        await accept_gap(redis, namespace, group, tp, beginning)
    return beginning
