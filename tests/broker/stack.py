"""All services, most of them twice, for cases that share them: fed and read by librdkafka, as somebody else would."""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer
from redis import Redis

from tests.broker.conftest import Installed, install_on
from tests.e2e.outside import Outside
from tests.servers.backends import Backend
from tests.servers.command_line import invoke
from tests.servers.services import READS, ServiceProcess
from tidegate import Asset, Job
from tidegate.contracts.events import EVENT_TYPE
from tidegate.contracts.redis_keys import shard_prefix
from tidegate.definitions import Definitions
from tidegate.runtime.applying import Applied, apply_definitions
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.pending import pending_rounds
from tidegate.runtime.redis import connect_redis

PARTITIONS, SHARDS = 6, 4
_POLL_S = 0.1
_BY_KEY = -1  # as librdkafka has it

Entry = Mapping[str, Any]
"""A message as it was read, plain JSON."""


class Stack:
    """Services on topics of their own. Every case has assets and jobs of its own, so that none sees another's."""

    def __init__(self, at: Installed) -> None:
        self.at = at
        self.outside = Outside(at.kafka)
        self.services = {
            f"{name}-{number}": at.service(name, f"{name}-{number}", TIDEGATE_SESSION_TIMEOUT_MS="6000")
            for name in READS
            for number in range(1 if name == "ingest" else 2)
        }
        self._producer = producer(at.kafka)

    def replicas(self, name: str) -> list[ServiceProcess]:
        return [service for label, service in self.services.items() if label.startswith(f"{name}-")]

    def apply(self, *jobs: Job, delete: Collection[str] = ()) -> Applied:
        """As `tidegate apply`; returns once events are let in by what it wrote."""
        applied = asyncio.run(apply_definitions(self.at.kafka, Definitions(jobs, (Asset("probe"),)), delete))
        wanted = self.outside.ends(["definitions"])["definitions", 0]
        until(lambda: self._stamp() >= wanted, f"ingest to see definitions up to {wanted}")
        return applied

    def _stamp(self) -> int:
        """By which definitions every process of ingest maps an event now."""
        ids = [f"probe-{uuid4().hex}" for _ in range(PARTITIONS)]
        for partition, id in enumerate(ids):
            self.give("probe", None, id, partition=partition)
        self.flush()

        def stamps() -> list[int]:
            events = [
                each for record in self.outside.read("accepted-events") for each in record.value["events"]
            ]
            return [each[1] for each in events if each[4] in ids]

        until(lambda: len(stamps()) == len(ids), "ingest to let events in")
        return min(stamps())

    def give(
        self, asset: str, key: str | None, id: str, *, partition: int | None = None, **data: Any
    ) -> None:
        """Publish one event; `flush` waits for the broker."""
        value = event(asset, key, id, **data)
        where = _BY_KEY if partition is None else partition
        self._producer.produce("asset-events", value, asset, where, on_delivery=_no_error)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0, "the broker did not acknowledge every event within 30 s"

    def commands(self, job: str) -> list[Entry]:
        """Every run command of a job that a reader of committed records sees."""
        return [record.value for record in self.outside.read(f"run-commands.{job}")]

    def until_commands(self, job: str, count: int, timeout: float = 60) -> list[Entry]:
        """Return once there are so many."""
        try:
            until(lambda: len(self.commands(job)) >= count, f"{count} commands of {job}", timeout)
        except AssertionError as error:
            tails = "".join(service.log_tail(4) for service in self.services.values())
            raise AssertionError(f"{error}, found {len(self.commands(job))}{tails}") from None
        return self.commands(job)

    def audit(self, *kinds: str, job: str | None = None) -> list[Entry]:
        """The audit entries (of a job) by distinct id: of some kinds, or of all that tell of what did not run."""
        return [each for each in self.outside.audit(*kinds) if job in (None, each.get("job"))]

    def waiting(self, job: str) -> dict[str | None, tuple[int, int]]:
        """How many members of how many are there, by the key of every open round."""

        async def look() -> dict[str | None, tuple[int, int]]:
            async with definitions_view(self.at.kafka) as view, connect_redis(self.at.redis) as redis:
                found = await pending_rounds(redis, self.at.namespace, SHARDS, view, job, 5_000)
            return {
                each.key: (
                    sum(asset.arrived for asset in each.assets),
                    sum(asset.expected for asset in each.assets),
                )
                for each in found.rounds
            }

        return asyncio.run(look())

    def until_waiting(
        self, job: str, wanted: Mapping[str | None, tuple[int, int]], timeout: float = 60
    ) -> None:
        """Return once these are the open rounds of a job."""
        until(lambda: self.waiting(job) == wanted, lambda: f"{wanted}, found {self.waiting(job)}", timeout)

    def redis_calls(self) -> int:
        """How many commands Redis has run so far, those inside scripts too."""
        with Redis.from_url(self.at.redis, decode_responses=True) as redis:
            said: Any = redis.info("commandstats")
        return sum(each["calls"] for each in said.values())

    def settle(self, timeout: float = 90) -> None:
        """Return when nothing is left to do: every service has committed all there is, and no log grows meanwhile."""
        self.flush()
        topics = sorted({topic for read in READS.values() for topic in read})

        def is_settled() -> bool:
            before = self.outside.ends(topics)
            return not self.behind() and self.outside.ends(topics) == before

        until(is_settled, lambda: f"the services to settle: {self.behind()}", timeout)

    def tidegate(self, *arguments: str) -> str:
        """What the command line prints; fails where it does not end well."""
        return invoke(self.at, *arguments).done

    def until_folded(self, job: str, revision: int | None) -> None:
        """Return when every shard has taken in this revision of a job."""

        def are_there() -> bool:
            with Redis.from_url(self.at.redis, decode_responses=True) as redis:
                found = [
                    redis.hget(f"{shard_prefix(self.at.namespace, n)}revisions", job) for n in range(SHARDS)
                ]
            return [str(each).partition(" ")[0] for each in found] == [str(revision)] * SHARDS

        until(are_there, f"revision {revision} of {job} to be folded")

    def behind(self) -> dict[str, int]:
        """How many records every service has not committed yet; without those that have nothing to do."""
        waiting = {
            name: sum(self.outside.waiting(f"{self.at.namespace}-{name}", read, enough=1_000).values())
            for name, read in READS.items()
        }
        return {name: count for name, count in waiting.items() if count}


@contextmanager
def stack(backend: Backend, folder: Path) -> Iterator[Stack]:
    """Services that are ready, until the block ends."""
    built = Stack(install_on(backend, folder, PARTITIONS, SHARDS))
    try:
        for service in built.services.values():
            service.start()
        for service in built.services.values():
            service.wait_ready(60)
        yield built
    finally:
        running = [service for service in built.services.values() if service.is_running]
        for service in running:
            service.kill(signal.SIGTERM)
        for service in running:
            service.stop()
        built.outside.__exit__()


def producer(bootstrap: str, linger_ms: float = 5) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": linger_ms})


def event(asset: str, key: str | None, id: str, **data: Any) -> bytes:
    """An asset event as its producer writes it; ids need to differ among those of one asset."""
    known = {"asset": asset, "partition_key": key}
    body = {name: value for name, value in (known | data).items() if value is not None}
    return json.dumps(
        {"specversion": "1.0", "id": id, "source": f"/{asset}", "type": EVENT_TYPE, "data": body}
    ).encode()


def ids(command: Entry) -> list[str]:
    """Ids of the events that a run was started by, sorted."""
    return sorted(each["id"] for each in command["triggering_asset_events"])


def until(condition: Callable[[], object], what: str | Callable[[], str], timeout: float = 60) -> None:
    """Return when `condition` holds; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what() if callable(what) else what}")
        time.sleep(_POLL_S)


def _no_error(error: KafkaError | None, _: Message) -> None:
    assert error is None, error
