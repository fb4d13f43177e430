"""`tidegate fire`, `discard` and `withdraw`: what a person does to an open round."""

import asyncio
from typing import Annotated, Literal

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS,
    ByOption,
    JobArgument,
    KafkaOption,
    KeyArgument,
    NamespaceOption,
    RedisOption,
    person,
    round_key,
)
from tidegate.runtime.acting import Written
from tidegate.runtime.acting_on_rounds import act
from tidegate.runtime.redis import connect_redis


def fire(
    job: JobArgument,
    key: KeyArgument,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Start the run of JOB and KEY now, with what is there."""
    _act("fire", job, key, by, kafka, redis, namespace)


def discard(
    job: JobArgument,
    key: KeyArgument,
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Forget what has arrived for JOB and KEY; later events begin a round of their own."""
    _act("discard", job, key, by, kafka, redis, namespace)


def withdraw(
    job: JobArgument,
    key: KeyArgument,
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="Id of the event to withdraw.")],
    by: ByOption = "",
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Take one event out of the open round of JOB and KEY; a new event of its member counts again."""
    _act("withdraw", job, key, by, kafka, redis, namespace, event_id)


def _act(
    kind: Literal["fire", "discard", "withdraw"],
    job: str,
    key: str,
    by: str,
    kafka: str,
    redis_url: str,
    namespace: str,
    event_id: str | None = None,
) -> None:
    async def acted() -> Written:
        async with connect_redis(redis_url) as redis:
            return await act(
                *(kafka, redis, namespace, kind, job, round_key(key)),
                by=person(by),
                event_id=event_id,
            )

    done = asyncio.run(acted())
    typer.echo(f"{kind} {job} {key}: {done.state}; `tidegate audit --job {job}` tells what came of it")
