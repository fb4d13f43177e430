"""The pair of servers that broker and end-to-end tests and kills run against, one fixture for all of them."""

from contextlib import ExitStack

import pytest

from tests.servers.backends import BACKENDS, Backend, unavailable

_running: dict[str, Backend] = {}
_stop = ExitStack()


@pytest.fixture(scope="session", params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """The embedded broker and, where they can be started, a real Kafka with a real Redis.

    `@pytest.mark.parametrize("backend", ["real"], indirect=True)` takes only one of them. Each is started by the first
    test that asks for it and runs to the end of this process: pytest, to which every folder that imports the fixture
    has one of its own, would stop and start it at every change of folder or backend.
    """
    name: str = request.param
    if reason := unavailable(name):
        pytest.skip(reason)
    if name not in _running:
        _running[name] = _stop.enter_context(BACKENDS[name](tmp_path_factory.mktemp(name)))
    return _running[name]


def stop_backends() -> None:
    """Stop what the tests of this process have started."""
    _running.clear()
    _stop.close()
