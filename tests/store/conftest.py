"""What store tests share: a Redis of their own, once the real one and once the embedded broker's."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.servers.redis import Redis, redis_available
from tidegate.runtime.embedded import embedded_blocking


@contextmanager
def _real(folder: Path) -> Iterator[str]:
    with Redis(folder) as redis:
        yield redis.url


@contextmanager
def _embedded(folder: Path) -> Iterator[str]:
    with embedded_blocking(folder) as broker:
        yield broker.redis


_SERVERS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {"embedded": _embedded, "real": _real}


def _unavailable(name: str) -> str | None:
    if name == "real":
        return redis_available()
    return None if importlib.util.find_spec("noida_db") else "the package noida-db is not installed"


@pytest.fixture(scope="session", params=sorted(_SERVERS))
def redis_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that only these tests use: they may flush it."""
    if reason := _unavailable(request.param):
        pytest.skip(reason)
    with _SERVERS[request.param](tmp_path_factory.mktemp("redis")) as url:
        yield url
