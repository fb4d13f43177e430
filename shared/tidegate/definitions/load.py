"""Definitions from a file: Python declarations, or their plain form as JSON or YAML."""

import json
import re
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import from_plain
from tidegate.definitions.asset import Asset
from tidegate.definitions.decorators import AssetDefinition, MultiAssetDefinition
from tidegate.definitions.job import Job

if TYPE_CHECKING:
    from yaml import SafeLoader

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
    """Every Job and Asset at the top level of a `.py` file, also by @asset, or of a `.json`, `.yaml` or `.yml` file.

    The last three hold definitions as plain data, one or a list of them; YAML is read by the rules of YAML 1.2, so that
    `no`, `12:30` and dates are text as they are in JSON. Raises DefinitionError where the file declares nothing,
    declares an id twice, or cannot be read, and for an error of the file's own code, with the line. With
    `refuse_singly`, plain data that is wrong, such as one with the type of a plugin that is not installed, is left out
    and named in `refused`.
    """
    refused: list[Refused] = []
    if not path.is_file():
        raise DefinitionError(f"definitions file {str(path)!r} does not exist")
    if path.suffix == ".py":
        found = list(_run(path).values())
    elif path.suffix in _READERS:
        try:
            found, refused = _read(_READERS[path.suffix](path), refuse_singly)
        except RecursionError as error:
            raise DefinitionError(
                f"definitions file {str(path)!r} is nested too deeply, or holds itself"
            ) from error
    else:
        raise DefinitionError(f"definitions file {str(path)!r} must end in .py, .json, .yaml or .yml")
    made = [one.job for one in found if isinstance(one, AssetDefinition | MultiAssetDefinition)]
    jobs = tuple({id(one): one for one in (*found, *made) if isinstance(one, Job)}.values())
    assets = tuple({one.name: one for one in found if isinstance(one, Asset)}.values())
    if not jobs and not assets and not refused:
        raise DefinitionError(
            f"definitions file {str(path)!r} declares no Job and no Asset: assign one to a name at its top level"
        )
    check_together(jobs)
    return Definitions(jobs, assets, tuple(refused))


def _from_json(path: Path) -> list[tuple[str, Any]]:
    """Every definition with where it stands."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise DefinitionError(f"definitions file {str(path)!r} is not JSON: {error}") from error
    if not isinstance(data, list):
        return [(str(path), data)]
    return [(f"{path}, definition {number}", each) for number, each in enumerate(data, 1)]


def _from_yaml(path: Path) -> list[tuple[str, Any]]:
    """Every definition with where it stands."""
    try:
        from yaml import SequenceNode, YAMLError
    except ImportError as error:
        raise DefinitionError(
            f"definitions file {str(path)!r} needs PyYAML: install tidegate[cli], or write JSON"
        ) from error
    try:
        loader = _yaml_loader()(path.read_bytes())
        node = loader.get_single_node()
        if node is None:
            return []
        each = node.value if isinstance(node, SequenceNode) else [node]
        data = loader.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise DefinitionError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    places = [f"{path}, line {one.start_mark.line + 1}" for one in each]
    return list(zip(places, data if isinstance(node, SequenceNode) else [data], strict=True))


_SCALARS: Final = (
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", [*"tTfF"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", [*"-0123456789"]),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", [*"-0123456789"]),
    ("merge", r"<<", ["<"]),
)
"""Unquoted text that is no text, by its tag: what JSON knows, and no more."""


@lru_cache(maxsize=1)
def _yaml_loader() -> "type[SafeLoader]":
    from yaml import SafeLoader

    class Loader(SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way

    for tag, pattern, first in _SCALARS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"{pattern}\Z"), first)
    return Loader


_READERS: Final = {".json": _from_json, ".yaml": _from_yaml, ".yml": _from_yaml}


def _read(data: Iterable[tuple[str, Any]], refuse_singly: bool) -> tuple[list[Any], list[Refused]]:
    found: list[Any] = []
    refused: list[Refused] = []
    for where, each in data:
        try:
            found.append(_definition(each))
        except (DefinitionError, DefinitionTypeError) as error:
            if not refuse_singly:
                raise type(error)(f"{where}: {error}") from error
            fields = each if isinstance(each, dict) else {}
            name = str(fields.get("id") or fields.get("name") or "?")
            refused.append(Refused(name, f"{where}: {error}"))
    return found, refused


def _definition(data: Any) -> Job | Asset:
    found = from_plain(data)
    if not isinstance(found, Job | Asset):
        raise DefinitionError(f"{data!r:.100} is no definition: give an object of type Job or Asset")
    return found


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
