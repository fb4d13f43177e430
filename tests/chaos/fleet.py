"""Every service and the worker as separate processes, several of each, with what they have left to do."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from tests.chaos import launch
from tests.chaos.jobs import WORKED, commands_topic
from tests.e2e.outside import Outside
from tests.servers.services import READS, Servers, ServiceProcess
from tidegate.runtime.crash_points import POINTS, VARIABLE

SERVICES: Final = ("ingest", "mapper", "rollup", "dispatcher")
EVERYBODY: Final = (*SERVICES, "worker")
_ENOUGH: Final = 200
_READ_FROM: Final = re.compile(r"partition (\S+)/(\d+) is read from offset")


class RawOutside(Outside):
    """Reads values as bytes, since some are poison."""

    deadline_s = 45.0

    def value_of(self, raw: bytes | None) -> Any:
        return raw

    def begin_anew(self) -> None:
        """With new connections: some never find a restarted broker, or the coordinator of a group, again."""
        for consumer in (self._reader, *self._groups.values()):
            consumer.close()
        self._groups.clear()
        self._reader = Consumer({**self._settings, "group.id": "outside"})


class Member(ServiceProcess):
    """One replica of a service, or one worker."""

    def __init__(
        self, name: str, number: int, servers: Servers, folder: Path, env: Mapping[str, str]
    ) -> None:
        super().__init__(name, servers, folder, env, f"{name}-{number}")
        self.label = f"{name}-{number}"
        self.module = "tests.chaos.worker" if name == "worker" else "tests.chaos.launch"
        self._env[launch.SERVICE] = name

    def start_with(self, point: str | None) -> None:
        """Start, with a crash point where one is given."""
        if point is not None:
            self._env[VARIABLE] = point
        try:
            self.start()
        finally:
            self._env.pop(VARIABLE, None)

    def is_ready(self) -> bool:
        """Whether it has work to lose: services say so, a worker is as soon as it runs."""
        return self.is_running and (self.name == "worker" or self.ready().get("ready") is True)

    def partitions(self) -> set[tuple[str, int]]:
        """The partitions that it started to read last, from its log."""
        found: set[tuple[str, int]] = set()
        if not self.log_file.exists():
            return found
        for line in self.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"partitions_started"' in line:
                places = (each.partition("@")[0].split("/") for each in json.loads(line)["partitions"])
                found = {(topic, int(number)) for topic, number in places}
            elif reads := _READ_FROM.search(line):
                found.add((reads[1], int(reads[2])))
        return found

    def is_stopped(self) -> bool:
        """Whether it is frozen by SIGSTOP."""
        if not self.is_running:
            return False
        state = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        return state.rpartition(")")[2].split()[0] == "T"


class Fleet:
    """All processes of a run."""

    def __init__(
        self,
        servers: Servers,
        namespace: str,
        jobs: Collection[str],
        folder: Path,
        replicas: int,
        session_timeout_ms: int,
        sabotage: str | None = None,
    ) -> None:
        self.namespace = namespace
        worked = [job for job in jobs if job in WORKED]
        self.reads = dict(READS)
        if worked:
            self.reads["worker"] = tuple(commands_topic(job) for job in worked)
        self.clocks = {name: folder / f"clock-{name}" for name in EVERYBODY}
        self.outside = RawOutside(servers.kafka)
        self._servers, self._folder = servers, folder
        self._env = {
            "TIDEGATE_NAMESPACE": namespace,
            "TIDEGATE_SESSION_TIMEOUT_MS": str(session_timeout_ms),
            "TIDEGATE_CHAOS_JOBS": ",".join(worked),
            **({launch.SABOTAGE: sabotage} if sabotage else {}),
        }
        self.members: list[Member] = []
        for name in self.reads:
            for _ in range(replicas):
                self.add(name)

    def add(self, name: str) -> Member:
        """One more replica of a service, not started."""
        env = {**self._env, launch.CLOCK: str(self.clocks[name])}
        member = Member(name, len(self.of(name)), self._servers, self._folder, env)
        self.members.append(member)
        return member

    def of(self, name: str) -> list[Member]:
        return [member for member in self.members if member.name == name]

    def start(self) -> None:
        for member in self.members:
            if not member.is_running:
                member.start()
        for member in self.members:
            if member.name != "worker":
                member.wait_ready(90)

    def stop(self) -> None:
        """Stop whatever runs, and close the client."""
        running = [member for member in self.members if member.is_running]
        for member in running:
            os.kill(member.pid, signal.SIGCONT)
            os.kill(member.pid, signal.SIGTERM)
        for member in running:
            member.stop()
        self.outside.__exit__()

    def waiting(self, member: Member) -> int:
        """Records of the member's partitions that its group has not committed, counted up to some hundred."""
        group = f"{self.namespace}-{member.name}"
        mine = member.partitions()
        found = self.outside.waiting(group, self.reads[member.name], mine or None, _ENOUGH)
        return sum(found.values())

    def behind(self) -> dict[str, int]:
        """Records that wait for each service, without those for which none do."""
        found = {
            name: sum(
                self.outside.waiting(f"{self.namespace}-{name}", self.reads[name], None, 1_000).values()
            )
            for name in self.reads
        }
        return {name: count for name, count in found.items() if count}

    def settle(self, timeout: float, more: Callable[[], int] = lambda: 0) -> dict[str, int]:
        """Return when nothing is left to do, not even `more`, and no log grows; or what is left at the end."""
        topics = sorted({topic for read in self.reads.values() for topic in read} | {"audit-log"})
        deadline = time.monotonic() + timeout
        behind: dict[str, int] = {"unknown": 1}
        while time.monotonic() < deadline:
            try:
                before = self.outside.ends(topics)
                behind = self.behind() or ({"deadlines": count} if (count := more()) else {})
                if not behind and self.outside.ends(topics) == before:
                    return {}
            except (KafkaException, AssertionError):
                self.outside.begin_anew()  # a coordinator that is not there yet, a broker that does not answer
            time.sleep(0.3)
        return behind


def points_of(name: str) -> list[str]:
    """The crash points that a service passes."""
    found = [point for point in POINTS if point.startswith(f"{name}.")]
    return [*found, "transaction.produced"] if name in ("dispatcher", "worker") else found
