"""`python -m tests.fuzz events|definitions --count N [--seed S]`: hostile input, and what became of it.

The last line is for programs; the exit code is 1 where anything went wrong. A seed gives the same input again.
"""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path
from time import monotonic

from tests.fuzz.definitions import check_all
from tests.fuzz.serving import served
from tests.servers.backends import BACKENDS, unavailable

SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("what", choices=["events", "definitions"])
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, metavar="S", help="by default a new one")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="embedded", help="what ingest runs on")
    options = parser.parse_args()
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    if reason := unavailable(options.backend):
        parser.error(reason)
    began = monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.what == "definitions":
            line, counted, problems = check_all(folder, seed, options.count)
        else:
            with BACKENDS[options.backend](folder / "servers") as backend:
                verdict = served(backend, folder, seed, options.count)
            line, counted, problems = verdict.line(), verdict.codes, verdict.problems
    for name, number in counted.most_common():
        print(f"{number:>8} {name}")
    for problem in problems[:SHOWN]:
        print(f"PROBLEM {problem}"[:2_000])
    print(f"seed={seed} {line} seconds={monotonic() - began:.0f}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
