"""Making a Kafka ready for Tidegate: the topics, and the one record of the counts that state depends on (E3)."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient

from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.contracts.topics import (
    DEFINITIONS,
    Topic,
    declared_topics,
    run_commands_topic,
    team_events_topic,
)
from tidegate.core.errors import TidegateError
from tidegate.runtime.definitions_log import DefinitionsLog, definitions_log
from tidegate.runtime.topic_admin import Mismatch, admin_client, check_topics, create_topics

_LISTED_DEADLINE_S = 30.0
_ID = INSTALLATION_KEY.partition(":")[2]


class InstallationMismatchError(TidegateError, RuntimeError):
    """Other counts were asked for than the ones that state already depends on."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What `install` found or made."""

    installation: Installation
    created: tuple[str, ...]
    """Topics that were missing."""
    is_new: bool


async def install(
    bootstrap: str,
    wanted: Installation,
    replication: int = 1,
    *,
    multi_team: bool | None = None,
    teams: Sequence[str] = (),
) -> Installed:
    """Create the topics that are missing, and record the installation where there is none.

    `multi_team` switches the filters of teams, also of an installation that is there; None leaves them as recorded,
    and as `wanted` says where nothing is. Each of `teams` gets a topic for its events. Raises
    InstallationMismatchError where an installation is recorded with other counts; nothing is created then.
    """
    if multi_team is not None:
        wanted = wanted.model_copy(update={"multi_team": multi_team})
    async with admin_client(bootstrap) as admin:
        if DEFINITIONS in await admin.list_topics():
            async with definitions_log(bootstrap) as log:
                _compare(log.installation, wanted)
        topics = [*declared_topics(wanted.partitions), *_of_teams(teams, wanted.partitions)]
        created = await create_and_wait(admin, topics, replication)
    async with definitions_log(bootstrap) as log:
        there = log.of_kind("installation").get(_ID)
        if there is None or (multi_team is not None and log.installed().multi_team is not multi_team):
            incarnation = secrets.token_hex(4) if there is None else there.record.incarnation
            body = wanted.model_dump()
            await log.publish(
                [DefinitionRecord(kind="installation", id=_ID, incarnation=incarnation, body=body)]
            )
        _compare(log.installation, wanted)  # another may have been quicker
        return Installed(log.installed(), tuple(created), is_new=there is None)


async def create_and_wait(admin: AIOKafkaAdminClient, topics: Sequence[Topic], replication: int) -> list[str]:
    """Create what is missing and return once the broker lists it, which it may do a moment later."""
    created = await create_topics(admin, topics, replication)
    async with asyncio.timeout(_LISTED_DEADLINE_S):
        while created and not set(created) <= set(await admin.list_topics()):
            await asyncio.sleep(0.05)
    return created


async def mismatches(bootstrap: str, teams: Sequence[str] = ()) -> tuple[Installation, list[Mismatch]]:
    """How the broker differs from the declarations, with the topics of every job's run commands and of `teams`."""
    async with definitions_log(bootstrap) as log, admin_client(bootstrap) as admin:
        installation = log.installed()
        count = installation.partitions
        topics = [*declared_topics(count), *_of_teams(teams, count), *command_topics(log, count)]
        return installation, await check_topics(admin, topics)


def _of_teams(teams: Sequence[str], partitions: int) -> list[Topic]:
    return [team_events_topic(team, partitions) for team in teams]


def command_topics(log: DefinitionsLog, partitions: int) -> Sequence[Topic]:
    """The run-commands topic of every job that is defined."""
    found = {}
    for job, stored in log.of_kind("job").items():
        name = stored.record.body.get("run_commands_topic")
        topic = run_commands_topic(job, partitions, name if isinstance(name, str) else None)
        found[topic.name] = topic
    return [found[name] for name in sorted(found)]


async def partition_counts(admin: AIOKafkaAdminClient) -> dict[str, int]:
    """How many partitions every topic has; all are described, since naming one may create it."""
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}


async def replication_of(admin: AIOKafkaAdminClient) -> int:
    """How many copies the installation's topics have; new ones get as many."""
    for topic in await admin.describe_topics():  # all: naming one may create it
        if topic["topic"] == DEFINITIONS:
            return len(topic["partitions"][0]["replicas"])
    return 1


def _compare(recorded: Installation | None, wanted: Installation) -> None:
    if recorded is None:
        return
    if (recorded.partitions, recorded.shards) != (wanted.partitions, wanted.shards):
        raise InstallationMismatchError(
            f"this Kafka is installed with {recorded.partitions} partitions and {recorded.shards} shards, which"
            f" state depends on: {wanted.partitions} and {wanted.shards} cannot take their place"
        )
