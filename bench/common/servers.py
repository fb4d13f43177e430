"""A real Kafka and a real Redis (append-only file, fsync every second) for the length of a measurement."""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.common.results import Report, add_json_option, finish
from tests.servers.kafka import Kafka, kafka_available
from tests.servers.redis import Redis, redis_available


class BenchKafka(Kafka):
    """With the whole compiler, which tests do without, and what tests hurry as Kafka has it by default."""

    jvm = ("-Xms1g", "-Xmx1g")

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            {
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
                "log.cleaner.backoff.ms": "15000",
                "log.retention.check.interval.ms": "300000",
            },
        )


@dataclass(frozen=True, slots=True)
class Servers:
    """Where Kafka and Redis answer, and their processes."""

    kafka_server: Kafka
    redis_server: Redis
    folder: Path
    """For the logs of what runs beside them."""

    @property
    def kafka(self) -> str:
        return self.kafka_server.bootstrap

    @property
    def redis(self) -> str:
        return self.redis_server.url

    @property
    def pids(self) -> dict[str, int]:
        return {"kafka": self.kafka_server.pid, "redis": self.redis_server.pid}

    def bytes_of(self, topic: str) -> int:
        """How large the log of a topic is, with what Kafka adds to records and batches."""
        data = self.kafka_server.folder / "data"
        folders = (each for each in data.glob(f"{topic}-*") if each.name.rpartition("-")[0] == topic)
        return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


@contextmanager
def servers(folder: Path | None = None) -> Iterator[Servers]:
    """Both, with their data in `folder`, or in one that is removed; SystemExit where they cannot be started."""
    if reason := kafka_available() or redis_available():
        raise SystemExit(f"this measurement needs a real Kafka and a real Redis: {reason}")
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        redis = stack.enter_context(Redis(folder / "redis"))
        kafka = stack.enter_context(BenchKafka(folder / "kafka"))
        yield Servers(kafka, redis, folder)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where data and logs go and stay; else removed at the end"
    )


def on_servers(arguments: argparse.Namespace, measure: Callable[[Servers], Report]) -> None:
    """Measure on servers of its own, as `add_common_options` has it; exits with 1 where there are problems."""
    with servers(arguments.folder) as running:
        report = measure(running)
    finish(report, arguments.json)
