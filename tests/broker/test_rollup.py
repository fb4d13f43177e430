"""rollup as a process: rounds are a fold of one log, whatever becomes of Redis or of the owner (docs/rules.md R)."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from redis.asyncio import Redis

from tests.broker.conftest import Install, Installed, delete_topics, read_all, send, until_async
from tests.broker.copies import copy_keys, put_back
from tests.broker.events import audit
from tests.servers.services import ServiceProcess
from tidegate.contracts.contributions import Contribution, ContributionBatch, JobRef, MemberEvent
from tidegate.contracts.placement import contributions_partition, partition_of, shard_of
from tidegate.contracts.runs import RunRequest, RunRequestBatch
from tidegate.contracts.topics import CONTRIBUTIONS, RUN_REQUESTS, declared_topics
from tidegate.runtime.gaps import accept_gap
from tidegate.runtime.positions import Position, committed_positions
from tidegate.runtime.topic_admin import admin_client, create_topics

JOB, ASSET = "daily", "hourly"
PARTITIONS, SHARDS, MEMBERS = 2, 4, 3
REF = JobRef(JOB, "test", 1, (0,), (ASSET,), ((0,),))
AGAIN = REF._replace(incarnation="again", rerun_policy="refire")
WHOLE = JobRef(JOB, "whole", 1, (), (ASSET, "other"), ((0, 1),))
"""A job without partitions; the members of its events are its assets."""

pytestmark = pytest.mark.timeout(180)

on_real_servers = pytest.mark.parametrize("backend", ["real"], indirect=True)

Event = tuple[str, int]
"""A downstream key and the index of the member that has come."""


@pytest.fixture
def at(install: Install) -> Installed:
    return install(partitions=PARTITIONS, shards=SHARDS)


def days(first: int, count: int) -> list[str]:
    return [f"day-{number}" for number in range(first, first + count)]


def members(keys: Iterable[str], *which: int) -> list[Event]:
    return [(key, member) for member in which or range(MEMBERS) for key in keys]


def shard(key: str) -> int:
    return shard_of(JOB, key, SHARDS)


def partition(key: str) -> int:
    return contributions_partition(shard(key), PARTITIONS)


class Log:
    """Writes contributions as the mapper would, with coordinates that rise on every partition."""

    def __init__(self, at: Installed) -> None:
        self._at = at
        self._next = 0

    async def add(self, events: Sequence[Event], ref: JobRef = REF, more: str = "") -> None:
        """One record for every partition concerned; `more` tells events apart that stand for one member."""
        records = []
        for number in range(PARTITIONS):
            mine = [(key, member) for key, member in events if partition(key) == number]
            if mine:
                records.append((CONTRIBUTIONS, number, None, self._batch(mine, ref, more).to_bytes()))
        await send(self._at.kafka, records)

    def _batch(self, events: Sequence[Event], ref: JobRef, more: str) -> ContributionBatch:
        happened, entries = [], []
        for index, (key, member) in enumerate(events):
            self._next += 1
            id = f"{key}-{member}{more}"
            happened.append(MemberEvent(f"{key}.{member}", id, "/s", 1_268_000_000_000, None, {"n": member}))
            place = (0, member, MEMBERS, MEMBERS) if ref.rollups else (member, 0, 1, 1)
            entries.append(Contribution(self._next, 0, 0, index, key, *place, None, None))
        return ContributionBatch(
            source="accepted-events/0", jobs=(ref,), events=tuple(happened), entries=tuple(entries)
        )


async def requests(at: Installed) -> list[RunRequest]:
    """The requests as the dispatcher keeps them: what is not above the highest of its source is a repeat (E1)."""
    highs: dict[tuple[int, str], tuple[int, int]] = {}
    found = []
    for record in await read_all(at.kafka, RUN_REQUESTS):
        assert record.partition == partition_of(JOB, PARTITIONS)
        batch = RunRequestBatch.from_bytes(record.value)
        for each in batch.requests:
            place, coordinates = (record.partition, batch.source), (each.offset, each.ordinal)
            if coordinates > highs.get(place, (-1, -1)):
                highs[place] = coordinates
                found.append(each)
    return found


async def until_fired(at: Installed, keys: Iterable[str], timeout: float = 60) -> None:
    """Return when every one of `keys` has fired; then check that these and no others have, each once and whole."""
    wanted = set(keys)

    async def fired() -> bool:
        return wanted <= {each.partition_key for each in await requests(at)}

    await until_async(fired, f"{len(wanted)} rounds to fire", timeout)
    await check_fired(at, wanted)


async def check_fired(at: Installed, keys: Iterable[str]) -> None:
    found = await requests(at)
    assert Counter(each.partition_key for each in found) == dict.fromkeys(keys, 1)
    assert len({each.run_id for each in found}) == len(found)
    for each in found:
        assert each.generation == 1
        assert [(event["member"], event["id"]) for event in each.events] == [
            (member, f"{each.partition_key}-{member}") for member in range(MEMBERS)
        ]


async def audit_counts(at: Installed) -> Counter[str]:
    return Counter(each.kind.value for each in await audit(at))


def redis_of(at: Installed) -> Redis:
    return Redis.from_url(at.redis, decode_responses=True)


async def places(at: Installed) -> dict[int, int]:
    """Where every shard stands on its partition of the log."""
    async with redis_of(at) as redis:
        found = {
            number: await redis.hget(f"{at.namespace}:{{{number}}}:log", f"next:{number % PARTITIONS}")
            for number in range(SHARDS)
        }
    return {number: int(place) for number, place in found.items() if place is not None}


async def until_folded(at: Installed, *records: int) -> None:
    """Return when every shard has taken in so many records of its partition."""

    async def folded() -> bool:
        return await places(at) == {number: records[number % PARTITIONS] for number in range(SHARDS)}

    await until_async(folded, f"the shards to stand at {records}")


def rollup(at: Installed, label: str = "", **env: str) -> ServiceProcess:
    return at.service("rollup", label, **env)


async def test_an_emptied_redis_is_built_again_from_the_log(at: Installed) -> None:
    log = Log(at)
    with rollup(at) as owner:
        owner.wait_ready()
        await log.add(members(days(0, 20)) + members(days(20, 20), 0, 1))
        await until_fired(at, days(0, 20))
        async with redis_of(at) as redis:
            await redis.flushall()
        # Half of the rounds complete by what came before the loss and what comes after it.
        await log.add(members(days(20, 20), 2) + members(days(40, 10), 0))
        await until_fired(at, days(0, 40))
        assert owner.metrics()["tidegate_state_mismatches_total"] >= 1
        owner.stop()
        async with redis_of(at) as redis:
            await redis.flushall()
        await log.add(members(days(40, 10), 1))
        owner.start().wait_ready()
        await log.add(members(days(40, 10), 2))
        await until_fired(at, days(0, 50))
        await log.add(members(days(0, 5), 1))  # the fired rounds are still known
        await log.add(members(days(50, 1)))
        await until_fired(at, days(0, 51))
    assert await audit_counts(at) == {"duplicate-event": 5}


async def test_rounds_run_again_by_policy_with_the_newest_events_whatever_is_lost(at: Installed) -> None:
    log, keys = Log(at), days(0, 8)

    async def until_run(*newest: tuple[str, str, str]) -> None:
        """Return when every key has run with each of these sets of events, in this order and no other."""

        async def are_there() -> bool:
            return len(await requests(at)) >= len(keys) * len(newest)

        await until_async(are_there, f"{len(newest)} runs of {len(keys)} keys")
        found = await requests(at)
        for key in keys:
            runs = [each for each in found if each.partition_key == key]
            assert [each.generation for each in runs] == list(range(1, len(newest) + 1))
            assert [tuple(event["id"] for event in each.events) for each in runs] == [
                tuple(f"{key}-{member}{more}" for member, more in enumerate(of_run)) for of_run in newest
            ]
        assert len({each.run_id for each in found}) == len(found)

    with rollup(at) as owner:
        owner.wait_ready()
        await log.add(members(keys), AGAIN)
        await until_run(("", "", ""))
        await log.add(members(keys, 1), AGAIN, "b")
        await until_run(("", "", ""), ("", "b", ""))
        async with redis_of(at) as redis:
            await redis.flushall()
        await log.add(members(keys, 2), AGAIN, "c")
        await until_run(("", "", ""), ("", "b", ""), ("", "b", "c"))
        owner.stop()
        await log.add(members(keys, 1), AGAIN, "b")
        owner.start().wait_ready()
        await log.add(members(keys, 0), AGAIN, "d")
        await until_run(("", "", ""), ("", "b", ""), ("", "b", "c"), ("d", "b", "c"))
    assert await audit_counts(at) == {"member-rerun": 3 * len(keys), "duplicate-event": len(keys)}


async def test_a_job_without_partitions_runs_when_its_last_asset_comes_though_redis_was_emptied(
    at: Installed,
) -> None:
    log = Log(at)
    with rollup(at) as owner:
        owner.wait_ready()
        for turn in range(3):
            await log.add([("", turn % 2)], WHOLE, str(turn))
            async with redis_of(at) as redis:
                await redis.flushall()
            await log.add([("", 1 - turn % 2)], WHOLE, str(turn))

            async def have_run(count: int = turn + 1) -> bool:
                return len(await requests(at)) == count

            await until_async(have_run, f"run {turn + 1}")
    found = await requests(at)
    assert [(each.partition_key, each.generation) for each in found] == [(None, 1), (None, 2), (None, 3)]
    assert [[event["id"] for event in each.events] for each in found] == [
        [f"-{asset}{turn}" for asset in (0, 1)] for turn in range(3)
    ]
    assert await audit_counts(at) == {}


async def test_shards_that_went_back_each_to_its_own_moment_are_brought_up_to_date(at: Installed) -> None:
    log = Log(at)
    everything = days(0, 60)
    with rollup(at) as owner:
        owner.wait_ready()
        copies = {}
        async with redis_of(at) as redis:
            for step in range(3):  # a copy of one shard after each step; the fourth keeps what it has
                await log.add(members(everything, step))
                await until_folded(at, step + 1, step + 1)
                copies[step] = await copy_keys(redis, f"{at.namespace}:{{{step}}}:*")
            await until_fired(at, everything)
            await log.add(members(days(60, 20), 0, 1))
            await until_folded(at, 4, 4)
            for number, copy in copies.items():
                await put_back(redis, f"{at.namespace}:{{{number}}}:*", copy)
        await log.add(members(days(60, 20), 2))
        await until_fired(at, days(0, 80))
        await until_folded(at, 5, 5)
        await log.add(members(days(80, 10)))
        await until_fired(at, days(0, 90))
        assert owner.metrics()["tidegate_state_mismatches_total"] >= 1
    assert await audit_counts(at) == {}


async def test_a_loss_is_noticed_within_seconds_when_nothing_comes_in(at: Installed) -> None:
    log = Log(at)
    with rollup(at) as owner:
        owner.wait_ready()
        await log.add(members(days(0, 20), 0, 1))
        await until_folded(at, 1, 1)
        async with redis_of(at) as redis:
            await redis.flushall()
            assert await places(at) == {}

            async def rebuilt() -> bool:
                return len(await places(at)) == SHARDS and await open_rounds(redis, at) == set(days(0, 20))

            await until_async(rebuilt, "the rounds to be built again", 10)
    assert await requests(at) == []


async def open_rounds(redis: Redis, at: Installed) -> set[str]:
    found = [await redis.zrange(f"{at.namespace}:{{{number}}}:open", 0, -1) for number in range(SHARDS)]
    return {str(name).rpartition("/")[2] for names in found for name in names}


async def test_a_redis_that_forgot_the_script_is_given_it_again(at: Installed) -> None:
    log = Log(at)
    with rollup(at) as owner:
        owner.wait_ready()
        await log.add(members(days(0, 20), 0, 1))
        await until_folded(at, 1, 1)
        async with redis_of(at) as redis:
            await redis.script_flush()
        await log.add(members(days(0, 20), 2))
        await until_fired(at, days(0, 20))
        assert owner.ready()["ready"]
        assert not [name for name in owner.metrics() if name.startswith("tidegate_sessions_total{")]


@on_real_servers
async def test_an_owner_that_was_taken_for_dead_changes_nothing_when_it_wakes(at: Installed) -> None:
    short = {"TIDEGATE_SESSION_TIMEOUT_MS": "2000"}
    sleeping, awake = rollup(at, "one", **short), rollup(at, "two", **short)
    log, stop, fed = Log(at), asyncio.Event(), [0]

    async def keep_feeding() -> None:
        while not stop.is_set():
            await log.add(
                members(days(fed[0], 10), 0, 1) + (members(days(fed[0] - 10, 10), 2) if fed[0] else [])
            )
            fed[0] += 10
        await log.add(members(days(fed[0] - 10, 10), 2))

    async def fired_beyond(count: int) -> None:
        async def beyond() -> bool:
            return len(await requests(at)) > count

        await until_async(beyond, f"{count} rounds to fire", 60)

    with sleeping, awake:
        sleeping.wait_ready()
        awake.wait_ready()
        feeding = asyncio.create_task(keep_feeding())
        try:
            for _ in range(4):
                await fired_beyond(len(await requests(at)) + 20)
                sleeping.kill(signal.SIGSTOP)
                frozen_at = fed[0]
                await fired_beyond(
                    frozen_at
                )  # somebody else has taken the partitions and all that waited there
                sleeping.kill(signal.SIGCONT)
                sleeping.wait_ready()
                awake.wait_ready()
                sleeping, awake = awake, sleeping
        finally:
            stop.set()
            await feeding
        await until_fired(at, days(0, fed[0]))
    assert await audit_counts(at) == {}


async def test_records_that_cannot_be_read_are_audited_and_passed(at: Installed) -> None:
    log = Log(at)
    key = days(0, 1)[0]
    with rollup(at) as owner:
        owner.wait_ready()
        await log.add(members([key], 0, 1))
        short = b'{"v": 1, "source": "x", "jobs": [], "events": [], "entries": [[1]]}'
        nobody = b'{"v":1,"source":"x","jobs":[],"events":[],"entries":[[0,0,0,0,"k",0,0,1,1,null,null]]}'
        poison = [b"not json", b"\xff\xfe", b"{}", short, nobody]
        await send(at.kafka, [(CONTRIBUTIONS, partition(key), None, each) for each in poison])
        await send(at.kafka, [(CONTRIBUTIONS, partition(key), b"k", None)])
        await log.add(members([key], 2))
        await until_fired(at, [key])
    assert await audit_counts(at) == {"unreadable-record": 6}


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
async def test_a_record_that_cannot_be_read_is_audited_though_its_reader_dies_once_the_shards_are_past_it(
    at: Installed,
) -> None:
    keys = days(0, 20)
    assert set(map(shard, keys)) == set(range(SHARDS)), "every shard has to move"
    await send(at.kafka, [(CONTRIBUTIONS, number, None, b"not json") for number in range(PARTITIONS)])
    await Log(at).add(members(keys))
    with rollup(at, TIDEGATE_INSTANCE_ID="one", TIDEGATE_CRASH_POINT="rollup.applied:1") as dying:

        async def is_dead() -> bool:
            return not dying.is_running

        await until_async(is_dead, "the rollup to die")
    with rollup(at, "next", TIDEGATE_INSTANCE_ID="one") as owner:
        owner.wait_ready()
        await until_fired(at, keys)
    assert await audit_counts(at) == {"unreadable-record": PARTITIONS}


async def test_rounds_without_a_committed_offset_are_not_trusted(at: Installed) -> None:
    log = Log(at)
    with rollup(at) as owner:
        owner.wait_ready()
        await log.add(members(days(0, 20)))
        await until_fired(at, days(0, 20))
        owner.stop()
        await asyncio.to_thread(forget_offsets, at.kafka, f"{at.namespace}-rollup")
        await log.add(members(days(20, 5)))
        owner.start()
        reason = await asyncio.to_thread(owner.wait_not_ready, "gap")
    assert "no committed offset" in reason
    await check_fired(at, days(0, 20))


def forget_offsets(bootstrap: str, group: str) -> None:
    """Delete a group that has no members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # named, since it answers only while it lives
    (deleted,) = admin.delete_consumer_groups([group]).values()
    deleted.result(30)


@pytest.mark.parametrize("records", [1, 4], ids=["a shorter log", "a log as long"])
async def test_a_log_that_began_anew_is_not_taken_for_the_old_one(at: Installed, records: int) -> None:
    log = Log(at)
    with rollup(at) as owner:
        owner.wait_ready()
        for number in range(3):
            await log.add(members(days(10 * number, 10)))
        await until_fired(at, days(0, 30))
        owner.stop()
        topic = next(each for each in declared_topics(PARTITIONS) if each.name == CONTRIBUTIONS)
        group, partitions = (
            f"{at.namespace}-rollup",
            [TopicPartition(CONTRIBUTIONS, n) for n in range(PARTITIONS)],
        )
        async with admin_client(at.kafka) as admin:
            committed = await committed_positions(admin, group, partitions)
            await delete_topics(admin, [CONTRIBUTIONS])
            await create_topics(admin, [topic])
        for number in range(records):
            await Log(at).add(members(days(1_000 + 10 * number, 10)))
        await commit(at, group, committed)  # Kafka itself forgets them with the topic
        owner.start()
        reason = await asyncio.to_thread(owner.wait_not_ready, "gap")
    assert "created again" in reason
    await check_fired(at, days(0, 30))


@on_real_servers
async def test_each_log_that_began_anew_is_another_one_though_kafka_forgot_the_offsets(at: Installed) -> None:
    """Kafka deletes a group's offsets with the topic; what the new log fires must not look like repeats of the old."""
    log, fired = Log(at), days(0, 30)
    group = f"{at.namespace}-rollup"
    topic = next(each for each in declared_topics(PARTITIONS) if each.name == CONTRIBUTIONS)
    static = {"TIDEGATE_INSTANCE_ID": "one"}
    with rollup(at, **static) as owner:
        owner.wait_ready()
        await log.add(members(fired))
        await until_fired(at, fired)
        for turn in (1, 2):
            owner.stop()
            left_over = days(1_000 * turn, 8)
            with rollup(at, "dying", **static, TIDEGATE_CRASH_POINT="rollup.sent:1") as dying:
                await log.add(members(left_over))

                async def is_dead() -> bool:
                    return not dying.is_running

                await until_async(is_dead, "the rollup to die with what fired still in its outbox")
            left_over = [
                key for key in left_over if key in {each.partition_key for each in await requests(at)}
            ]
            assert left_over
            fired = [*fired, *left_over]
            async with admin_client(at.kafka) as admin:
                await delete_topics(admin, [CONTRIBUTIONS])
                await create_topics(admin, [topic])
            owner.start()
            await asyncio.to_thread(owner.wait_not_ready, "gap")
            async with redis_of(at) as redis:
                for number in range(PARTITIONS):
                    await accept_gap(redis, at.namespace, group, TopicPartition(CONTRIBUTIONS, number), 0)
            await asyncio.to_thread(owner.wait_ready)
            new = days(100 * turn, 5)
            await log.add(members(new))
            fired = [*fired, *new]
            await until_fired(at, fired)


async def commit(at: Installed, group: str, positions: Mapping[TopicPartition, Position]) -> None:
    """Commit for a group that has no members."""
    consumer = AIOKafkaConsumer(bootstrap_servers=at.kafka, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(list(positions))
        await consumer.commit({tp: position.to_kafka() for tp, position in positions.items()})
    finally:
        await consumer.stop()
