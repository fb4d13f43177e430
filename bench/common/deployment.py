"""The real services as processes, on fresh topics, with nothing in Redis.

Their settings are the default ones, but for a session timeout that lets ingest be frozen while its backlog is written.
"""

import asyncio
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import redis

from bench.common.feeding import Feeder, Record
from bench.common.measuring import HELD_FOR_MS, until_settled
from bench.common.servers import Servers
from bench.common.workloads import Command, Event, now
from tests.e2e.outside import Outside
from tests.servers.services import READS, ServiceProcess
from tidegate import Job
from tidegate.contracts.definitions import Installation
from tidegate.contracts.placement import partition_of
from tidegate.contracts.topics import ASSET_EVENTS, Topic
from tidegate.definitions import Definitions
from tidegate.runtime.applying import apply_definitions
from tidegate.runtime.installing import create_and_wait, install
from tidegate.runtime.topic_admin import admin_client
from tidegate.sdk.events import HEADERS

INSTALLATION: Final = Installation()
_READY_S: Final = 180.0
_SETTLE_S: Final = 600.0


class Deployment:
    """One process of each service. Subject of measurements: its commands are named as they are."""

    topic = ASSET_EVENTS

    def __init__(self, servers: Servers, namespace: str) -> None:
        self.namespace = namespace
        self._env = {"TIDEGATE_NAMESPACE": namespace, "TIDEGATE_SESSION_TIMEOUT_MS": str(HELD_FOR_MS)}
        self._logs = servers.folder / namespace
        self.services = {name: ServiceProcess(name, servers, self._logs, self._env) for name in READS}
        self.started_s: dict[str, float] = {}
        """Seconds until each service was ready."""
        self._servers = servers
        self._outside = Outside(servers.kafka)

    def run_instead(self, name: str, module: str, env: Mapping[str, str]) -> None:
        """Have a module stand for a service, which it runs; before `start`."""
        self.services[name] = ServiceProcess(name, self._servers, self._logs, {**self._env, **env})
        self.services[name].module = module

    def start(self, *, one_by_one: bool = False) -> None:
        """Return when all are ready."""
        for service in () if one_by_one else self.services.values():
            service.start()
        for name, service in self.services.items():
            began = time.monotonic()
            if one_by_one:
                service.start()
            service.wait_ready(_READY_S)
            self.started_s[name] = time.monotonic() - began

    def stop(self) -> None:
        for service in self.services.values():
            if service.is_running:
                service.kill(signal.SIGTERM)
        for service in self.services.values():
            service.stop()
        self._outside.__exit__()

    @property
    def pids(self) -> Mapping[str, int]:
        return {name: service.pid for name, service in self.services.items()}

    @property
    def front(self) -> int:
        return self.services["ingest"].pid

    def records(self, events: Iterator[Event]) -> Iterator[Record]:
        """As the SDK writes them: on the partition that the asset's name has."""
        partitions = INSTALLATION.partitions
        for event in events:
            value = event.to_bytes(now())
            yield Record(event.asset.encode(), value, partition_of(event.asset, partitions), HEADERS)

    def due(self, command: Command) -> Command:
        return command

    def feed(self, events: Iterator[Event]) -> None:
        """Publish, and return when nothing is left to do."""
        with Feeder(self._servers.kafka, self.topic, linger_ms=5) as feeder:
            feeder.fill(self.records(events))
        self.settle()

    def settle(self) -> None:
        """Return when every group has committed what there is; no input of a service holds markers of transactions."""
        until_settled(self._behind, _SETTLE_S)

    def _behind(self) -> dict[str, int]:
        found = {}
        for name, topics in READS.items():
            service = self.services[name]
            if not service.is_running:
                raise RuntimeError(f"{name} ended with {service.exit_code}{service.log_tail()}")
            committed = self._outside.committed(f"{self.namespace}-{name}", topics)
            ends = self._outside.ends(topics)
            if left := sum(end - committed.get(place, 0) for place, end in ends.items()):
                found[name] = left
        return found


def prepare(servers: Servers, jobs: Sequence[Job]) -> Deployment:
    """Fresh topics and the definitions; no service is started. What was there before is gone."""
    with redis.Redis.from_url(servers.redis) as client:
        client.flushall()
    asyncio.run(_define(servers.kafka, jobs))
    return Deployment(servers, f"bench-{uuid4().hex[:8]}")


@contextmanager
def deployment(servers: Servers, jobs: Sequence[Job], *, one_by_one: bool = False) -> Iterator[Deployment]:
    """The services with these jobs, ready and with nothing left to do, for the length of the block.

    `one_by_one` has each start when the one before is ready, so that `started_s` is its own.
    """
    prepared = prepare(servers, jobs)
    try:
        prepared.start(one_by_one=one_by_one)
        prepared.settle()
        yield prepared
    finally:
        prepared.stop()


def fresh_topics(bootstrap: str, topics: Sequence[Topic]) -> None:
    """Make topics that are not there yet."""

    async def make() -> None:
        async with admin_client(bootstrap) as admin:
            await create_and_wait(admin, topics, 1)

    asyncio.run(make())


async def _define(bootstrap: str, jobs: Sequence[Job]) -> None:
    async with admin_client(bootstrap) as admin:
        if old := [name for name in await admin.list_topics() if not name.startswith("__")]:
            await admin.delete_topics(old)
        async with asyncio.timeout(60):
            while set(old) & set(await admin.list_topics()):
                await asyncio.sleep(0.05)
    await install(bootstrap, INSTALLATION)
    # One alone, so that a topic which the others share with it is asked for once.
    await apply_definitions(bootstrap, Definitions(tuple(jobs[-1:])))
    await apply_definitions(bootstrap, Definitions(tuple(jobs)))
