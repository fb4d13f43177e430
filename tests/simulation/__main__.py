"""`python -m tests.simulation --seeds N [--from S] [--break RULE]`: run schedules, print the seeds that go wrong, and a rate.

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, metavar="N", help="how many schedules")
    parser.add_argument("--from", type=int, dest="first", metavar="S", help="the first seed; by default a new one")
    parser.add_argument("--for", type=float, dest="seconds", metavar="SECONDS", help="stop after so long")
    parser.add_argument("--break", dest="broken", choices=sorted(SWITCHES), help="break this rule on purpose")
    parser.add_argument("--trace", action="store_true", help="print every step")
    options = parser.parse_args()
    first = secrets.randbelow(10**9) if options.first is None else options.first
    print(f"seeds from {first}", flush=True)
    began, ran, bad = monotonic(), 0, 0
    with simulation(options.broken) as judge:
        for seed in range(first, first + options.seeds):
            if options.seconds is not None and monotonic() - began > options.seconds:
                break
            problems = judge(seed, print if options.trace else None)
            ran += 1
            bad += bool(problems)
            for problem in problems[:MANY]:
                print(f"seed {seed}: {problem}", flush=True)
    rate = ran / max(monotonic() - began, 1e-9) * 60
    print(f"schedules={ran} bad={bad} per_minute={rate:.0f} cpu_ms={process_time() / max(ran, 1) * 1000:.1f}")
    return int(bad > 0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # fmt: skip
    sys.exit(main())
