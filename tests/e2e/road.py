"""The example's whole road in separate processes: four services and a worker, fed and read by librdkafka."""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.broker.conftest import Installed
from tests.e2e.outside import Outside, Record
from tests.e2e.readings import EXAMPLE, Reading
from tests.servers.command_line import start
from tests.servers.process import Server
from tests.servers.services import READS

SERVICES = ("ingest", "mapper", "rollup", "dispatcher")
COMMANDS = ("run-commands.daily_temperatures", "run-commands.monthly_temperatures")
_POLL_S = 0.1


class WorkerProcess(Server):
    """The example's worker; counts as started once its process runs."""

    def __init__(self, installed: Installed, session_timeout_ms: int) -> None:
        super().__init__(installed.log_folder / "worker")
        self.results = self.folder / "results"
        self.group = f"{installed.namespace}-worker"
        self._env = {
            "TIDEGATE_KAFKA": installed.kafka,
            "TIDEGATE_NAMESPACE": installed.namespace,
            "TIDEGATE_GROUP": self.group,
            "TIDEGATE_SESSION_TIMEOUT_MS": str(session_timeout_ms),
            "TEMPERATURES_RESULTS": str(self.results),
        }

    def command(self) -> list[str]:
        settings = [f"{name}={value}" for name, value in self._env.items()]
        return ["env", *settings, sys.executable, "-m", "tests.e2e.worker"]

    def answers(self) -> bool:
        return self._process is not None and self._process.poll() is None


class Road:
    """Everything between the producers and the run commands; counts what came out."""

    def __init__(
        self, installed: Installed, outside: Outside, replicas: int, session_timeout_ms: int
    ) -> None:
        self.installed, self.outside = installed, outside
        self.services = {
            f"{name}-{number}": installed.service(
                name, f"{name}-{number}", TIDEGATE_SESSION_TIMEOUT_MS=str(session_timeout_ms)
            )
            for name in SERVICES
            for number in range(replicas)
        }
        self.worker = WorkerProcess(installed, session_timeout_ms)
        self.reads = {**READS, "worker": COMMANDS}

    def group(self, name: str) -> str:
        """The consumer group of a service, or of the worker."""
        return self.worker.group if name == "worker" else f"{self.installed.namespace}-{name}"

    def waiting(
        self, name: str, among: Collection[tuple[str, int]] | None = None, enough: int | None = None
    ) -> dict[tuple[str, int], int]:
        """Records per partition that a service, or the worker, has not committed yet; counted up to `enough`."""
        return self.outside.waiting(self.group(name), self.reads[name], among, enough)

    def commands(self) -> list[Record]:
        """Every run command so far."""
        return self.outside.read(*COMMANDS)

    def until_commands(self, count: int, timeout: float = 90) -> None:
        """Return when so many run commands are there; fails with what every process has left to do."""
        deadline = time.monotonic() + timeout
        while (found := len(self.commands())) < count:
            if time.monotonic() > deadline:
                behind = {name: sum(self.waiting(name, enough=1_000).values()) for name in self.reads}
                raise AssertionError(
                    f"{found} of {count} commands after {timeout:g} s, records waiting: {behind}{self._tails()}"
                )
            time.sleep(_POLL_S)

    def audit(self) -> dict[str, Mapping[str, Any]]:
        """Audit entries by id, without those of jobs that were created and rounds that fired.

        Written again after a crash, an entry has the same id.
        """
        return {entry["id"]: entry for entry in self.outside.audit()}

    def audit_kinds(self) -> Counter[str]:
        return Counter(entry["kind"] for entry in self.audit().values())

    def settle(self, timeout: float = 90) -> None:
        """Return when nothing is left to do anywhere: nobody has a record to commit, and no log grows meanwhile."""
        topics = sorted({topic for read in self.reads.values() for topic in read})
        deadline = time.monotonic() + timeout
        while True:
            before = self.outside.ends(topics)
            behind = {
                name: sum(waiting.values())
                for name in self.reads
                if (waiting := self.waiting(name, enough=1_000))
            }
            if not behind and self.outside.ends(topics) == before:
                return
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not settled after {timeout:g} s, records waiting: {behind}{self._tails()}"
                )
            time.sleep(_POLL_S)

    def start(self) -> None:
        """Start every process, and return when the services are ready."""
        for service in self.services.values():
            service.start()
        self.worker.start()
        for service in self.services.values():
            service.wait_ready(60)

    def stop(self) -> None:
        """Stop whatever runs, cleanly where that works."""
        running = [service for service in self.services.values() if service.is_running]
        for service in running:
            service.kill(signal.SIGCONT)  # a frozen process cannot stop
            service.kill(signal.SIGTERM)
        try:
            if self.worker.answers():
                self.worker.resume()
            self.worker.stop()
        finally:
            for service in running:
                service.stop()

    def _tails(self) -> str:
        return "".join(service.log_tail(4) for service in self.services.values())


@contextmanager
def road(installed: Installed, replicas: int = 1, session_timeout_ms: int = 10_000) -> Iterator[Road]:
    """A road with the example's definitions applied, running until the block ends."""
    tidegate(installed, "apply", str(EXAMPLE / "definitions.py"))
    with Outside(installed.kafka) as outside:
        built = Road(installed, outside, replicas, session_timeout_ms)
        try:
            built.start()
            yield built
        finally:
            built.stop()


def tidegate(installed: Installed, *arguments: str) -> str:
    """What the command line prints; fails with what it says when it does not end well."""
    return start(*arguments, at=installed).done


class Feeder:
    """Publishes readings, each acknowledged by the broker."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._errors: list[KafkaError] = []

    def send(self, reading: Reading) -> None:
        self._producer.produce("asset-events", reading.event, reading.asset, on_delivery=self._note)
        self._producer.poll(0)

    def flush(self) -> None:
        """Return when all is acknowledged."""
        assert self._producer.flush(30) == 0, "the broker did not acknowledge every event within 30 s"
        assert not self._errors, self._errors[:3]

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)


def feed(bootstrap: str, readings: Iterable[Reading]) -> None:
    """Publish readings in this order, as fast as it goes."""
    feeder = Feeder(bootstrap)
    for each in readings:
        feeder.send(each)
    feeder.flush()


def until(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    """Return when `condition` holds; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        time.sleep(_POLL_S)


def written_months(folder: Path) -> dict[str, Any]:
    """What the runs of months wrote, by month."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}
