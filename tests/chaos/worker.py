"""A worker of the jobs that have one: the runs do nothing; the outlet's event is what they leave behind."""

import os

from tidegate.sdk import Run, Worker


def _run(run: Run) -> None:
    """Succeed."""


def main() -> None:
    """Serve until SIGTERM; told by the environment."""
    worker = Worker(
        os.environ["TIDEGATE_KAFKA"],
        group=f"{os.environ['TIDEGATE_NAMESPACE']}-worker",
        namespace=os.environ["TIDEGATE_NAMESPACE"],
        session_timeout_ms=int(os.environ["TIDEGATE_SESSION_TIMEOUT_MS"]),
    )
    for job in os.environ["TIDEGATE_CHAOS_JOBS"].split(","):
        worker.job(job)(_run)
    worker.main()


if __name__ == "__main__":
    main()
