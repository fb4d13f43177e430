"""Whether it stays as fast as it grows: latency and processor time with more pending members, and with more jobs.

Measured as in `python -m bench pipeline`: the real services beside a real Kafka and a real Redis (append-only file,
fsync every second) on one machine; 24-member days of one job at full speed (processor time of services, Kafka and
Redis for 1,000 events) and at a fixed rate (latency from the instant at which a command's last event was due to be
published to its receipt by an independent reader, which checks that exactly the commands due came).
Pending: before each measurement rounds of ten other jobs on one other asset are filled with 23 of their 24 members,
until so many members wait. Jobs: so many are defined in all, the others each on an asset of its own, from which
nothing comes; they share one topic of commands. Starting: each service by itself, from the start of the process until
it says that it is ready, with so many jobs defined; looked at every 50 ms.
Bytes: of Redis 7 with jemalloc, for a pending member with an event id of 36 characters and no extra; `rounds` is the
memory of the keys that rounds which wait consist of (MEMORY USAGE, every element), `all` the growth of used_memory,
with ingest's marks of the events.
Not included: more than one process of a service, events of other jobs at the same time.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from typing import NamedTuple

from bench.common.deployment import Deployment, deployment
from bench.common.measuring import AtRate, Bench, FullSpeed
from bench.common.memory import PENDING, held_by_kind, used_memory
from bench.common.receiving import Receiver
from bench.common.results import Report, Row, Table, note, rounded
from bench.common.servers import Servers, add_common_options, on_servers
from bench.common.workloads import Workload, days, fan_in
from bench.pipeline import add_warm_up_options, pace_columns
from tidegate import Asset, DayWindow, Job, PartitionedAssetTimetable, RollupMapper, StartOfHourMapper

PENDING_LEVELS = (0, 10_000, 100_000, 1_000_000)
JOB_LEVELS = (1, 100, 10_000)
_FILLERS, _GATHERED = 10, 40
_LEAST_S = 0.01


@dataclass(frozen=True, slots=True)
class Load:
    """How each state of the system is measured."""

    events: int
    """At full speed."""
    warm_up: int
    rate: float
    seconds: float
    warm_s: float

    def measure(self, bench: Bench) -> tuple[FullSpeed, AtRate]:
        return bench.at_full_speed(self.events), bench.at_rate(self.rate, self.seconds, self.warm_s)


def run(
    servers: Servers, load: Load, *, pending: Sequence[int], jobs: Sequence[int], gathered: int = _GATHERED
) -> Report:
    """What depends on pending members, and what on jobs; either may be left out.

    `gathered` rounds of 1,440 members show what one of those takes in Redis.
    """
    options = {"events": load.events, "events/s": load.rate, "seconds": load.seconds}
    report = Report("growth", __doc__ or "", options)
    if pending:
        _by_pending(servers, load, sorted(pending), gathered, report)
    if jobs:
        _by_jobs(servers, load, jobs, report)
    return report


def _by_pending(servers: Servers, load: Load, levels: Sequence[int], gathered: int, report: Report) -> None:
    measured, filler = days(1), days(_FILLERS, asset="filler", prefix="filler")
    minutes = fan_in(gathered)
    found: list[tuple[FullSpeed, AtRate]] = []
    rows: list[Row] = []
    with (
        deployment(servers, [*measured.jobs, *map(_silent, (*filler.jobs, *minutes.jobs))]) as deployed,
        Receiver(servers.kafka, measured.topics) as receiver,
    ):
        bench = Bench(servers, deployed, measured, receiver)
        bench.warm_up(load.warm_up)
        waiting = _Waiting(servers, deployed)
        for level in levels:
            waiting.fill(filler, level)
            found.append(load.measure(bench))
            rows.append({"pending members": waiting.members, **_columns(found[-1], found[0])})
            note(f"{rows[-1]}")
        kept = [waiting.bytes_per_member("24 (one missing)")]
        before = waiting.held
        waiting.fill(minutes, waiting.members + 1)
        kept.append(waiting.bytes_per_member("1,440 (one missing)", since=before))
        held = held_by_kind(servers.redis, deployed.namespace)
        report.problems += bench.problems
    report.tables += [
        Table("By pending members", rows),
        Table("Redis, bytes a pending member", kept),
        Table(
            f"Redis at the end, {waiting.members} members pending",
            [
                {"kind": kind, "keys": each.keys, "MiB": rounded(each.size / 2**20)}
                for kind, each in held.items()
            ],
        ),
    ]


class _Waiting:
    """Rounds of which one event is missing."""

    def __init__(self, servers: Servers, deployed: Deployment) -> None:
        self._servers, self._deployed = servers, deployed
        self._steps: Counter[str] = Counter()
        self.members = 0
        self.held = _Held(0, 0, 0)

    def fill(self, workload: Workload, members: int) -> None:
        """Open whole steps until so many members wait in all."""
        each = (workload.events_per_step - 1) * workload.spread
        count = max(0, ceil((members - self.members) / each))
        first = self._steps[workload.name]
        steps = (workload.step(number) for number in range(first, first + count))
        if not count:
            return
        before = used_memory(self._servers.redis)
        self._deployed.feed(chain.from_iterable(step.events[:-1] for step in steps))
        grown = used_memory(self._servers.redis) - before
        self._steps[workload.name] += count
        self.members += count * each
        kinds = held_by_kind(self._servers.redis, self._deployed.namespace)
        rounds = sum(kinds[kind].size for kind in PENDING if kind in kinds)
        self.held = _Held(self.members, rounds, self.held.grown + grown)

    def bytes_per_member(self, window: str, since: "_Held | None" = None) -> Row:
        """Of the members that wait, or that came `since`."""
        before = since or _Held(0, 0, 0)
        members = self.held.members - before.members
        return {
            "members of a round": window,
            "pending members": members,
            "rounds": rounded((self.held.rounds - before.rounds) / members, 1) if members else None,
            "all": rounded((self.held.grown - before.grown) / members, 1) if members else None,
        }


class _Held(NamedTuple):
    """Members that wait, the bytes of their rounds, and how much Redis grew when they came."""

    members: int
    rounds: int
    grown: int


def _by_jobs(servers: Servers, load: Load, levels: Sequence[int], report: Report) -> None:
    found: list[tuple[FullSpeed, AtRate]] = []
    rows: list[Row] = []
    started: list[Row] = []
    measured = days(1)
    for level in levels:
        others = [_other_job(number) for number in range(level - 1)]
        with (
            deployment(servers, [*measured.jobs, *others], one_by_one=True) as deployed,
            Receiver(servers.kafka, measured.topics) as receiver,
        ):
            bench = Bench(servers, deployed, measured, receiver)
            bench.warm_up(load.warm_up)
            found.append(load.measure(bench))
            rows.append({"jobs": level, **_columns(found[-1], found[0])})
            started.append(
                {"jobs": level, **{name: rounded(took) for name, took in deployed.started_s.items()}}
            )
            note(f"{rows[-1]}")
            note(f"{started[-1]}")
            report.problems += bench.problems
    report.tables += [Table("By jobs", rows), Table("Seconds until a service is ready", started)]


def _columns(found: tuple[FullSpeed, AtRate], first: tuple[FullSpeed, AtRate]) -> Row:
    """Figures, and how they compare with the first."""
    (full, pace), (first_full, first_pace) = found, first
    return {
        "events/s": rounded(full.events_per_s),
        "full speed cpu s/1,000": rounded(_cpu(full), 3),
        "times the first": rounded(_cpu(full) / _cpu(first_full)),
        **pace_columns(pace),
        "p50 times the first": rounded(pace.percentile_ms(50) / first_pace.percentile_ms(50)),
        "p99 times the first": rounded(pace.percentile_ms(99) / first_pace.percentile_ms(99)),
    }


def _cpu(found: FullSpeed) -> float:
    """Processor seconds for 1,000 events of all processes; of a run too short to be seen, what can be seen at all."""
    return max(sum(found.cpu_per_1000.values()), 1000 * _LEAST_S / found.events)


def _other_job(number: int) -> Job:
    name = f"other_{number:05}"
    schedule = PartitionedAssetTimetable(
        Asset(name), default_partition_mapper=RollupMapper(StartOfHourMapper(), DayWindow())
    )
    return _silent(Job(name, schedule))


def _silent(job: Job) -> Job:
    """The job with a topic that all share of which no command comes: thousands of topics would be measured too."""
    return replace(job, run_commands_topic="run-commands.others")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pending", default=_listed(PENDING_LEVELS), metavar="MEMBERS", help="or '' for none"
    )
    parser.add_argument("--jobs", default=_listed(JOB_LEVELS), metavar="JOBS", help="or '' for none")
    parser.add_argument(
        "--events", type=int, default=60_000, metavar="N", help="at full speed, at every level"
    )
    parser.add_argument("--rate", type=float, default=1_000, metavar="EVENTS_PER_S")
    parser.add_argument("--seconds", type=float, default=30, metavar="S", help="at that rate")
    add_warm_up_options(parser)
    add_common_options(parser)
    parser.set_defaults(run=_main)


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _main(arguments: argparse.Namespace) -> None:
    load = Load(
        events=arguments.events,
        warm_up=arguments.warm_up,
        rate=arguments.rate,
        seconds=arguments.seconds,
        warm_s=arguments.warm_seconds,
    )
    on_servers(
        arguments,
        lambda running: run(
            running, load, pending=_numbers(arguments.pending), jobs=_numbers(arguments.jobs)
        ),
    )
