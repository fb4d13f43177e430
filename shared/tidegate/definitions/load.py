"""Definitions from a file: Python declarations, or their plain form as JSON."""

import json
import runpy
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import from_plain
from tidegate.definitions.asset import Asset
from tidegate.definitions.decorators import AssetDefinition, MultiAssetDefinition
from tidegate.definitions.job import Job

FILE_MODULE: Final = "<definitions>"
"""The module of classes that a definitions file defines itself, which nobody else can import."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """What one file declares."""

    jobs: tuple[Job, ...]
    assets: tuple[Asset, ...] = ()
    refused: tuple["Refused", ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """One definition that cannot be used, and why; the others of its file can."""

    id: str
    reason: str


def load_definitions(path: Path, *, refuse_singly: bool = False) -> Definitions:
    """Every Job and Asset at the top level of a `.py` file, also by @asset, or in the list of a `.json` file.

    Raises DefinitionError where the file declares nothing, declares an id twice, or cannot be read, and for an error
    of the file's own code, with the line. With `refuse_singly`, a definition in JSON that is wrong, such as one with
    the type of a plugin that is not installed, is left out and named in `refused`.
    """
    refused: list[Refused] = []
    if not path.is_file():
        raise DefinitionError(f"definitions file {str(path)!r} does not exist")
    if path.suffix == ".json":
        try:
            data = json.loads(path.read_bytes())
        except ValueError as error:
            raise DefinitionError(f"definitions file {str(path)!r} is not JSON: {error}") from error
        found, refused = _read(data if isinstance(data, list) else [data], refuse_singly)
    elif path.suffix == ".py":
        found = list(_run(path).values())
    else:
        raise DefinitionError(f"definitions file {str(path)!r} must end in .py or .json")
    made = [one.job for one in found if isinstance(one, AssetDefinition | MultiAssetDefinition)]
    jobs = tuple({id(one): one for one in (*found, *made) if isinstance(one, Job)}.values())
    assets = tuple({one.name: one for one in found if isinstance(one, Asset)}.values())
    if not jobs and not assets and not refused:
        raise DefinitionError(
            f"definitions file {str(path)!r} declares no Job and no Asset: assign one to a name at its top level"
        )
    check_together(jobs)
    return Definitions(jobs, assets, tuple(refused))


def _read(data: list[Any], refuse_singly: bool) -> tuple[list[Any], list[Refused]]:
    found: list[Any] = []
    refused: list[Refused] = []
    for each in data:
        try:
            found.append(from_plain(each))
        except (DefinitionError, DefinitionTypeError) as error:
            if not refuse_singly:
                raise
            fields = each if isinstance(each, dict) else {}
            refused.append(Refused(str(fields.get("id") or fields.get("name") or "?"), str(error)))
    return found, refused


def _run(path: Path) -> dict[str, Any]:
    """The names that a Python file gives, run as `python FILE` would."""
    folder = str(path.parent.absolute())
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=FILE_MODULE)
    except Exception as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        where = f"{path}, line {line}" if line else str(path)
        if isinstance(error, DefinitionError | DefinitionTypeError):
            raise DefinitionError(f"{where}: {error}") from error
        raise DefinitionError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)


def check_together(jobs: tuple[Job, ...]) -> None:
    """Raises DefinitionError where two jobs have one id, or ids that Kafka's topics cannot tell apart (D26)."""
    for job_id, count in Counter(job.id for job in jobs).items():
        if count > 1:
            raise DefinitionError(
                f"Job.id {job_id!r} is declared {count} times: give each job an id of its own"
            )
    seen: dict[str, str] = {}
    for job in jobs:
        name = job.id.replace(".", "_")
        if (other := seen.setdefault(name, job.id)) != job.id:
            raise DefinitionError(
                f"Job.id {job.id!r} and {other!r} differ only in '.' and '_', which Kafka's metrics and topics confuse:"
                " rename one"
            )
