"""What a job's queue is by its runs' full states: counted anew each time, and sorted."""

from collections.abc import Collection, Iterable

from tidegate.contracts.runs import Run, RunState
from tidegate_dispatcher.decide import Known, Queue, Wanted


def place(run: Run) -> tuple[int, str, int, int, str]:
    ordinal = run.request.ordinal if run.request else 0
    return run.asked_at, run.partition_key or "", run.offset, ordinal, run.run_id


def waiting(runs: Iterable[Run], job: str) -> list[Run]:
    """The runs of a job that wait, in order."""
    return sorted((run for run in runs if run.job == job and run.state is RunState.QUEUED), key=place)


def active(runs: Iterable[Run], job: str) -> int:
    return sum(run.job == job and run.state in (RunState.SENT, RunState.RUNNING) for run in runs)


def known(
    runs: Collection[Run], paused: Collection[str], wanted: Wanted, cap: int, next_offset: int | None = None
) -> Known:
    """What a store that holds `runs` must answer."""
    queues = {}
    for job, heads in wanted.heads.items():
        line, count = waiting(runs, job), active(runs, job)
        most = cap if heads.limit is None else max(0, min(cap, heads.limit - count + heads.ends))
        is_read = job not in paused or heads.is_resumed
        queues[job] = Queue(job in paused, count, len(line), tuple(line[:most]) if is_read else ())
    by_id = {run.run_id: run for run in runs}
    return Known(next_offset, {name: by_id[name] for name in wanted.run_ids if name in by_id}, queues)
