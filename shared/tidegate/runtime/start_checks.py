"""What must hold before a service reads: the topics, what Redis is and what state it holds.

First everything is looked up, then held against what is wanted by functions without I/O. What loses or doubles work
keeps a service from becoming ready, until it is mended; what may do so one day is a warning in its log, in
`tidegate topics check` and in `tidegate apply`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import structlog
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis

from tidegate.contracts.definitions import Installation
from tidegate.contracts.placement import contributions_partition
from tidegate.contracts.redis_keys import installation_key
from tidegate.contracts.topics import (
    ACCEPTED,
    ASSET_EVENTS,
    CONTRIBUTIONS,
    DEFINITIONS,
    REJECTED,
    RUN_EVENTS,
    RUN_REQUESTS,
    Topic,
    declared_topics,
)
from tidegate.core.errors import TidegateError
from tidegate.core.mappers import RollupMapper
from tidegate.core.windows import Window
from tidegate.core.windows.base import UTC_ZONE, CalendarWindow
from tidegate.definitions import Job
from tidegate.definitions.routes import JobRoutes
from tidegate.runtime.definitions_view import DefinitionsView
from tidegate.runtime.installing import partition_counts
from tidegate.runtime.positions import most_metadata, source_of
from tidegate.runtime.redis import Memory, memory_of
from tidegate.runtime.settings import Settings
from tidegate.runtime.topic_admin import FoundTopic, broker_settings, differences, found_topics

log = structlog.get_logger()

_GROUPS_READ: Final = (ASSET_EVENTS, ACCEPTED, CONTRIBUTIONS, RUN_REQUESTS, RUN_EVENTS)


_METADATA_BYTES: Final = 4_096
"""What brokers allow beside a committed offset unless they are told otherwise."""

_INCARNATION: Final = 9
"""Logs that began anew have longer names; more often than this none does."""


class NotFitError(TidegateError, RuntimeError):
    """Kafka or Redis is set up in a way that loses or doubles work."""


async def check_installation(
    settings: Settings,
    view: DefinitionsView,
    admin: AIOKafkaAdminClient,
    redis: Redis,
    more: Sequence[Topic] = (),
) -> None:
    """Raises NotFitError with everything that is not as a service needs it; logs what may go wrong one day.

    `more` are topics beside the declared ones.
    """
    assert view.installation is not None
    topics = [*declared_topics(view.installation.partitions), *more]
    found = await found_topics(admin, [topic.name for topic in topics])
    memory, broker = await memory_of(redis), await broker_settings(admin)
    wrong = [str(each) for each in differences(found, topics)]
    wrong += metadata_problems(view.installation, await partition_counts(admin), broker)
    wrong += memory_problems(memory, trust=settings.trust_redis_policy)
    if not wrong:  # a Redis that evicts, or is full, is not written to
        made_by = MadeBy.of(view.installation, view.incarnation)
        wrong += state_problems(await _first_made_by(redis, settings.namespace, made_by), made_by)
    if wrong:
        raise NotFitError("; ".join(wrong))
    if unknown := [each.node or "Redis" for each in memory if each.policy is None]:
        log.warning("redis_policy_unchecked", nodes=unknown, trusted=True)
    jobs = [each.job for each in view.jobs().values()]
    horizon = timedelta(seconds=settings.dedupe_horizon_s)
    for warning in retention_warnings(found, broker, longest_wait(jobs), horizon):
        log.warning("retention_too_short", warning=warning)


def memory_problems(memory: Iterable[Memory], *, trust: bool = False) -> list[str]:
    """Why state would be lost in these servers, or cannot be written (B125).

    `trust` is a person's word for servers that do not tell their policy.
    """
    wrong = []
    for each in memory:
        server = f"Redis {each.node}".rstrip()
        if each.policy is None and not trust:
            wrong.append(
                f"{server} tells its maxmemory-policy neither by INFO nor by CONFIG, which it refuses: see to it that"
                " it is noeviction, then set TIDEGATE_TRUST_REDIS_POLICY=true"
            )
        elif each.policy not in (None, "noeviction"):
            wrong.append(
                f"{server} has maxmemory-policy {each.policy!r}, which drops pending work under memory pressure: run"
                " CONFIG SET maxmemory-policy noeviction, and set it in its configuration"
            )
        if each.limit and each.used >= each.limit:
            wrong.append(
                f"{server} is full, it uses {each.used} of {each.limit} bytes (maxmemory), so that nothing can be"
                " written: give it more memory"
            )
    return wrong


def metadata_problems(
    installation: Installation, partitions: Mapping[str, int], broker: Mapping[str, str]
) -> list[str]:
    """Why some commits could never succeed: what E1 needs travels in the metadata of offsets, which brokers limit (I1).

    `partitions` says by topic how many there are. The mapper keeps coordinates of every partition that events come by,
    the dispatcher of every shard.
    """
    limit = int(broker.get("offset.metadata.max.bytes", _METADATA_BYTES))
    events = [
        source_of(TopicPartition(topic, number), _INCARNATION)
        for topic, count in partitions.items()
        if topic == ASSET_EVENTS or (topic.startswith(f"{ASSET_EVENTS}.") and topic != REJECTED)
        for number in range(count)
    ]
    shards = []
    for shard in range(installation.shards):
        partition = contributions_partition(shard, installation.partitions)
        shards.append(f"{source_of(TopicPartition(CONTRIBUTIONS, partition), _INCARNATION)}#{shard}")
    wrong = []
    for what, sources, with_ordinals in (
        (f"partitions of `{ASSET_EVENTS}` and its teams' topics", events, False),
        ("shards", shards, True),
    ):
        needed = most_metadata(sources, with_ordinals=with_ordinals)
        if needed > limit:
            wrong.append(
                f"there are {len(sources)} {what}, and where each was read to takes up to {needed} bytes beside a"
                f" committed offset, of which the brokers allow {limit}: set their offset.metadata.max.bytes to"
                f" {-(-needed // 1024) * 1024} or more (the usual {_METADATA_BYTES} do for about 400 partitions)"
            )
    return wrong


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The installation that state in Redis was made by: its keys depend on the counts, its revisions on the log."""

    partitions: int
    shards: int
    incarnation: str

    @classmethod
    def of(cls, installation: Installation, incarnation: str) -> "MadeBy":
        return cls(installation.partitions, installation.shards, incarnation)

    @classmethod
    def from_text(cls, text: str) -> "MadeBy":
        partitions, shards, incarnation = text.split(" ", 2)
        return cls(int(partitions), int(shards), incarnation)

    def __str__(self) -> str:
        return f"{self.partitions} {self.shards} {self.incarnation}"


def state_problems(state: MadeBy, now: MadeBy) -> list[str]:
    """Why state that one installation made must not be used by another (E3)."""
    if state == now:
        return []
    if (state.partitions, state.shards) != (now.partitions, now.shards):
        why = (
            f"with {state.partitions} partitions and {state.shards} shards, the installation says {now.partitions}"
            f" and {now.shards}"
        )
    else:
        why = f"before `{DEFINITIONS}` was created again, so that revisions count anew"
    return [
        f"Redis holds state that was made {why}: bring that installation back, or give this one a namespace of its own"
        " (TIDEGATE_NAMESPACE)"
    ]


async def _first_made_by(redis: Redis, namespace: str, made_by: MadeBy) -> MadeBy:
    """What made the state that is there; it is `made_by` where nothing did yet."""
    noted = await redis.set(installation_key(namespace), str(made_by), nx=True, get=True)
    return made_by if noted is None else MadeBy.from_text(str(noted))


@dataclass(frozen=True, slots=True)
class LongestWait:
    """The job whose rounds are open for longest, as far as windows tell."""

    job: str
    wait: timedelta


def longest_wait(jobs: Iterable[Job]) -> LongestWait | None:
    """How long the longest window of `jobs` is, or waits; None where none has a length.

    A window of texts has none: its round is open until it is satisfied, or its deadline comes.
    """
    waits = (
        LongestWait(job.id, wait)
        for job in jobs
        for route in JobRoutes(job).routes
        if isinstance(route.mapper, RollupMapper) and (wait := _wait(route.mapper)) is not None
    )
    return max(waits, key=lambda each: each.wait, default=None)


def _wait(mapper: RollupMapper) -> timedelta | None:
    deadline = mapper.wait_policy.deadline
    length = _length(mapper.window, getattr(mapper.upstream_mapper, "zone", UTC_ZONE))
    if length is None:
        return deadline.after if deadline is not None and deadline.since == "first_member" else None
    return length + deadline.after if deadline is not None and deadline.since == "window_end" else length


def _length(window: Window, zone: ZoneInfo) -> timedelta | None:
    """From the start of the first member to the end of the last, of the longest window in a leap year."""
    if not isinstance(window, CalendarWindow):
        return None
    lengths = []
    for month in range(1, 13):
        members = window.members(window.period.floor(datetime(2024, month, 15, tzinfo=UTC), zone), zone)
        if members:
            lengths.append(window.member_period.next(members[-1], zone) - members[0])
    return max(lengths, default=None)


def retention_warnings(
    topics: Mapping[str, FoundTopic],
    broker: Mapping[str, str],
    longest: LongestWait | None,
    horizon: timedelta,
) -> list[str]:
    """What lies in the way of rebuilding state from the logs, now or after a rest (R2, R3, I3).

    What the broker does not tell is passed over: the embedded one tells no `offsets.retention.minutes`.
    """
    warnings = []
    if (contributions := topics.get(CONTRIBUTIONS)) is not None:
        kept = contributions.milliseconds("retention.ms")
        reach = horizon + (longest.wait if longest else timedelta(0))
        if kept is not None and timedelta(milliseconds=kept) < reach:
            of_job = f" the {_days(longest.wait)} of job {longest.job!r} and" if longest else ""
            warnings.append(
                f"topic {CONTRIBUTIONS!r} keeps records for {_days(timedelta(milliseconds=kept))}, less than{of_job}"
                f" the horizon of {_days(horizon)}: state that Redis loses could not be built again in full. Set its"
                f" retention.ms to {int(reach.total_seconds() * 1000)} or more"
            )
        if int(contributions.config.get("retention.bytes", -1)) >= 0:
            warnings.append(
                f"topic {CONTRIBUTIONS!r} has retention.bytes {contributions.config['retention.bytes']}, which may drop"
                " records before their time: set it to -1"
            )
    kept_for = [
        topics[name].milliseconds("retention.ms")
        for name in _GROUPS_READ
        if name in topics and "retention.ms" in topics[name].config
    ]
    if kept_for and "offsets.retention.minutes" in broker:
        offsets = timedelta(minutes=int(broker["offsets.retention.minutes"]))
        longest_log = None if None in kept_for else timedelta(milliseconds=max(filter(None, kept_for)))
        if longest_log is None or offsets < longest_log:
            logs = "for ever" if longest_log is None else f"for {_days(longest_log)}"
            warnings.append(
                f"Kafka keeps the offsets of a group that rests for {_days(offsets)}, and logs {logs}: services that"
                " rest longer lose their place. Set offsets.retention.minutes of the brokers higher"
            )
    if (definitions := topics.get(DEFINITIONS)) is not None:
        lag = definitions.milliseconds("min.compaction.lag.ms")
        needed = [
            topics[name].milliseconds("retention.ms") for name in (ACCEPTED, CONTRIBUTIONS) if name in topics
        ]
        longest_read = max(filter(None, needed), default=None)
        if lag is not None and longest_read is not None and lag < longest_read:
            warnings.append(
                f"topic {DEFINITIONS!r} may drop old values after {_days(timedelta(milliseconds=lag))}, before the"
                f" events that need them: set its min.compaction.lag.ms to {longest_read}"
            )
    return warnings


def _days(time: timedelta) -> str:
    days = time / timedelta(days=1)
    return f"{days:g} days" if days >= 1 else str(time)
