"""Every service killed at every named place between two steps: each round has one command and one entry of its firing.

The stack is started once. A service that died at one point is started again with its next one, while rounds go on.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from itertools import count
from typing import Any

import pytest

from tests.broker.conftest import Install, Installed
from tests.broker.events import event, give
from tests.chaos.fleet import SERVICES, Member, points_of
from tests.e2e.outside import Outside, Record
from tests.servers.services import READS
from tidegate import (
    Asset,
    DayWindow,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfDayMapper,
    WaitForAll,
)
from tidegate.core.audit import AuditKind
from tidegate.definitions import Definitions
from tidegate.runtime.applying import apply_definitions

A, B, C = Asset("a"), Asset("b"), Asset("c")
SHORTLY = WaitForAll().or_after(timedelta(milliseconds=300))
LATE = Job("late", PartitionedAssetTimetable(C, RollupMapper(StartOfDayMapper(), DayWindow(), SHORTLY)))
"""Its rounds end by their deadline, with one event."""
DEADLINE_S = 300
POLL_S = 0.05


def pair(number: int) -> Job:
    """A job whose definition changes in nothing that places events."""
    return Job("pair", PartitionedAssetTimetable(A & B), description=str(number))


class Crashes:
    """One process of every service, each of which dies at its crash points one after the other."""

    def __init__(self, at: Installed) -> None:
        env = {"TIDEGATE_NAMESPACE": at.namespace, "TIDEGATE_INSTANCE_ID": "one"}
        self._members = {name: Member(name, 0, at.backend, at.log_folder, env) for name in SERVICES}
        self._left = {name: points_of(name) for name in SERVICES}
        self._armed: dict[str, str | None] = {}
        self.died_at: list[str] = []

    def start(self) -> None:
        for name in SERVICES:
            self._start(name)

    def stop(self) -> None:
        for member in self._members.values():
            member.stop()

    @property
    def armed(self) -> list[str]:
        """The points at which some process will still die."""
        return [point for point in self._armed.values() if point is not None]

    def restart_dead(self) -> bool:
        """Start again what died where it should; whether there was any."""
        dead = [name for name in SERVICES if not self._members[name].is_running]
        for name in dead:
            member, point = self._members[name], self._armed[name]
            assert (member.exit_code, point is None) == (-signal.SIGKILL, False), (name, member.log_tail())
            self.died_at.append(str(point))
            self._start(name)
        return bool(dead)

    def tails(self) -> str:
        return "".join(member.log_tail(4) for member in self._members.values())

    def _start(self, name: str) -> None:
        self._armed[name] = self._left[name].pop(0) if self._left[name] else None
        self._members[name].start_with(self._armed[name] and f"{self._armed[name]}:1")


def by_round(commands: Sequence[Record]) -> Counter[tuple[str, str]]:
    return Counter((record.value["job"], record.value["partition_key"]) for record in commands)


def fired(audit: Mapping[str, Mapping[str, Any]]) -> Counter[str]:
    """How many entries say of each run that its round has fired."""
    return Counter(
        run["run_id"]
        for entry in audit.values()
        if entry["kind"] == AuditKind.FIRED
        for run in entry["details"]["runs"]
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["real"], indirect=True)
def test_a_kill_at_any_crash_point_gives_every_round_one_command_and_one_entry(install: Install) -> None:
    at = install(partitions=2, shards=4)
    wanted: dict[tuple[str, str], set[str]] = {}
    numbers = count()

    def give_rounds() -> None:
        """A round of each job, and a new revision of one of them."""
        number = next(numbers)
        day = (date(2026, 1, 1) + timedelta(days=number)).isoformat()
        asyncio.run(apply_definitions(at.kafka, Definitions((pair(number), LATE))))
        ids = {asset: f"{asset}{number}" for asset in "abc"}
        events = [event(ids[asset], asset, partition_key=f"r{number}") for asset in "ab"]
        asyncio.run(give(at, *events, event(ids["c"], "c", partition_key=f"{day}T03"), partition=number % 2))
        wanted["pair", f"r{number}"], wanted["late", day] = {ids["a"], ids["b"]}, {ids["c"]}

    give_rounds()
    crashes = Crashes(at)
    deadline = time.monotonic() + DEADLINE_S
    with Outside(at.kafka) as outside:

        def commands() -> list[Record]:
            return outside.read("run-commands.pair", "run-commands.late")

        def is_settled() -> bool:
            return not any(
                outside.waiting(f"{at.namespace}-{name}", READS[name], None, 1) for name in SERVICES
            )

        try:
            crashes.start()
            while crashes.armed or not (len(commands()) >= len(wanted) and is_settled()):
                assert time.monotonic() < deadline, (
                    f"armed: {crashes.armed}, died at {crashes.died_at}, {len(commands())} commands for"
                    f" {len(wanted)} rounds{crashes.tails()}"
                )
                if not crashes.restart_dead() and crashes.armed and len(commands()) >= len(wanted):
                    give_rounds()
                time.sleep(POLL_S)
            found = commands()
            audit = {record.value["id"]: record.value for record in outside.read("audit-log")}
        finally:
            crashes.stop()
    print(f"died at {crashes.died_at}; {len(wanted)} rounds")
    assert sorted(crashes.died_at) == sorted(point for name in SERVICES for point in points_of(name))
    assert by_round(found) == dict.fromkeys(wanted, 1)
    for record in found:
        events = {each["id"] for each in record.value["triggering_asset_events"]}
        assert events == wanted[record.value["job"], record.value["partition_key"]]
    assert fired(audit) == dict.fromkeys((record.value["run_id"] for record in found), 1)
    assert {entry["kind"] for entry in audit.values()} == {AuditKind.CONSUMER_REGISTERED, AuditKind.FIRED}
