"""A service under cProfile: `python -m bench.profiled`, with its name and the file of the result in the environment.

Only processor time counts, so waiting costs nothing.
"""

import cProfile
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Final

SERVICE: Final = "TIDEGATE_BENCH_SERVICE"
FILE: Final = "TIDEGATE_BENCH_PROFILE"


def environment(service: str, file: Path) -> dict[str, str]:
    return {SERVICE: service, FILE: str(file)}


def main() -> None:
    module = import_module(f"tidegate_{os.environ[SERVICE]}.main")
    profile = cProfile.Profile(time.process_time)
    try:
        profile.runcall(module.main)
    finally:
        profile.dump_stats(os.environ[FILE])


if __name__ == "__main__":
    main()
