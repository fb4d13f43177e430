"""`python -m tests.simulation --seeds N [--from S] [--break RULE]`: run schedules, print bad seeds and a rate.

A seed repeats its schedule exactly, given the same Python and the same sources: hashing is fixed by PYTHONHASHSEED,
which this sets for itself.
"""

import argparse
import os
import secrets
import sys
from time import monotonic, process_time

from tests.simulation.broken import SWITCHES
from tests.simulation.running import simulation

MANY = 10
TRIES = 150
"""Schedules change with the services; a seed that no longer shows its rule has others near it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, metavar="N", help="how many schedules")
    parser.add_argument(
        "--from", type=int, dest="first", metavar="S", help="the first seed; by default a new one"
    )
    parser.add_argument("--for", type=float, dest="seconds", metavar="SECONDS", help="stop after so long")
    parser.add_argument("--break", dest="broken", choices=sorted(SWITCHES), help="break this rule on purpose")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--switches", action="store_true", help="find, for every rule, a seed that needs it")
    options = parser.parse_args()
    if options.switches:
        return _try_switches()
    first = secrets.randbelow(10**9) if options.first is None else options.first
    print(f"seeds from {first}", flush=True)
    ran = bad = 0
    with simulation(options.broken) as judge:
        began, worked = monotonic(), process_time()
        for seed in range(first, first + options.seeds):
            if options.seconds is not None and monotonic() - began > options.seconds:
                break
            problems = judge(seed, print if options.trace else None)
            ran += 1
            bad += bool(problems)
            for problem in problems[:MANY]:
                print(f"seed {seed}: {problem}", flush=True)
        minutes, cpu_ms = (monotonic() - began) / 60, (process_time() - worked) * 1000
    ran = max(ran, 1)
    print(f"schedules={ran} bad={bad} per_minute={ran / minutes:.0f} cpu_ms_each={cpu_ms / ran:.1f}")
    return int(bad > 0)


def _try_switches() -> int:
    """Prints a line for every switch; exit code 1 if any stayed unnoticed."""
    unnoticed = 0
    for name, switch in SWITCHES.items():
        found = None
        with simulation(name) as judge:
            for seed in range(switch.seed, switch.seed + TRIES):
                if problems := judge(seed, None):
                    found = seed, problems[0]
                    break
        if found is None:
            verdict = f"unnoticed in {TRIES} schedules from seed {switch.seed}"
        else:
            with simulation(focus=switch.focus) as judge:
                wrong_anyway = judge(found[0], None)
            verdict = f"wrong anyway: {wrong_anyway[0]}" if wrong_anyway else f"caught: {found[1]}"
            verdict = f"seed {found[0]} {verdict}"
        unnoticed += " caught: " not in verdict
        print(f"{name}: {verdict}"[:400].replace("\n", " "), flush=True)
    return int(unnoticed > 0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
