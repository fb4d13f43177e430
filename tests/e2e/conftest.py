"""The fixtures of broker tests, for the whole road."""

from tests.broker.conftest import install
from tests.fixtures import backend

__all__ = ["backend", "install"]
