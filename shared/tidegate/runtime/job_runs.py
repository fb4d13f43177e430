"""`tidegate runs`: the state of every run of a job, as the topic `runs` tells it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import JobState, Run, RunsRecord, RunState, read_runs_record
from tidegate.contracts.topics import RUNS
from tidegate.core.errors import TidegateError
from tidegate.runtime.definitions_log import definitions_log
from tidegate.runtime.definitions_view import definitions_view
from tidegate.runtime.reading import LogReader, log_reader

log = structlog.get_logger()


class NoSuchRunError(TidegateError, LookupError):
    """No run of that id is remembered."""


@dataclass(frozen=True, slots=True)
class JobRuns:
    """What is known of a job's runs."""

    paused: JobState | None
    """Who paused it and when; None where it is not paused."""
    runs: tuple[Run, ...]
    """In the order in which they were asked for, without those that were forgotten (rule T7)."""

    def count(self, *states: RunState) -> int:
        return sum(run.state in states for run in self.runs)


async def job_runs(bootstrap: str, job: str) -> JobRuns:
    """The runs of a job, which need not be defined any more.

    Raises DefinitionError for a job that neither is defined nor has left a run or a pause, and NotInstalledError.
    """
    async with definitions_view(bootstrap) as view:
        installation = view.installation
    assert installation is not None
    runs: dict[str, Run] = {}
    paused = None
    async with log_reader(bootstrap) as reader:
        async for name, state in _states(reader, partition_of(job, installation.partitions)):
            if isinstance(state, JobState) and state.job == job:
                paused = state if state.is_paused else None
            elif isinstance(state, Run) and state.job == job:
                runs[name] = state
            elif state is None:
                runs.pop(name, None)
    if not runs and paused is None:
        view.defined(job)
    in_order = sorted(runs.values(), key=lambda run: (run.asked_at, run.partition_key or "", run.run_id))
    return JobRuns(paused, tuple(in_order))


async def find_run(bootstrap: str, run_id: str) -> tuple[Run, int]:
    """A run, and the partition of its job. Raises NoSuchRunError and NotInstalledError."""
    async with definitions_log(bootstrap) as definitions:
        partitions = definitions.installed().partitions
    found: tuple[Run, int] | None = None
    async with log_reader(bootstrap) as reader:
        for partition in range(partitions):
            async for name, state in _states(reader, partition):
                if name == run_id:
                    found = (state, partition) if isinstance(state, Run) else None
    if found is None:
        raise NoSuchRunError(
            f"no run {run_id!r} is remembered: `tidegate runs JOB` lists those that are, with their ids"
        )
    return found


async def _states(reader: LogReader, partition: int) -> AsyncIterator[tuple[str, RunsRecord | None]]:
    async for record in reader.since(RUNS, 0, [partition]):
        name = record.key.decode()
        try:
            yield name, None if record.value is None else read_runs_record(name, record.value)
        except ValueError as error:
            log.warning("run_state_unreadable", key=name, offset=record.offset, error=str(error)[:300])
