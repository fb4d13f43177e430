"""Cases that people reported, on one stack of processes: replicas that come and go, servers that stay away.

The jobs of a case have assets of their own, so that the cases share the processes.
"""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.chaos.driver import SESSION_TIMEOUT_MS, Stage, prepare
from tests.chaos.fleet import SERVICES, Fleet, Member
from tests.chaos.jobs import commands_topic
from tests.chaos.plan import EVENT_TYPE
from tests.servers.backends import Backend, unavailable
from tidegate import (
    Asset,
    FixedKeyMapper,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(unavailable("real") is not None, reason=str(unavailable("real"))),
]

NAMESPACE = "cases"
PARTITIONS = 12
EVERY = ("b108", "b111", "b113")
"""Jobs that start a run for every event."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One process of every service to begin with, and the servers below them."""

    servers: Stage
    fleet: Fleet

    def publish(self, asset: str, *keys: str) -> None:
        """One event for every key."""
        producer = Producer({"bootstrap.servers": self.servers.kafka.bootstrap, "enable.idempotence": True})
        for key in keys:
            data = {"asset": asset, "partition_key": key}
            event = {"specversion": "1.0", "id": f"{asset}-{key}", "source": "/cases", "type": EVENT_TYPE}
            producer.produce("asset-events", json.dumps({**event, "data": data}), asset)
        assert producer.flush(60) == 0

    def runs(self, job: str) -> Counter[str]:
        """How often every key has been run."""
        found = self.fleet.outside.read(commands_topic(job))
        return Counter(json.loads(each.value)["partition_key"] for each in found)

    def until_runs(self, job: str, keys: Counter[str], timeout: float) -> None:
        """Return when there are as many runs as `keys`, which must be of those keys."""
        _until(lambda: self.runs(job).total() >= keys.total(), timeout, f"{keys.total()} runs of {job}")
        assert self.fleet.settle(timeout) == {}
        assert self.runs(job) == keys

    def join(self, name: str) -> Member:
        """Another replica of a service, ready."""
        member = self.fleet.add(name)
        return self.start(member)

    def start(self, member: Member) -> Member:
        member.start()
        member.wait_ready(120)
        return member

    def leave(self, member: Member) -> None:
        member.stop()
        self.fleet.members.remove(member)


@pytest.fixture(scope="module")
def stack(servers: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    every = [Job(id=name, schedule=PartitionedAssetTimetable(assets=Asset(name))) for name in EVERY]
    window = RollupMapper(FixedKeyMapper("all"), SegmentWindow(["a", "b", "c"]))
    rollup = PartitionedAssetTimetable(assets=Asset("b101"), default_partition_mapper=window)
    servers.redis.clear(NAMESPACE)
    asyncio.run(prepare(servers.kafka.bootstrap, PARTITIONS, [*every, Job(id="b101", schedule=rollup)]))
    backend = Backend("chaos", servers.kafka.bootstrap, servers.redis.url)
    fleet = Fleet(backend, NAMESPACE, (), tmp_path_factory.mktemp("cases"), 1, SESSION_TIMEOUT_MS)
    try:
        fleet.start()
        yield Stack(servers, fleet)
    finally:
        fleet.stop()


def test_b101_members_of_a_round_outlive_every_replica_that_counted_them(stack: Stack) -> None:
    rollups = [*stack.fleet.of("rollup"), stack.join("rollup"), stack.join("rollup")]
    for segment in ("a", "b"):
        stack.publish("b101", segment)
        for member in rollups:
            member.kill()
            stack.start(member)
    for member in rollups[1:]:
        stack.leave(member)
    more = [stack.join("rollup") for _ in range(4)]
    stack.publish("b101", "c")
    stack.until_runs("b101", Counter(all=1), 60)
    for member in more:
        stack.leave(member)


def test_b111_no_event_is_skipped_while_replicas_come_and_go(stack: Stack) -> None:
    """A twentieth of the case."""
    keys = [f"key-{number}" for number in range(5_000)]
    blocks = [keys[start : start + 250] for start in range(0, len(keys), 250)]
    comes_and_goes = threading.Event()

    def feed() -> None:
        for block in blocks:
            stack.publish("b111", *block)
            comes_and_goes.wait(0.5)

    feeding = threading.Thread(target=feed)
    feeding.start()
    for name in random.Random(111).sample(SERVICES, len(SERVICES)):
        stack.leave(stack.join(name))
    comes_and_goes.set()
    feeding.join(120)
    stack.until_runs("b111", Counter(keys), 120)


def test_b113_a_group_is_stable_again_though_every_call_to_redis_takes_5_s(stack: Stack) -> None:
    admin = AdminClient({"bootstrap.servers": stack.servers.kafka.bootstrap})
    group = f"{NAMESPACE}-rollup"

    def is_stable(members: int) -> bool:
        found = admin.describe_consumer_groups([group])[group].result()
        owned = [len(each.assignment.topic_partitions) for each in found.members]
        return found.state.name == "STABLE" and len(owned) == members and sum(owned) == PARTITIONS

    is_over = threading.Event()

    def slow_down() -> None:
        with stack.servers.redis.master() as master:
            while not is_over.is_set():
                master.client_pause(5_000, all=True)
                is_over.wait(5.05)  # what waited goes through, and the next call waits again
            master.client_unpause()

    slow = threading.Thread(target=slow_down)
    keys = [f"key-{number}" for number in range(300)]
    stack.publish("b113", *keys[:100])
    slow.start()
    try:
        stack.publish("b113", *keys[100:200])  # a batch is on its way
        second = stack.fleet.add("rollup")
        second.start()
        _until(lambda: is_stable(2), 30, "a stable group of two")
        stack.publish("b113", *keys[200:])
        second.stop()
        _until(lambda: is_stable(1), 30, "a stable group of one")
    finally:
        is_over.set()
        slow.join(30)
    stack.fleet.members.remove(second)
    stack.until_runs("b113", Counter(keys), 60)


def test_b108_all_go_on_by_themselves_when_kafka_and_redis_are_back(stack: Stack) -> None:
    """Away for longer than every session, one after the other; nobody starts a process again."""
    pids = [member.pid for member in stack.fleet.members]
    kafka, redis = stack.servers.kafka, stack.servers.redis
    away_s = 2 * SESSION_TIMEOUT_MS / 1000

    def stay_away(unready: Collection[Member]) -> None:
        until = time.monotonic() + away_s
        _until(
            lambda: all(each.ready().get("ready") is False for each in unready), 60, "readiness to be false"
        )
        while time.monotonic() < until:
            assert all(member.is_alive() for member in stack.fleet.members)
            time.sleep(0.2)

    kafka.stop()
    stay_away(stack.fleet.members)
    kafka.start()
    for member in stack.fleet.members:
        member.wait_ready(120)
    redis.restart(lambda: stay_away(stack.fleet.of("rollup")))  # the others have nothing to ask it
    keys = [f"key-{number}" for number in range(50)]
    stack.publish("b108", *keys)
    stack.until_runs("b108", Counter(keys), 120)
    assert [member.pid for member in stack.fleet.members] == pids
    assert all(member.is_running for member in stack.fleet.members)


def _until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        time.sleep(0.1)
