"""One figure to go by: the services and the relay in turn with 24-member days and one job, then latency at 1,000
events/s.

What is included and how it is measured is as in `python -m bench pipeline`, workload a. Three turns of relay and
services at full speed; then events at their instants. The last line is JSON of the medians: `relay_events_per_s`,
`pipeline_events_per_s`, `share` (of the pairs of turns), `p50_ms`, `p99_ms`. The exit code is 1 unless the
independent reader of committed records counted exactly the commands that were due, in every run.
"""

import argparse

from bench.common.duel import duel, services
from bench.common.results import Report, Table, middle, rounded
from bench.common.servers import Servers, add_common_options, on_servers
from bench.common.workloads import days
from bench.pipeline import add_warm_up_options, pace_columns

RATE = 1_000.0
_TURNS = 3


def run(
    servers: Servers,
    *,
    events: int,
    warm_up: int,
    seconds: float,
    warm_s: float,
    repeats: int = _TURNS,
    rate: float = RATE,
) -> Report:
    workload = days(1)
    report = Report("compare", __doc__ or "", {"events": events, "seconds": seconds, "rate": rate})
    with services(servers, workload) as (_, bench):
        found = duel(servers, workload, bench, events, warm_up, repeats)
        pace = bench.at_rate(rate, seconds, warm_s)
        report.problems = [*found.problems, *bench.problems]
    relay = [each.events_per_s for each in found.relay]
    pipeline = [each.events_per_s for each in found.pipeline]
    report.tables = [
        Table(
            "Turns",
            [
                {"relay events/s": rounded(theirs), "services events/s": rounded(ours)}
                for theirs, ours in zip(relay, pipeline, strict=True)
            ],
        ),
        Table(f"Latency at {rate:g} events/s", [pace_columns(pace)]),
    ]
    report.summary = {
        "relay_events_per_s": round(middle(relay), 1),
        "pipeline_events_per_s": round(middle(pipeline), 1),
        "share": round(found.share, 3),
        "p50_ms": rounded(pace.percentile_ms(50)),
        "p99_ms": rounded(pace.percentile_ms(99)),
    }
    return report


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--events", type=int, default=120_000, metavar="N", help="in each turn (default 120000)"
    )
    parser.add_argument("--seconds", type=float, default=30, metavar="S", help="at 1,000 events/s")
    add_warm_up_options(parser, seconds=60)
    add_common_options(parser)
    parser.set_defaults(run=_main)


def _main(arguments: argparse.Namespace) -> None:
    on_servers(
        arguments,
        lambda running: run(
            running,
            events=arguments.events,
            warm_up=arguments.warm_up,
            seconds=arguments.seconds,
            warm_s=arguments.warm_seconds,
        ),
    )
