"""The real services beside the relay: events, contributions and commands a second, processor time, memory, latency.

Included: ingest, mapper, rollup and dispatcher as one process each (`python -m tidegate_ingest` and so on) with
default settings, but for a long session timeout, as ingest is frozen while its backlog is written; a real Kafka and a
real Redis (append-only file, fsync every second) on the same machine, and the receipt of every command by an
independent reader of committed records (librdkafka), which checks that exactly the commands came that were due. Relay
(single records, see `python -m bench relay`, with the sizes that the services' messages have) and services take turns
with the same workload; both are warmed up, and the one that waits is idle.
At full speed: the backlog is in Kafka and the services are idle before ingest is let go; from then to the receipt of
the last command. Publishing is not included.
At a rate: each event is published by itself at its instant, whatever became of those before. Latency is from the
instant at which the last event of a command was due to be published to the receipt of the command, so publishing and
the reader are included; they share the processor with the services. Rates that full speed does not reach with a tenth
to spare are left out.
Where the milliseconds go: by the times with which the broker stamps the last event of a command, and what came of it,
on every topic of its road, in whole milliseconds.
Processor time is of whole processes, by /proc; publisher and reader are not counted. Peak memory is resident, over
the whole life of a process.
Not included: workers and reports, several processes of one service, replication, networks.

Workloads: a 24-member days, 1 job; b10, b100 24-member days, 10 and 100 jobs on one asset; c identity (every event a
run); d a join of three assets; e 1,440-member fan-in; f weekly fan-out (7 runs an event).
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence

from bench.common.duel import Duel, duel, services
from bench.common.measuring import AtRate, FullSpeed
from bench.common.results import Report, Row, Table, middle, note, rounded
from bench.common.road import Road, medians_and_tails
from bench.common.servers import Servers, add_common_options, on_servers
from bench.common.workloads import WORKLOADS, Workload, workload

RATES = (100.0, 1_000.0, 5_000.0)
_SPARE = 0.9


def run(
    servers: Servers,
    workloads: Sequence[Workload],
    *,
    events: int,
    warm_up: int,
    repeats: int,
    rates: Sequence[float],
    seconds: float,
    warm_s: float,
) -> Report:
    """Every workload on services of its own."""
    options = {"events": events, "repeats": repeats, "seconds at a rate": seconds}
    report = Report("pipeline", __doc__ or "", options)
    duels: list[Duel] = []
    memory: list[Row] = []
    paces: list[Row] = []
    stretches: list[Row] = []
    for each in workloads:
        with services(servers, each) as (_, bench):
            found = duel(servers, each, bench, events, warm_up, repeats)
            duels.append(found)
            for rate in rates:
                if rate > _SPARE * found.events_per_s:
                    note(f"{each.title}: {rate:g} events/s are too many for {found.events_per_s:.0f}")
                    paces.append(_pace(each, rate, None))
                    continue
                road = Road(servers.kafka, each.topics)
                pace = bench.at_rate(rate, seconds, warm_s)
                paces.append(_pace(each, rate, pace))
                note(f"{each.title}: {paces[-1]}")
                stages = medians_and_tails(road.stages_ms(pace.timed))
                stretches.append({"workload": each.title, "events/s": rate, **stages})
            memory.append(
                {"workload": each.title, **{name: rounded(mib, 0) for name, mib in bench.peak_mib().items()}}
            )
            report.problems += [*found.problems, *(f"{each.name}: {problem}" for problem in bench.problems)]
    report.tables = [
        Table("Full speed (medians)", [_speed(each) for each in duels]),
        Table("Processor seconds for 1,000 events at full speed (medians)", list(_cpu(duels))),
        Table("Peak memory in MiB", memory),
        Table("Latency at fixed rates", paces),
        Table("Where the milliseconds go, p50 / p99", stretches),
    ]
    return report


def cpu_per_1000(runs: Sequence[FullSpeed]) -> dict[str, float]:
    """By process, the median of all runs."""
    return {name: middle([each.cpu_per_1000[name] for each in runs]) for name in runs[0].cpu_s}


def pace_columns(found: AtRate | None) -> dict[str, object]:
    """What tables say of latencies; nothing where the rate was left out."""
    if found is None:
        return dict.fromkeys(
            ("p50 ms", "p99 ms", "p99.9 ms", "worst ms", "commands", "cpu s/1,000", "sent late p99 ms")
        )
    return {
        **{f"p{percent:g} ms": rounded(found.percentile_ms(percent), 1) for percent in (50, 99, 99.9)},
        "worst ms": rounded(found.percentile_ms(100), 1),
        "commands": len(found.timed),
        "cpu s/1,000": rounded(sum(found.cpu_per_1000.values()), 3),
        "sent late p99 ms": rounded(found.late_percentile_ms(99), 1),
    }


def _pace(workload: Workload, rate: float, found: AtRate | None) -> Row:
    return {"workload": workload.title, "events/s": rate, **pace_columns(found)}


def _speed(found: Duel) -> Row:
    ours = found.pipeline
    return {
        "workload": found.workload.title,
        "events": ours[0].events,
        "events/s": rounded(found.events_per_s),
        "contributions/s": rounded(middle([each.contributions_per_s for each in ours])),
        "commands/s": rounded(middle([each.commands_per_s for each in ours])),
        "relay events/s": rounded(middle([each.events_per_s for each in found.relay])),
        "times the relay": rounded(found.share),
        "cpu s/1,000": rounded(sum(cpu_per_1000(ours).values()), 3),
        "relay cpu s/1,000": rounded(sum(cpu_per_1000(found.relay).values()), 3),
    }


def _cpu(duels: Iterable[Duel]) -> Iterable[Row]:
    for found in duels:
        used: Mapping[str, float] = cpu_per_1000(found.pipeline)
        yield {"workload": found.workload.title, **{name: rounded(each, 4) for name, each in used.items()}}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", default=",".join(WORKLOADS), metavar="LETTERS")
    parser.add_argument(
        "--events",
        type=int,
        default=120_000,
        metavar="N",
        help="of workload a at full speed; others have fewer",
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs at full speed")
    parser.add_argument("--rates", default=",".join(f"{rate:g}" for rate in RATES), metavar="EVENTS_PER_S")
    parser.add_argument("--seconds", type=float, default=30, metavar="S", help="at each rate")
    add_warm_up_options(parser)
    add_common_options(parser)
    parser.set_defaults(run=_main)


def add_warm_up_options(parser: argparse.ArgumentParser, *, seconds: float = 3) -> None:
    """A Kafka that has just started is slow: its compiler takes a core for the first two minutes of load or so."""
    parser.add_argument("--warm-up", type=int, default=60_000, metavar="N", help="events before full speed")
    parser.add_argument(
        "--warm-seconds",
        type=float,
        default=seconds,
        metavar="S",
        help=f"before each rate (default {seconds:g})",
    )


def _main(arguments: argparse.Namespace) -> None:
    chosen = [workload(letter) for letter in arguments.workloads.split(",")]
    rates = [float(rate) for rate in arguments.rates.split(",") if rate]
    on_servers(
        arguments,
        lambda running: run(
            running,
            chosen,
            events=arguments.events,
            warm_up=arguments.warm_up,
            repeats=arguments.repeats,
            rates=rates,
            seconds=arguments.seconds,
            warm_s=arguments.warm_seconds,
        ),
    )
