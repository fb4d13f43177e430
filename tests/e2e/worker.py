"""The worker of the example, with a group of its own and a short session timeout.

The functions are those of examples/temperatures/worker.py; what differs is how quickly a killed worker is given up,
and that two tests on one broker do not meet in one group.
"""

import os
import runpy

from tests.e2e.readings import EXAMPLE
from tidegate.sdk import Worker

JOBS = ("daily_temperatures", "monthly_temperatures")


def main() -> None:
    """Serve the example's jobs until SIGTERM; told by the environment, like the example."""
    example = runpy.run_path(str(EXAMPLE / "worker.py"))
    worker = Worker(
        os.environ["TIDEGATE_KAFKA"],
        group=os.environ["TIDEGATE_GROUP"],
        namespace=os.environ["TIDEGATE_NAMESPACE"],
        session_timeout_ms=int(os.environ["TIDEGATE_SESSION_TIMEOUT_MS"]),
    )
    for job in JOBS:
        worker.job(job)(example[job])
    worker.main()


if __name__ == "__main__":
    main()
