"""What the services run against in tests: the embedded broker, or a real Kafka and a real Redis."""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.servers.kafka import Kafka, kafka_available
from tests.servers.process import ServerError
from tests.servers.redis import Redis, redis_available
from tidegate.runtime.embedded import EmbeddedBroker, embedded_blocking


class Handle(Protocol):
    """A server that a test may stop or kill, and start again where it was."""

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """A Kafka ("host:port") and a Redis (URL).

    The handles are one and the same with the embedded broker, and None when the servers are not ours.
    """

    name: str
    kafka: str
    redis: str
    kafka_server: Handle | None = None
    redis_server: Handle | None = None


class Embedded:
    """The embedded broker as a handle; it keeps its ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._broker: EmbeddedBroker | None = None

    @property
    def broker(self) -> EmbeddedBroker:
        if self._broker is None:
            raise ServerError("the embedded broker is not running")
        return self._broker

    @property
    def pid(self) -> int:
        return self.broker.pid

    def start(self) -> None:
        self._broker = self._running.enter_context(embedded_blocking(self._folder))

    def stop(self) -> None:
        self._running.close()
        self._broker = None

    def kill(self) -> None:
        os.kill(self.pid, 9)
        self.stop()


@contextmanager
def embedded(folder: Path) -> Iterator[Backend]:
    """The embedded broker; a kill of it loses up to a second of acknowledged writes."""
    server = Embedded(folder)
    server.start()
    try:
        yield Backend("embedded", server.broker.kafka, server.broker.redis, server, server)
    finally:
        server.stop()


@contextmanager
def real(folder: Path) -> Iterator[Backend]:
    """A Kafka and a Redis of our own, or those that KAFKA_BOOTSTRAP and REDIS_URL name when both are set."""
    given = _given()
    if given is not None:
        yield Backend("real", *given)
        return
    with Redis(folder / "redis") as redis, Kafka(folder / "kafka") as kafka:
        yield Backend("real", kafka.bootstrap, redis.url, kafka, redis)


BACKENDS: Mapping[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "embedded": embedded,
    "real": real,
}


def unavailable(name: str) -> str | None:
    """Why the backend `name` cannot be used here, or None."""
    if name == "embedded":
        return None if importlib.util.find_spec("noida_db") else "the package noida-db is not installed"
    return None if _given() else kafka_available() or redis_available()


def _given() -> tuple[str, str] | None:
    kafka, redis = os.environ.get("KAFKA_BOOTSTRAP"), os.environ.get("REDIS_URL")
    return (kafka, redis) if kafka and redis else None
