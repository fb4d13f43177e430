"""Gaps in a log: a partition stays unread until a person accepts that its records are lost (rule E2)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import time

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.core.audit import AuditKind
from tidegate.runtime.consumer import BatchConsumer
from tidegate.runtime.positions import Gap, Position
from tidegate.runtime.producer import acknowledged_producer, audit_record, send_all
from tidegate.runtime.settings import Settings

log = structlog.get_logger()

ACCEPTANCE_TTL_S = 3600
"""An acceptance is a person's word about the gap that is there now: unused, it must not meet a later gap."""


def acceptance_key(namespace: str, group: str, tp: TopicPartition) -> str:
    return f"{namespace}:accept-gap:{group}:{tp.topic}/{tp.partition}"


async def accept_gap(redis: Redis, namespace: str, group: str, tp: TopicPartition, beginning: int) -> None:
    """Let `group` read `tp` from `beginning`, the first offset that its log holds, whatever was lost before it."""
    await redis.set(acceptance_key(namespace, group, tp), beginning, ex=ACCEPTANCE_TTL_S)


async def is_accepted(redis: Redis, namespace: str, group: str, tp: TopicPartition, gap: Gap) -> bool:
    """Whether a person accepted this gap; one that has grown since must be accepted again."""
    return bool(await redis.get(acceptance_key(namespace, group, tp)) == str(gap.beginning))


async def pass_accepted_gaps(
    consumer: BatchConsumer,
    redis: Redis,
    settings: Settings,
    group: str,
    gaps: Mapping[TopicPartition, tuple[Gap, Position]],
    leave: Callable[[TopicPartition, Position], Awaitable[bool]] | None = None,
) -> dict[TopicPartition, Position]:
    """Audit every gap once, and move the group past those that a person accepted: returns their new positions.

    `leave` does what is left to do at the position before a gap that was accepted; the gap stays where it says False.

    The order is audit entry, committed offset, acceptance used up: a crash in between repeats but never skips. What
    was known of other sources is kept; a log that began anew gets the next incarnation.
    """
    if not gaps:
        return {}
    passed: dict[TopicPartition, Position] = {}
    async with acknowledged_producer(settings.kafka, f"{group}-gaps") as producer:
        for tp, (gap, before) in gaps.items():
            if consumer.gaps.get(tp) != gap.reason:
                await _audit(producer, settings, group, tp, gap, before, accepted=False)
            if not await is_accepted(redis, settings.namespace, group, tp, gap):
                continue
            if leave is not None and not await leave(tp, before):
                continue
            after = replace(
                before, offset=gap.beginning, at=0, incarnation=before.incarnation + gap.recreated
            )
            await _audit(producer, settings, group, tp, gap, before, accepted=True)
            if await consumer.commit({tp: after}):
                await redis.delete(acceptance_key(settings.namespace, group, tp))
                passed[tp] = after
    return passed


async def is_passed(
    redis: Redis,
    settings: Settings,
    group: str,
    tp: TopicPartition,
    gap: Gap,
    known_up_to: int,
    *,
    is_told: bool,
) -> bool:
    """Whether a person accepted a gap in a log of which `group` commits no offsets; the acceptance is then used up.

    The log was read up to offset `known_up_to`. The gap is audited unless it `is_told`, and so is that it was accepted;
    the caller then begins anew with what it made of the log.
    """
    before = Position(known_up_to)
    async with acknowledged_producer(settings.kafka, f"{group}-gaps") as producer:
        if not is_told:
            await _audit(producer, settings, group, tp, gap, before, accepted=False)
        if not await is_accepted(redis, settings.namespace, group, tp, gap):
            return False
        await _audit(producer, settings, group, tp, gap, before, accepted=True)
    await redis.delete(acceptance_key(settings.namespace, group, tp))
    return True


async def _audit(
    producer: AIOKafkaProducer,
    settings: Settings,
    group: str,
    tp: TopicPartition,
    gap: Gap,
    before: Position,
    *,
    accepted: bool,
) -> None:
    where = f"{tp.topic}/{tp.partition}@{before.offset}"
    verdict = (
        f"accepted by a person, reading goes on at {gap.beginning}" if accepted else "not read until accepted"
    )
    service = group.removeprefix(f"{settings.namespace}-")
    entry = AuditEntry(
        id=audit_id(AuditKind.LOG_GAP, group, where, before.at, gap.beginning, accepted),
        kind=AuditKind.LOG_GAP,
        service=service,
        at=before.at or int(time() * 1000),
        message=f"{gap.reason}; {verdict}",
        position=where,
        details={"group": group, "beginning": gap.beginning, "accepted": accepted},
    )
    await send_all(producer, [audit_record(entry)])
    log.warning("log_gap_audited", group=group, position=where, accepted=accepted, reason=gap.reason)
