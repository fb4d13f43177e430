"""Where the processor time of one service goes: its functions by their own time.

Included: one service under cProfile (processor time alone, so waiting costs nothing), the others as they are, a real
Kafka and a real Redis; one workload at full speed, from the start of the process to its end, of which the start is
the smaller part the more events there are. cProfile makes every call of Python dearer, functions in C less so: shares
are hints, and no figure here is a speed. `own` is without the functions called, `with calls` with them; of
coroutines, what runs until they wait.
Not included: threads other than the first, and what clients do in Kafka and Redis.
`--stats FILE` keeps the profile for pstats, snakeviz and the like.
"""

import argparse
import pstats
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.common.deployment import prepare
from bench.common.measuring import Bench
from bench.common.receiving import Receiver
from bench.common.results import Report, Row, Table, note, rounded
from bench.common.servers import Servers, add_common_options, on_servers
from bench.common.workloads import Workload, workload
from bench.profiled import environment
from tests.servers.services import READS

_SHOWN_FROM = ("shared", "services", "site-packages", "lib")


def run(
    servers: Servers, service: str, workload: Workload, *, events: int, top: int, stats: Path | None = None
) -> Report:
    """Raises SystemExit for a service that does not exist."""
    if service not in READS:
        raise SystemExit(f"no service {service!r}: use one of {', '.join(READS)}")
    report = Report(f"profile {service}", __doc__ or "", {"workload": workload.title, "events": events})
    deployed = prepare(servers, workload.jobs)
    file = servers.folder / f"{deployed.namespace}.pstats"
    deployed.run_instead(service, "bench.profiled", environment(service, file))
    try:
        deployed.start()
        deployed.settle()
        with Receiver(servers.kafka, workload.topics) as receiver:
            bench = Bench(servers, deployed, workload, receiver)
            found = bench.at_full_speed(round(events * workload.weight) or 1)
            report.problems = bench.problems
            note(
                f"{found.events_per_s:.0f} events/s, {found.cpu_s[service]:.1f} s of processor time in {service}"
            )
    finally:
        deployed.stop()
    if stats is not None:
        shutil.copyfile(file, stats)
    report.tables = [Table(f"Functions of {service} by their own processor time", functions(file, top))]
    return report


def functions(file: Path, top: int) -> list[Row]:
    """The `top` functions of a profile that took longest by themselves."""
    found: Any = pstats.Stats(str(file))
    entries: Mapping[tuple[str, int, str], tuple[int, int, float, float, Any]] = found.stats
    total = sum(own for _, _, own, _, _ in entries.values()) or 1.0
    dearest = sorted(entries.items(), key=lambda each: each[1][2], reverse=True)[:top]
    return [
        {
            "function": _named(*place),
            "calls": calls,
            "own s": rounded(own, 3),
            "own %": rounded(100 * own / total, 1),
            "with calls %": rounded(100 * whole / total, 1),
        }
        for place, (_, calls, own, whole, _) in dearest
    ]


def _named(file: str, line: int, function: str) -> str:
    """Where a function is, without the folders that differ between machines."""
    if file == "~":
        return function
    parts = Path(file).parts
    start = max((index for index, part in enumerate(parts) if part in _SHOWN_FROM), default=-1)
    return f"{'/'.join(parts[start + 1 :])}:{line} {function}"


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", metavar="SERVICE", choices=tuple(READS), help=", ".join(READS))
    parser.add_argument("--workload", default="a")
    parser.add_argument("--events", type=int, default=60_000, metavar="N")
    parser.add_argument("--top", type=int, default=40, metavar="N", help="functions to show")
    parser.add_argument("--stats", type=Path, metavar="FILE", help="keep the profile")
    add_common_options(parser)
    parser.set_defaults(run=_main)


def _main(arguments: argparse.Namespace) -> None:
    chosen = workload(arguments.workload)
    on_servers(
        arguments,
        lambda running: run(
            running,
            arguments.service,
            chosen,
            events=arguments.events,
            top=arguments.top,
            stats=arguments.stats,
        ),
    )
