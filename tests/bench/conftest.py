"""The servers of the other tests, for measurements that must stay runnable."""

from tests import fixtures

backend = fixtures.backend
