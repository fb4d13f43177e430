"""Whether exactly the commands came that were due."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.common.receiving import Arrival
from bench.common.workloads import Command

_NAMED = 3


def command_of(arrival: Arrival) -> Command:
    return Command(arrival.topic, arrival.key)


def differences(due: Iterable[Command], came: Sequence[Arrival]) -> list[str]:
    """What is missing, what came beyond, and run ids that came more than once; empty where all is right."""
    wanted, found = Counter(due), Counter(map(command_of, came))
    runs = Counter(each.run_id for each in came if each.run_id)
    repeated = {run: count for run, count in runs.items() if count > 1}
    problems = []
    if missing := wanted - found:
        problems.append(f"{missing.total()} of {wanted.total()} commands are missing: {_some(missing)}")
    if beyond := found - wanted:
        problems.append(f"{beyond.total()} commands came that were not due: {_some(beyond)}")
    if repeated:
        problems.append(f"{len(repeated)} runs were commanded more than once: {_some(repeated)}")
    return problems


def _some(named: Iterable[object]) -> str:
    names = [str(each) for each in named]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
