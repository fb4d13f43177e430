"""Where the simulation takes the place of the outside: Kafka's clients, Redis, clocks and start-up checks."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Any, Protocol
from unittest.mock import patch

import structlog

import tidegate_dispatcher.main
import tidegate_dispatcher.owner
import tidegate_ingest.main
import tidegate_mapper.main
import tidegate_rollup.main
import tidegate_rollup.owner
from tests.simulation.kafka import Admin, Consumer, Kafka, Producer
from tests.simulation.redis import Client
from tests.simulation.scheduling import Calls, Loop, current
from tidegate.contracts.topics import DEFINITIONS, MAX_INTERNAL_BYTES
from tidegate.core.plain import from_plain
from tidegate.definitions import Job
from tidegate.definitions.routes import JobRoutes
from tidegate.runtime import consumer, log_consumer, metrics, producer, starting, state, transactions
from tidegate.runtime import definitions_view as definitions_view_module
from tidegate.runtime.definitions_view import DefinitionsView

MAINS = (tidegate_ingest.main, tidegate_mapper.main, tidegate_rollup.main, tidegate_dispatcher.main)


class Outside(Protocol):
    """What stands there in the place of the outside at the time."""

    loop: Loop
    calls: Calls
    kafka: Kafka
    client: Client


@contextmanager
def seams(outside: Callable[[], Outside]) -> Iterator[None]:
    """While this is open, the services run in the simulation that `outside` gives."""

    @asynccontextmanager
    async def admin_client(_: str) -> AsyncIterator[Admin]:
        yield Admin(outside().kafka)

    @asynccontextmanager
    async def connect_redis(_: str) -> AsyncIterator[Client]:
        yield outside().client

    @asynccontextmanager
    async def definitions_view(_: str) -> AsyncIterator[DefinitionsView]:
        now, view = outside(), DefinitionsView()
        log = now.kafka.log(DEFINITIONS, 0)
        for record in await now.calls.make("kafka", log.records):
            view.apply(record)
        follower = asyncio.create_task(_follow(now, view))
        try:
            yield view
        finally:
            follower.cancel()
            await asyncio.wait((follower,))

    async def _follow(now: Outside, view: DefinitionsView) -> None:
        log = now.kafka.log(DEFINITIONS, 0)
        while True:
            slot = await now.calls.make(
                "view", lambda: log.slots[view.next_offset], lambda: view.next_offset < log.end
            )
            async with view._moved:
                view.apply(slot.record)
                view._moved.notify_all()

    async def nothing(*_: Any) -> None: ...

    async def message_limits(_: Any, names: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(names, MAX_INTERNAL_BYTES)

    def clock() -> float:
        return outside().loop.now

    def wall_clock() -> float:
        return outside().loop.now + current.get().clock_off

    def new_consumer(**options: Any) -> Consumer:
        return Consumer(outside().kafka, **options)

    def new_producer(**options: Any) -> Producer:
        return Producer(outside().kafka, **options)

    with ExitStack() as stack:

        def put(module: Any, **values: Any) -> None:
            for name, value in values.items():
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, value))

        for module in (*MAINS, tidegate_dispatcher.owner):
            put(
                module,
                admin_client=admin_client,
                connect_redis=connect_redis,
                definitions_view=definitions_view,
                check_installation=nothing,
                message_limits=message_limits,
                monotonic=clock,
                time=clock,
            )
        for module in (consumer, log_consumer, starting):
            put(
                module,
                AIOKafkaConsumer=new_consumer,
                patient=lambda each: each,
                reconnecting_slowly=lambda each: each,
                monotonic=clock,
            )
        for module in (producer, transactions):
            put(module, AIOKafkaProducer=new_producer, reconnecting_slowly=lambda each: each)
        put(tidegate_rollup.owner, monotonic=clock, time=wall_clock)
        put(state, monotonic=clock)
        for name in vars(metrics):
            if name.isupper():
                put(metrics, **{name: _NoMetric()})
        put(definitions_view_module, from_plain=_from_plain, JobRoutes=lru_cache(_routes))
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
        yield
        structlog.reset_defaults()


class _NoMetric:
    """Counts nothing; nobody reads metrics here, and they take a twentieth of the time."""

    def labels(self, *_: object) -> "_NoMetric":
        return self

    def inc(self, *_: object) -> None: ...

    def set(self, *_: object) -> None: ...

    def observe(self, *_: object) -> None: ...


def _routes(job: Job) -> JobRoutes:
    """What a view makes of a job only to see that it can."""
    return JobRoutes(job)


_made: dict[str, Any] = {}


def _from_plain(data: Any) -> Any:
    """Definitions are read by every process that starts, and are frozen."""
    text = json.dumps(data, sort_keys=True)
    if text not in _made:
        _made[text] = from_plain(data)
    return _made[text]
