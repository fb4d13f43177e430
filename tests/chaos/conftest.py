"""The fixtures of broker tests, for processes that get killed."""

from tests.broker.conftest import install
from tests.fixtures import backend

__all__ = ["backend", "install"]
