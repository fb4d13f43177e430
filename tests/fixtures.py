"""The pair of servers that broker, end-to-end and chaos tests run against, one fixture for all of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers.backends import BACKENDS, Backend, unavailable


@dataclass(slots=True)
class _Shared:
    backend: Backend
    stop: ExitStack = field(default_factory=ExitStack)
    users: int = 0


_running: dict[str, _Shared] = {}


@pytest.fixture(scope="session", params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """The embedded broker and, where they can be started, a real Kafka with a real Redis.

    `@pytest.mark.parametrize("backend", ["real"], indirect=True)` takes only one of them.
    """
    if reason := unavailable(request.param):
        pytest.skip(reason)
    with shared_backend(request.param, tmp_path_factory.mktemp) as running:
        yield running


@contextmanager
def shared_backend(name: str, new_folder: Callable[[str], Path]) -> Iterator[Backend]:
    """The running backend of that name, started for the first user and stopped after the last.

    Every folder of tests that imports the fixture has a copy of its own for pytest; they use one pair of servers.
    """
    if name not in _running:
        stop = ExitStack()
        _running[name] = _Shared(stop.enter_context(BACKENDS[name](new_folder(name))), stop)
    shared = _running[name]
    shared.users += 1
    try:
        yield shared.backend
    finally:
        shared.users -= 1
        if not shared.users:
            _running.pop(name).stop.close()
