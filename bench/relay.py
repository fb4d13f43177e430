"""The yardstick: how many events a second a bare chain copies that decides nothing.

Included: four processes (bench/hop.py) with as many hops, topics and partitions, the same record sizes and topic
settings as the real services; acks=all and idempotence, each batch acknowledged and then committed; in the place of
the rollup one call for every shard of a partition to a script in Redis that does nothing, with all that was read; the
last hop in transactions, two transactional ids in turn; uvloop where it is installed; the receipt of the last record
by an independent reader of committed records. Kafka and Redis (append-only file, fsync every second) run on the same
machine.
Not included: publishing (the backlog is there before the first process is let go), parsing, decisions, marks for
repeated events, state of rounds and runs.

Modes: `single`, one message a record on every topic; `packed`, 500 messages a record on the two inner ones. Fillers
stand for the messages, of the sizes that the workload's have. `--against` runs a script with the command line `SCRIPT
BOOTSTRAP REDIS_PORT EVENTS KEEP RECORD_BYTES`, which prints "<n> events/s", in turn with them; all records of all
modes then have RECORD_BYTES.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench.common.deployment import INSTALLATION, fresh_topics
from bench.common.feeding import Record
from bench.common.measuring import HELD_FOR_MS, Bench, FullSpeed
from bench.common.receiving import Receiver
from bench.common.results import Report, Table, middle, note, rounded
from bench.common.servers import Servers, add_common_options, on_servers
from bench.common.workloads import Command, Event, Sizes, Workload, workload
from bench.hop import KEY, Hop
from tests.servers.services import ServiceProcess
from tidegate.contracts.topics import (
    ACCEPTED,
    ASSET_EVENTS,
    CONTRIBUTIONS,
    MAX_INTERNAL_BYTES,
    RUN_REQUESTS,
    Topic,
    declared_topics,
    run_commands_topic,
)

MODES: Final = ("single", "packed")
_HOPS: Final = ("hop-ingest", "hop-mapper", "hop-rollup", "hop-dispatcher")
_PACKED: Final = {"single": (False,) * 5, "packed": (False, True, True, False, False)}
_numbers = count(1)


class Relay:
    """Four processes. Subject of measurements: every command that is due is one more record on its last topic."""

    def __init__(self, servers: Servers, workload: Workload, sizes: Sizes, mode: str) -> None:
        number = next(_numbers)
        self.topics = _topics(f"relay-{number}-{mode}")
        names = [topic.name for topic in self.topics]
        self.topic, self.commands = names[0], names[-1]
        self._event = b"x" * sizes.event
        logs = servers.folder / f"relay-{number}-{mode}"
        self.hops: dict[str, ServiceProcess] = {}
        for index, name in enumerate(_HOPS):
            hop = Hop(
                kafka=servers.kafka,
                redis=servers.redis,
                source=names[index],
                target=names[index + 1],
                group=f"{name}-{number}",
                size_in=sizes[index],
                size_out=sizes[index + 1],
                packed_in=_PACKED[mode][index],
                packed_out=_PACKED[mode][index + 1],
                session_timeout_ms=HELD_FOR_MS,
            )
            if name == "hop-mapper":
                hop = replace(hop, spread=workload.spread)
            elif name == "hop-rollup":
                hop = replace(hop, keep=workload.keep, scripts=INSTALLATION.shards // INSTALLATION.partitions)
            elif name == "hop-dispatcher":
                hop = replace(hop, is_transactional=True)
            self.hops[name] = ServiceProcess(name, servers, logs, hop.environment())
            self.hops[name].module = "bench.hop"

    @property
    def pids(self) -> Mapping[str, int]:
        return {name: hop.pid for name, hop in self.hops.items()}

    @property
    def front(self) -> int:
        return self.hops[_HOPS[0]].pid

    def records(self, events: Iterator[Event]) -> Iterator[Record]:
        """Spread over all partitions, which is the fastest for the clients."""
        for number, _ in enumerate(events):
            yield Record(KEY, self._event, number % INSTALLATION.partitions)

    def due(self, command: Command) -> Command:
        return Command(self.commands, KEY.decode())

    def settle(self) -> None:
        """It has nothing left once its records are there."""
        for name, hop in self.hops.items():
            if not hop.is_running:
                raise RuntimeError(f"{name} ended with {hop.exit_code}{hop.log_tail()}")


@contextmanager
def relay(servers: Servers, workload: Workload, sizes: Sizes, mode: str = "single") -> Iterator[Bench]:
    """A relay as long as the block is, on topics of its own, not yet warmed up."""
    chain = Relay(servers, workload, sizes, mode)
    fresh_topics(servers.kafka, chain.topics)
    try:
        for hop in chain.hops.values():
            hop.start()
        with Receiver(servers.kafka, [chain.commands]) as receiver:
            yield Bench(servers, chain, workload, receiver)
    finally:
        for hop in chain.hops.values():
            hop.stop()


def run(
    servers: Servers,
    workload: Workload,
    *,
    events: int,
    warm_up: int,
    repeats: int,
    modes: Sequence[str] = MODES,
    record_bytes: int | None = None,
    against: Path | None = None,
) -> Report:
    """Every mode, and the script `against`, in turn, so many times."""
    report = Report(
        "relay", __doc__ or "", {"workload": workload.title, "events": events, "repeats": repeats}
    )
    if against is not None and record_bytes is None:
        record_bytes = workload.sizes.event
    sizes = workload.sizes if record_bytes is None else Sizes(*[record_bytes] * 5)
    found: dict[str, list[FullSpeed]] = {mode: [] for mode in modes}
    others: list[float] = []
    for number in range(repeats):
        for mode in modes:
            with relay(servers, workload, sizes, mode) as bench:
                bench.warm_up(warm_up)
                found[mode].append(bench.at_full_speed(events))
                report.problems += [f"{mode}: {each}" for each in bench.problems]
            note(f"{number + 1}/{repeats} {mode}: {found[mode][-1].events_per_s:.0f} events/s")
        if against is not None:
            others.append(_other(against, servers, events, workload.keep, sizes.event))
            note(f"{number + 1}/{repeats} {against}: {others[-1]:.0f} events/s")
    report.tables = [_speeds(found, others, against), _cpu(found)]
    return report


def _speeds(found: Mapping[str, list[FullSpeed]], others: Sequence[float], against: Path | None) -> Table:
    speeds = {mode: [each.events_per_s for each in runs] for mode, runs in found.items()}
    if against is not None:
        speeds[against.name] = list(others)
    return Table(
        "Events a second",
        [
            {
                "mode": mode,
                "median": rounded(middle(each)),
                "slowest": rounded(min(each)),
                "fastest": rounded(max(each)),
                f"times {against.name}" if against else "times the first": rounded(
                    middle(each) / middle(others or next(iter(speeds.values())))
                ),
            }
            for mode, each in speeds.items()
        ],
    )


def _cpu(found: Mapping[str, list[FullSpeed]]) -> Table:
    return Table(
        "Processor seconds for 1,000 events (medians)",
        [
            {
                "mode": mode,
                **{
                    name: rounded(middle([each.cpu_per_1000[name] for each in runs]), 4)
                    for name in runs[0].cpu_s
                },
            }
            for mode, runs in found.items()
        ],
    )


def _topics(prefix: str) -> list[Topic]:
    """Five, with the partitions and settings of the real ones."""
    declared = {topic.name: topic for topic in declared_topics(INSTALLATION.partitions)}
    road = [declared[name] for name in (ASSET_EVENTS, ACCEPTED, CONTRIBUTIONS, RUN_REQUESTS)]
    road.append(run_commands_topic("relay", INSTALLATION.partitions))
    return [
        replace(topic, name=f"{prefix}-{topic.name}", max_message_bytes=MAX_INTERNAL_BYTES + 64 * 1024)
        for topic in road
    ]


def _other(script: Path, servers: Servers, events: int, keep: int, size: int) -> float:
    port = str(urlsplit(servers.redis).port)
    done = subprocess.run(
        [sys.executable, str(script), servers.kafka, port, str(events), str(keep), str(size)],
        env={**os.environ, "UV": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.search(r"([\d.]+) events/s", done.stdout)
    if done.returncode or said is None:
        raise RuntimeError(f"{script} ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return float(said[1])


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", default="a", help="which fan-in and fan-out it has (default a)")
    parser.add_argument("--events", type=int, default=120_000, metavar="N")
    parser.add_argument(
        "--warm-up", type=int, default=20_000, metavar="N", help="events before, not measured"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both")
    parser.add_argument("--record-bytes", type=int, metavar="N", help="one size for all records")
    parser.add_argument("--against", type=Path, metavar="SCRIPT", help="another relay, run in turn")
    add_common_options(parser)
    parser.set_defaults(run=_main)


def _main(arguments: argparse.Namespace) -> None:
    chosen = workload(arguments.workload)
    on_servers(
        arguments,
        lambda running: run(
            running,
            chosen,
            events=arguments.events,
            warm_up=arguments.warm_up,
            repeats=arguments.repeats,
            modes=MODES if arguments.mode == "both" else (arguments.mode,),
            record_bytes=arguments.record_bytes,
            against=arguments.against,
        ),
    )
