"""Every service and the worker killed with SIGKILL while work waits for them: still every run, each once."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.broker.conftest import Install
from tests.chaos.killing import Killer
from tests.chaos.readings_feed import SlowFeed, mixed_locally, some_doubled
from tests.e2e.checks import check
from tests.e2e.readings import all_readings
from tests.e2e.road import SERVICES, road

ROUNDS = 1
SESSION_TIMEOUT_MS = 2_000
MOST_PER_S, LEAST_PER_S = 350.0, 40.0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["real"], indirect=True)
def test_a_year_survives_kills(install: Install, tmp_path: Path) -> None:
    """One process a service, so that nobody takes over; several are struck by the chaos runs."""
    seed, replicas, doubles = 3, 1, 0.1
    log = tmp_path / f"kills-{seed}.jsonl"
    print(f"seed {seed}, {replicas} process(es) a service, log of kills: {log}")
    dice = random.Random(seed)
    events, twice = some_doubled(mixed_locally(all_readings(), dice), dice, doubles)
    installed = install(partitions=4, shards=16)
    with road(installed, replicas, SESSION_TIMEOUT_MS) as running:
        feed = SlowFeed(installed.kafka, events, rate=300)
        killer = Killer(running, dice, log)
        planned = killer.plan(ROUNDS)
        feed.start()
        began = time.monotonic()
        for number, service in enumerate(planned, start=1):
            killer.strike(service)
            # As fast as leaves something for the kills that are still to come.
            per_kill_s = (time.monotonic() - began) / number
            feed.rate = min(
                MOST_PER_S, max(LEAST_PER_S, feed.left / (1 + 1.5 * per_kill_s * (len(planned) - number)))
            )
        killed_s = time.monotonic() - began
        left = feed.left
        killer.revive()
        feed.hurry()
        check(running, all_readings(), days=365, months=12)
        kinds = running.audit_kinds()
        print(
            log.read_text(),
            f"{len(planned)} kills in {killed_s:.1f} s, {left} events left, audit: {dict(kinds)}",
        )
        assert kinds == ({"duplicate-event": twice} if twice else {})
        assert Counter(kill.service for kill in killer.kills) == dict.fromkeys((*SERVICES, "worker"), ROUNDS)
        assert all(kill.lag > 0 for kill in killer.kills)
