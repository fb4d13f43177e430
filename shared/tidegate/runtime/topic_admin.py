"""Creating topics and holding them against their declarations (rule E3)."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from tidegate.contracts.topics import (
    ASSET_EVENTS,
    DEFINITIONS,
    MIB,
    REJECTED,
    RUN_COMMANDS_PREFIX,
    Topic,
)
from tidegate.core.errors import TidegateError
from tidegate.runtime.patience import reconnecting_slowly


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


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as the broker describes it."""

    partitions: int
    replication: int = 1
    """Copies of the partition that has the fewest."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Its settings, without those that the broker does not tell."""

    def milliseconds(self, name: str) -> int | None:
        """A setting that is a time; None where it is not told, or means for ever."""
        value = int(self.config.get(name, -1))
        return value if value >= 0 else None


async def found_topics(admin: AIOKafkaAdminClient, names: Collection[str]) -> dict[str, FoundTopic]:
    """Those of `names` that exist, as they are.

    Found by listing, and described with all others: asking for a missing topic by name creates it on some brokers.
    """
    present = set(names) & set(await admin.list_topics())
    if not present:
        return {}
    described = {each["topic"]: each["partitions"] for each in await admin.describe_topics()}
    configs = await _configs(admin, present)
    return {
        name: FoundTopic(
            len(described[name]),
            min((len(each["replicas"]) for each in described[name]), default=1),
            configs.get(name, {}),
        )
        for name in sorted(present & described.keys())
    }


def differences(found: Mapping[str, FoundTopic], topics: Sequence[Topic]) -> list[Mismatch]:
    """Every way in which the broker's topics differ from `topics`; what the broker does not tell is passed over.

    Public topics may have more partitions than declared and never fewer, but for those of commands, which may be of the
    job's own making. Where `definitions` has several copies, the other topics of ours need as many.
    """
    copies = found[DEFINITIONS].replication if DEFINITIONS in found else 1
    odd: list[Mismatch] = []
    for topic in topics:
        there = found.get(topic.name)
        if there is None:
            odd.append(Mismatch(topic.name, "topic", f"present: {_maker(topic)} makes it", "missing"))
            continue
        count, fewest = there.partitions, 1 if topic.is_jobs_own else topic.partitions
        if count < fewest or (topic.fixed and count != fewest):
            wanted = str(fewest) if topic.fixed else f"at least {fewest}"
            odd.append(Mismatch(topic.name, "partition count", wanted, str(count)))
        if there.replication < copies and not topic.is_jobs_own:
            wanted = f"at least {copies}, as `{DEFINITIONS}` has"
            odd.append(Mismatch(topic.name, "replication factor", wanted, str(there.replication)))
        for name in ("cleanup.policy", "message.timestamp.type"):
            actual = there.config.get(name)
            if actual is not None and actual != topic.config[name]:
                odd.append(Mismatch(topic.name, name, topic.config[name], actual))
        size = there.config.get("max.message.bytes")
        if size is not None and int(size) < topic.max_message_bytes:
            odd.append(Mismatch(topic.name, "max.message.bytes", f"at least {topic.max_message_bytes}", size))
    return odd


def _maker(topic: Topic) -> str:
    """The command that creates a topic."""
    if topic.is_jobs_own or topic.name.startswith(RUN_COMMANDS_PREFIX):
        return "`tidegate apply`"
    team = topic.name.removeprefix(f"{ASSET_EVENTS}.")
    is_teams = team != topic.name and topic.name != REJECTED
    return f"`tidegate topics create --team {team}`" if is_teams else "`tidegate topics create`"


async def check_topics(admin: AIOKafkaAdminClient, topics: Sequence[Topic]) -> list[Mismatch]:
    """Every way in which the broker's topics differ from `topics`."""
    return differences(await found_topics(admin, {topic.name for topic in topics} | {DEFINITIONS}), topics)


async def broker_settings(admin: AIOKafkaAdminClient) -> dict[str, str]:
    """The settings of one broker; brokers tell all of them, a few or none."""
    brokers = (await admin.describe_cluster())["brokers"]
    resources = [ConfigResource(ConfigResourceType.BROKER, str(brokers[0]["node_id"]))]
    return {
        entry[0]: entry[1]
        for response in await admin.describe_configs(resources)
        for *_, entries in response.resources
        for entry in entries
    }


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
