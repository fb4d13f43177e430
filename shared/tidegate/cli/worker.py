"""`tidegate worker`: run the Worker that a module or file defines."""

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.options import DEFAULT_GROUP, DEFAULT_KAFKA, DEFAULT_NAMESPACE
from tidegate.definitions.decorators import AssetDefinition, MultiAssetDefinition
from tidegate.sdk.errors import WorkerError
from tidegate.sdk.worker import Worker


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE_OR_FILE[:NAME]",
            help="Where the Worker or the @asset functions are: 'jobs.py', 'package.jobs' or 'jobs.py:worker'.",
        ),
    ],
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Sets TIDEGATE_KAFKA, which the module may read."),
    ] = None,
) -> None:
    """Run jobs: find the Worker in a module and let it work until Ctrl-C.

    A module without a Worker, but with functions declared by @asset or @asset.multi, gets one that runs these; it takes
    TIDEGATE_KAFKA, TIDEGATE_GROUP, TIDEGATE_NAMESPACE and TIDEGATE_INSTANCE_ID, as `tidegate exec` does.
    """
    if kafka is not None:
        os.environ["TIDEGATE_KAFKA"] = kafka
    find_worker(target).main()


def find_worker(target: str) -> Worker:
    """The Worker that `target` names, or the only one of its module, or a new one for its @asset functions.

    Raises WorkerError that lists what is there.
    """
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
        return _worker_of(place, names)
    if len(distinct) > 1:
        raise WorkerError(f"{place} has several Workers: choose one, '{place}:{min(found)}'")
    return next(iter(distinct.values()))


def _worker_of(place: str, names: dict[str, Any]) -> Worker:
    """A Worker for the functions that a module declares with @asset, with the settings of the environment."""
    declared = [
        value for value in names.values() if isinstance(value, AssetDefinition | MultiAssetDefinition)
    ]
    if not declared:
        raise WorkerError(
            f"{place} has no Worker and no @asset function: write `worker = Worker(...)` at its top level"
        )
    made = Worker(
        os.environ.get("TIDEGATE_KAFKA", DEFAULT_KAFKA),
        group=os.environ.get("TIDEGATE_GROUP", DEFAULT_GROUP),
        namespace=os.environ.get("TIDEGATE_NAMESPACE", DEFAULT_NAMESPACE),
        instance_id=os.environ.get("TIDEGATE_INSTANCE_ID"),
    )
    made.add(*{id(value): value for value in declared}.values())
    return made


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
