"""Creating topics and holding them against their declarations (rule E3)."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from tidegate.contracts.definitions import Installation
from tidegate.contracts.topics import MIB, Topic, declared_topics
from tidegate.core.errors import TidegateError
from tidegate.runtime.patience import reconnecting_slowly


class TopicMismatchError(TidegateError, RuntimeError):
    """Topics are missing or not what they are declared to be."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One way in which the broker differs from the declaration."""

    topic: str
    what: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.found}, wanted {self.wanted}"


@asynccontextmanager
async def admin_client(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap, client_id="tidegate-admin", request_timeout_ms=15_000
    )
    await reconnecting_slowly(admin).start()
    try:
        yield admin
    finally:
        await admin.close()


async def create_topics(
    admin: AIOKafkaAdminClient, topics: Sequence[Topic], replication: int = 1
) -> list[str]:
    """Create the topics that are missing; returns their names. Existing ones are left as they are."""
    existing = set(await admin.list_topics())
    missing = [topic for topic in topics if topic.name not in existing]
    if not missing:
        return []
    response = await admin.create_topics(
        [NewTopic(topic.name, topic.partitions, replication, topic_configs=topic.config) for topic in missing]
    )
    for name, code, *message in response.topic_errors:
        if code and for_code(code) is not TopicAlreadyExistsError:
            raise TidegateError(
                f"topic {name!r} could not be created: {for_code(code).__name__} {message or ''}"
            )
    return [topic.name for topic in missing]


async def check_topics(admin: AIOKafkaAdminClient, topics: Sequence[Topic]) -> list[Mismatch]:
    """Every way in which the broker's topics differ from `topics`.

    Existence is checked by listing: asking for a missing topic by name creates it on some brokers.
    """
    existing = set(await admin.list_topics())
    found = [
        Mismatch(topic.name, "topic", "present", "missing") for topic in topics if topic.name not in existing
    ]
    present = [topic for topic in topics if topic.name in existing]
    if not present:
        return found
    described = {
        each["topic"]: each for each in await admin.describe_topics()
    }  # all: naming one may create it
    configs = await _configs(admin, [topic.name for topic in present])
    for topic in present:
        count = len(described[topic.name]["partitions"])
        if (topic.fixed and count != topic.partitions) or count < 1:
            found.append(Mismatch(topic.name, "partition count", str(topic.partitions), str(count)))
        for name in ("cleanup.policy", "message.timestamp.type"):
            actual = configs.get(topic.name, {}).get(name)
            if actual is not None and actual != topic.config[name]:
                found.append(Mismatch(topic.name, name, topic.config[name], actual))
        size = configs.get(topic.name, {}).get("max.message.bytes")
        if size is not None and int(size) < topic.max_message_bytes:
            found.append(
                Mismatch(topic.name, "max.message.bytes", f"at least {topic.max_message_bytes}", size)
            )
    return found


async def check_installation(
    admin: AIOKafkaAdminClient, installation: Installation, more: Sequence[Topic] = ()
) -> None:
    """Raises TopicMismatchError unless every declared topic, and `more`, is there as the installation needs it."""
    if found := await check_topics(admin, [*declared_topics(installation.partitions), *more]):
        raise TopicMismatchError("; ".join(map(str, found)))


async def message_limits(admin: AIOKafkaAdminClient, names: Collection[str]) -> dict[str, int]:
    """`max.message.bytes` of those of `names` that exist."""
    existing = set(names) & set(await admin.list_topics())
    configs = await _configs(admin, existing)
    return {name: int(configs[name].get("max.message.bytes", MIB)) for name in existing if name in configs}


async def _configs(admin: AIOKafkaAdminClient, names: Collection[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    configs: dict[str, dict[str, str]] = {}
    if not resources:
        return configs
    for response in await admin.describe_configs(resources):
        for _code, _message, _kind, name, entries in response.resources:
            configs[name] = {entry[0]: entry[1] for entry in entries}
    return configs
