"""A real Kafka 4.3.1: one node in KRaft mode, jars fetched once by Maven into a cache."""

import base64
import os
import re
import shutil
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.servers.process import HOST, Server, ServerError, exchange, free_ports

VERSION = "4.3.1"
_JAVA_AT_LEAST = 17
# The simple compiler and collector: a broker that lives for a test starts with 40 % less of the processor by them.
_JVM = ("-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# as size, key, version, correlation id, no client id, body
_METADATA = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)
_FIND_COORDINATORS = [  # of a group and of a transactional id, both named "t"
    struct.pack(">ihhihh1sb", 14, 10, 1, 1, -1, 1, b"t", kind) for kind in (0, 1)
]

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # one node, and few internal partitions so that the first group and transaction start at once
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # what tests would otherwise wait for
    "broker.session.timeout.ms": "3000",  # a killed broker may come back after this, else 9 s
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
}


class Kafka(Server):
    """A broker with its data in `folder`; `bootstrap` stays the same over stop, kill and start."""

    poll_s = 0.1  # each look costs the starting broker something
    jvm: tuple[str, ...] = _JVM
    """What the virtual machine of the broker is told."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self._port, self._controller = free_ports(2)
        self._settings = dict(settings or {})

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {
            "controller.quorum.voters": f"1@{HOST}:{self._controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self._data),
        }
        lines = [f"{name}={value}\n" for name, value in {**_SETTINGS, **own, **self._settings}.items()]
        self._properties.write_text("".join(lines), encoding="utf-8")
        if not self._data.exists():
            self._format()
        super().start()

    def command(self) -> list[str]:
        return [*_java(self.jvm), "kafka.Kafka", str(self._properties)]

    def answers(self) -> bool:
        brokers = exchange(self._port, _METADATA)[8:12]
        if brokers != b"\0\0\0\1":  # it does not count itself as alive yet
            return False
        # asking also creates the internal topics, so that no test meets a broker without coordinators
        return all(exchange(self._port, ask)[12:14] == b"\0\0" for ask in _FIND_COORDINATORS)

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        storage = [*_java(), "kafka.tools.StorageTool", "format"]
        storage += ["-t", cluster.replace("-", "_"), "-c", str(self._properties)]  # "-..." reads as an option
        _run(storage, f"{self._data} could not be formatted")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"


@cache
def kafka_available() -> str | None:
    """Why no Kafka can be started here, or None."""
    if shutil.which("java") is None:
        return "java is not installed"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < _JAVA_AT_LEAST:
        return f"java {_JAVA_AT_LEAST} or newer is needed, found {shown.splitlines()[:1]}"
    if not _jar_folder().is_dir() and shutil.which("mvn") is None:
        return f"neither mvn nor jars in {_jar_folder()}"
    return None


def jars() -> Path:
    """The folder of Kafka's jars, filled by Maven the first time (44 MB)."""
    folder = _jar_folder()
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # apart first: several test runs may do this at once
        with tempfile.TemporaryDirectory(dir=folder.parent) as fetched:
            goal = "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"
            maven = ["mvn", "-B", "-q", "-f", str(Path(__file__).with_name("pom.xml")), goal]
            maven += ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}/jars"]
            _run(maven, "Kafka's jars could not be fetched")
            try:
                Path(fetched, "jars").rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return folder


def _jar_folder() -> Path:
    root = os.environ.get("TIDEGATE_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "tidegate") / f"kafka-{VERSION}"


def _java(jvm: Sequence[str] = _JVM) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", *jvm, quiet, "-cp", str(jars() / "*")]


def _run(command: list[str], problem: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{problem}:\n{(done.stdout + done.stderr)[-2000:]}")
