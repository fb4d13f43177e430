"""The fixtures of broker tests, for processes that get killed, and servers that may be struck."""

from collections.abc import Iterator

import pytest

from tests.broker.conftest import install
from tests.chaos.driver import Stage, stage
from tests.fixtures import backend

__all__ = ["backend", "install"]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A Kafka and a pair of Redis that every chaos run clears before it begins."""
    with stage(tmp_path_factory.mktemp("stage")) as running:
        yield running
