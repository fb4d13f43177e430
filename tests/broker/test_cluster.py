"""Redis Cluster: the whole pipeline on three masters, with braces in users' keys, and lost writes (B123)."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from tests.broker.conftest import Install, Installed, read_all, until_async
from tests.broker.events import event, give
from tests.broker.rounds import SHARDS, apply, waiting
from tests.servers.redis import redis_available
from tests.servers.redis_cluster import RedisCluster
from tests.servers.services import services
from tidegate import (
    Asset,
    DayWindow,
    FanOutMapper,
    FixedKeyMapper,
    IdentityMapper,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    StartOfHourMapper,
    StartOfWeekMapper,
    WeekWindow,
)
from tidegate.contracts.redis_keys import shard_prefix
from tidegate.contracts.runs import RunCommand
from tidegate.contracts.topics import run_commands_topic
from tidegate.runtime.redis import connect_redis
from tidegate_ingest.store import SeenEvents
from tidegate_rollup.store import Applied, RoundStore

SERVICES = ("ingest", "mapper", "rollup", "dispatcher")
SEGMENTS = ["us", "a{b}c", "{}", "}{"]
BRACED = ["a{b}c", "{}", "}{", "{0}", "{{1}}"]
VICTIM = 1
"""The master that holds shards 1 and 2 of four and the dispatcher's partition 1 of two, that of job `every`: the slots
of "1", "2" and "d1" are in the middle third."""
HOURLY, REGIONAL, ANY, WEEKLY = (Asset(name) for name in ("hourly", "regional", "any", "weekly"))
JOBS = (
    Job("days", PartitionedAssetTimetable(HOURLY, RollupMapper(StartOfHourMapper(), DayWindow()))),
    Job(
        "segments",
        PartitionedAssetTimetable(REGIONAL, RollupMapper(FixedKeyMapper("{0}"), SegmentWindow(SEGMENTS))),
    ),
    Job("every", PartitionedAssetTimetable(ANY, IdentityMapper())),
    Job("fan", PartitionedAssetTimetable(WEEKLY, FanOutMapper(StartOfWeekMapper(), WeekWindow()))),
)
SAID_WRONG = re.compile(r"CROSSSLOT|[Cc]ross.?slot|same (key )?slot|non local key|undeclared")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    if reason := redis_available():
        pytest.skip(reason)
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def day(number: int, hours: Collection[int]) -> list[bytes]:
    return [
        event(f"d{number}-{hour}", "hourly", partition_key=f"2026-03-{number:02d}T{hour:02d}:00:00")
        for hour in hours
    ]


def keys(part: str, count: int) -> list[str]:
    return [f"{part}{key}" for key in (*BRACED, *map(str, range(count)))]


def each(part: str, count: int) -> list[bytes]:
    return [event(f"e-{key}", "any", partition_key=key) for key in keys(part, count)]


async def commands(at: Installed) -> Counter[tuple[str, str]]:
    """How many commands there are by job and key."""
    found = [
        RunCommand.from_bytes(record.value)
        for job in JOBS
        for record in await read_all(at.kafka, run_commands_topic(job.id, at.partitions).name)
    ]
    return Counter((each.job, each.partition_key or "") for each in found)


def offsets(cluster: RedisCluster, master: int, namespace: str) -> dict[tuple[str, str], int]:
    """The next offsets that one master holds, of shards and of the dispatcher's partitions."""
    found = {}
    with cluster.masters[master].client() as client:
        for key in client.scan_iter(f"{namespace}:*:log", count=1_000):
            for name, value in client.hgetall(key).items():
                if name.startswith("next"):
                    found[key, name] = int(value)
    return found


@pytest.mark.parametrize("backend", ["real"], indirect=True)
async def test_b123_the_pipeline_runs_on_a_cluster_and_through_a_failover_that_loses_writes(
    install: Install, cluster: RedisCluster, tmp_path: Path
) -> None:
    made = install(shards=SHARDS)
    at = replace(made, backend=replace(made.backend, redis=cluster.url, redis_server=None))
    wanted: Counter[tuple[str, str]] = Counter()

    async def until_wanted(when: str) -> None:
        async def are_there() -> bool:
            return (await commands(at)).total() >= wanted.total()

        await until_async(are_there, f"the commands {when}", 60)
        assert await commands(at) == wanted

    with services(SERVICES, at.backend, tmp_path, {"TIDEGATE_NAMESPACE": at.namespace}) as running:
        await apply(at, *JOBS)
        await give(
            at,
            *day(1, range(24)),
            *(hour for number in range(2, 12) for hour in day(number, range(10))),
            *(event(f"s-{segment}", "regional", partition_key=segment) for segment in SEGMENTS[:3]),
            *each("one", 100),
            event("w", "weekly", partition_key="2026-03-09"),
        )
        wanted["days", "2026-03-01"] += 1
        wanted.update(("every", key) for key in keys("one", 100))
        wanted.update(("fan", f"2026-03-{number:02d}") for number in range(9, 16))
        await until_wanted("before the failover")
        assert (await waiting(at, "days")).total == 10
        (open_round,) = (await waiting(at, "segments")).rounds
        assert (open_round.key, open_round.assets[0].missing) == ("{0}", ("}{",))

        before = offsets(cluster, VICTIM, at.namespace)
        cluster.cut_off(VICTIM)
        await give(
            at, *(hour for number in range(2, 12) for hour in day(number, range(10, 20))), *each("two", 40)
        )
        wanted.update(("every", key) for key in keys("two", 40))
        await until_wanted("whose state is lost")
        await until_async(lambda: _above(cluster, at, before), "every shard of the master to have moved")
        lost = offsets(cluster, VICTIM, at.namespace)
        cluster.promote(VICTIM)
        kept = offsets(cluster, VICTIM, at.namespace)
        assert lost.keys() == kept.keys()
        assert {place for place in lost if lost[place] > kept[place]} == set(
            lost
        )  # lost by shards and dispatcher

        await give(
            at,
            *(hour for number in range(2, 12) for hour in day(number, range(20, 24))),
            event("s-last", "regional", partition_key=SEGMENTS[3]),
            *each("three", 40),
        )
        wanted.update(("days", f"2026-03-{number:02d}") for number in range(2, 12))
        wanted["segments", "{0}"] += 1
        wanted.update(("every", key) for key in keys("three", 40))
        await until_wanted("after the failover")
        for service in running.values():
            service.wait_ready()
        assert running["rollup"].metrics()["tidegate_state_mismatches_total"] >= 1
    for name in SERVICES:
        assert not SAID_WRONG.search((tmp_path / f"{name}.log").read_text(encoding="utf-8"))


async def _above(cluster: RedisCluster, at: Installed, before: Mapping[tuple[str, str], int]) -> bool:
    now = offsets(cluster, VICTIM, at.namespace)
    return all(now[place] > offset for place, offset in before.items())


async def test_b123_no_call_of_the_script_begins_while_its_slot_is_on_the_move(cluster: RedisCluster) -> None:
    """Even where every key of the shard is still there: those that the script names itself may have moved."""
    namespace, shard = "moving", 0
    prefix = shard_prefix(namespace, shard)
    source, target = cluster.masters[2], cluster.masters[0]  # CRC-16 of "0" gives 13907
    slot = int(source.ask("CLUSTER", "KEYSLOT", prefix))
    async with connect_redis(cluster.url) as redis:
        for kind in ("outbox:0", "marks", "kept", "revisions"):
            await redis.hset(prefix + kind, "there", "{}")
        for kind in ("expiry", "seen", "open", "due"):
            await redis.zadd(prefix + kind, {"there": 10**15})
        store = RoundStore(redis, namespace, 60_000)
        assert await store.apply(0, 0, 5, 1, [(shard, None, ())]) == {shard: Applied(0, [])}
        seen = SeenEvents(redis, namespace, 60)
        assert await seen.remember([("0a", "first@0")]) == {}
        ids = {node: node.ask("CLUSTER", "MYID") for node in (source, target)}
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        with pytest.raises(RedisError):
            await store.apply(0, 0, 6, 1, [(shard, 5, ())])
        with pytest.raises(RedisError):
            await seen.remember([("0a", "later@1")])
        for node in (source, target):
            node.ask("CLUSTER", "SETSLOT", slot, "STABLE")
        assert await seen.remember([("0a", "later@1"), ("1b", "later@2")]) == {"0a": "first@0"}
        assert await store.apply(0, 0, 6, 1, [(shard, 5, ())]) == {shard: Applied(0, [])}
