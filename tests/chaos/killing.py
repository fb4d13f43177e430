"""SIGKILL for processes of a road that have work waiting, with a log that shows it."""

import json
import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

from tests.e2e.road import SERVICES, Road
from tests.servers.services import ServiceProcess

_DEADLINE_S = 45.0
_HELD_S = 0.5
_ENOUGH = 200


class Kill(NamedTuple):
    """One line of the log."""

    at_s: float
    """Seconds since the first event."""
    service: str
    process: str
    pid: int
    lag: int
    """Records of its partitions that its group has not committed, counted while it is frozen; not all of many."""
    own_lag: int | None
    """What its /readyz said just before; the worker has none."""
    restart: str


class Killer:
    """Kills processes of `road` in a random order and starts them again.

    A victim is frozen by SIGSTOP wherever it happens to be, so that its lag cannot shrink while it is measured, and
    dies there if work waits for it. If none comes within half a second, it goes on and is tried again.
    """

    def __init__(self, road: Road, dice: random.Random, log: Path) -> None:
        self._road, self._dice, self._log = road, dice, log
        self._began = time.monotonic()
        self._dead: list[str] = []
        self.kills: list[Kill] = []

    def plan(self, rounds: int) -> list[str]:
        """Every service and the worker once a round, in an order of its own each time."""
        return [
            name
            for _ in range(rounds)
            for name in self._dice.sample((*SERVICES, "worker"), len(SERVICES) + 1)
        ]

    def strike(self, service: str) -> Kill:
        """Kill one process of `service` with its lag above zero; fails when there is no such moment.

        A process that was left dead is started again when the next one has been killed, or sooner where that one is of
        the same service or has nothing to do without it.
        """
        if any(self._service_of(process) == service for process in self._dead):
            self._restart_dead()
        deadline = time.monotonic() + _DEADLINE_S
        while (kill := self._try(service)) is None:
            self._restart_dead()
            assert time.monotonic() < deadline, (
                f"no chance to kill {service} with work waiting for {_DEADLINE_S:g} s; killed so far: {self.kills}"
            )
        self.kills.append(kill)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(kill._asdict()) + "\n")
        self._restart_dead()
        self._dead.append(kill.process)
        if kill.restart == "at once":
            self._restart_dead()
        return kill

    def revive(self) -> None:
        """Start what is dead, and return when every service is ready."""
        self._restart_dead()
        for service in self._road.services.values():
            service.wait_ready(60)

    def _try(self, service: str) -> Kill | None:
        process, victim = self._choose(service)
        own_lag = None
        if victim is not None:
            if not (said := victim.ready()).get("ready"):
                return None
            own_lag = int(said["lag"])
        self._signal(victim, signal.SIGSTOP)
        lag = self._lag(service, victim)
        if not lag:
            self._signal(victim, signal.SIGCONT)
            return None
        pid = victim.pid if victim else self._road.worker.pid
        restart = self._dice.choice(("at once", "after the next kill"))
        kill = Kill(round(time.monotonic() - self._began, 2), service, process, pid, lag, own_lag, restart)
        self._road.worker.kill() if victim is None else victim.kill()
        return kill

    def _choose(self, service: str) -> tuple[str, ServiceProcess | None]:
        if service == "worker":
            return service, None
        living = [
            name for name, each in self._road.services.items() if each.name == service and each.is_running
        ]
        process = self._dice.choice(living)
        return process, self._road.services[process]

    def _lag(self, service: str, victim: ServiceProcess | None) -> int:
        """Records that wait in the partitions of the frozen victim, as soon as there are some or it must go on."""
        mine = None if victim is None else _partitions(victim)
        deadline = time.monotonic() + _HELD_S
        while True:
            lag = sum(self._road.waiting(service, mine, _ENOUGH).values())
            if lag or time.monotonic() > deadline:
                return lag

    def _signal(self, victim: ServiceProcess | None, number: signal.Signals) -> None:
        if victim is not None:
            victim.kill(number)
        elif number == signal.SIGSTOP:
            self._road.worker.pause()
        else:
            self._road.worker.resume()

    def _restart_dead(self) -> None:
        for process in self._dead:
            (self._road.worker if process == "worker" else self._road.services[process]).start()
        self._dead.clear()

    @staticmethod
    def _service_of(process: str) -> str:
        return process.partition("-")[0]


def _partitions(service: ServiceProcess) -> set[tuple[str, int]]:
    """The partitions that a service started to read last, from its log."""
    found: set[tuple[str, int]] = set()
    for line in service.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"partitions_started"' in line:
            places = (each.partition("@")[0].split("/") for each in json.loads(line)["partitions"])
            found = {(topic, int(number)) for topic, number in places}
    return found
