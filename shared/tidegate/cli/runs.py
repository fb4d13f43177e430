"""`tidegate runs`: the runs of a job, with what became of them."""

import asyncio
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_LIMIT,
    JobArgument,
    JsonOption,
    KafkaOption,
    LimitOption,
)
from tidegate.cli.output import make_console, make_table, say_cut, shown
from tidegate.contracts.runs import Run, RunState
from tidegate.core.instants import from_ms
from tidegate.runtime.job_runs import JobRuns, job_runs


def runs(
    job: JobArgument,
    state: Annotated[
        list[RunState] | None, typer.Option("--state", help="Only runs in this state; may be repeated.")
    ] = None,
    limit: LimitOption = DEFAULT_LIMIT,
    as_json: JsonOption = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """List the runs of JOB in the order in which they were asked for: state, key, times, error."""
    found = asyncio.run(job_runs(kafka, job))
    chosen = [run for run in found.runs if not state or run.state in state]
    listed = chosen[-limit:]
    if as_json:
        paused = found.paused.model_dump(mode="json") if found.paused else None
        rows = [run.model_dump(mode="json", exclude={"request"}) for run in listed]
        typer.echo(json.dumps({"job": job, "paused": paused, "runs": rows}, indent=2))
    else:
        _show(job, found, listed, make_console())
    say_cut(len(listed), len(chosen))


def _show(job: str, found: JobRuns, listed: list[Run], console: Console) -> None:
    if listed:
        table = make_table("run", "key", "state", "cause", "asked for", "changed", "error")
        for run in listed:
            table.add_row(
                run.run_id,
                escape("-" if run.partition_key is None else run.partition_key),
                run.state.value,
                run.cause,
                shown(from_ms(run.asked_at)),
                shown(from_ms(run.updated_at)),
                escape(run.error or ""),
            )
        console.print(table)
    counts = ", ".join(f"{found.count(each)} {each.value}" for each in RunState if found.count(each))
    console.print(f"{job}: {counts or 'no runs'}", markup=False)
    if found.paused:
        console.print(
            f"{job} was paused by {found.paused.by} at {shown(from_ms(found.paused.at))}", markup=False
        )
