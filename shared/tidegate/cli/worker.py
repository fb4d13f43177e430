"""`tidegate worker`: run the Worker that a module or file defines."""

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.core.errors import TidegateError
from tidegate.sdk.errors import WorkerError
from tidegate.sdk.worker import Worker


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE_OR_FILE[:NAME]",
            help="Where the Worker is: 'jobs.py', 'package.jobs' or 'jobs.py:worker'.",
        ),
    ],
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka", metavar="HOST:PORT", help="Sets TIDEGATE_KAFKA for the module, which may read it."
        ),
    ] = None,
) -> None:
    """Run jobs: find the Worker in a module and let it work until Ctrl-C."""
    if kafka is not None:
        os.environ["TIDEGATE_KAFKA"] = kafka
    try:
        find_worker(target).main()
    except TidegateError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


def find_worker(target: str) -> Worker:
    """The Worker that `target` names, or the only one of its module; raises WorkerError that lists what is there."""
    place, _, name = target.partition(":")
    names = _load(place)
    found = {key: value for key, value in names.items() if isinstance(value, Worker)}
    if name:
        if name not in found:
            raise WorkerError(
                f"{place} has no Worker named {name!r} (found: {', '.join(sorted(found)) or 'none'})"
            )
        return found[name]
    distinct = {id(value): value for value in found.values()}
    if not distinct:
        raise WorkerError(f"{place} has no Worker: write `worker = Worker(...)` at its top level")
    if len(distinct) > 1:
        raise WorkerError(f"{place} has several Workers: choose one, '{place}:{min(found)}'")
    return next(iter(distinct.values()))


def _load(place: str) -> dict[str, Any]:
    """The names of a file or module; an error of its own code is passed on."""
    path = Path(place)
    if path.suffix == ".py":
        if not path.is_file():
            raise WorkerError(f"file {place!r} does not exist")
        sys.path.insert(0, str(path.parent.absolute()))  # as `python FILE` does
        return runpy.run_path(str(path))
    sys.path.insert(0, str(Path.cwd()))
    try:
        return vars(importlib.import_module(place))
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(error.name + ".")):
            raise
        raise WorkerError(
            f"module {place!r} cannot be found here: give a module name or a .py file"
        ) from error
