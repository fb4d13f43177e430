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
from tidegate.definitions.hints import explained
from tidegate.definitions.job import Job, jobs_made

if TYPE_CHECKING:
    from yaml import Node, SafeLoader

FILE_MODULE: Final = "<definitions>"
"""The module of classes that a definitions file defines itself, which nobody else can import."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """What one file declares."""

    jobs: tuple[Job, ...]
    assets: tuple[Asset, ...] = ()
    refused: tuple["Refused", ...] = ()
    warnings: tuple[str, ...] = ()
    """What a person should know of the file, though it can be used."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One definition that cannot be used, and why; the others of its file can."""

    id: str
    reason: str


def load_definitions(path: Path, *, refuse_singly: bool = False) -> Definitions:
    """Every Job and Asset at the top level of a `.py` file, also by @asset, or of a `.json`, `.yaml` or `.yml` file.

    Jobs count in a list, tuple or dict at the top level too; one that the file makes and keeps nowhere is warned of.
    The last three hold definitions as plain data, one or a list of them; YAML is read by the rules of YAML 1.2, so that
    `no`, `12:30` and dates are text as they are in JSON. Raises DefinitionError where the file declares nothing,
    declares an id twice, or cannot be read, and for an error of the file's own code, with the line. With
    `refuse_singly`, plain data that is wrong, such as one with the type of a plugin that is not installed, is left out
    and named in `refused`.
    """
    refused: list[Refused] = []
    lost: list[str] = []
    if not path.is_file():
        raise DefinitionError(f"definitions file {str(path)!r} does not exist")
    if path.suffix == ".py":
        found, lost = _run(path)
    elif path.suffix in _READERS:
        try:
            found, refused = _read(_READERS[path.suffix](path), refuse_singly)
        except RecursionError as error:
            raise DefinitionError(
                f"definitions file {str(path)!r} is nested too deeply, or holds itself"
            ) from error
    else:
        raise DefinitionError(f"definitions file {str(path)!r} must end in .py, .json, .yaml or .yml")
    jobs = tuple(_jobs_in(found))
    assets = tuple({one.name: one for one in found if isinstance(one, Asset)}.values())
    if not jobs and not assets and not refused:
        raise DefinitionError(
            f"definitions file {str(path)!r} declares no Job and no Asset: assign one to a name at its top level"
        )
    check_together(jobs)
    warnings = (
        f"job {job!r} is made but not declared: assign it to a name at the top level of {str(path)!r}, or put it into a"
        " list that has one"
        for job in lost
    )
    return Definitions(jobs, assets, tuple(refused), tuple(warnings))


def _jobs_in(values: Iterable[object]) -> list[Job]:
    """The distinct jobs among values of a module, those of @asset and those in containers with them."""
    found: dict[int, Job] = {}
    for value in values:
        inner: Iterable[object] = (value,)
        if isinstance(value, dict | list | tuple):
            inner = value.values() if isinstance(value, dict) else value
        for one in inner:
            job = one.job if isinstance(one, AssetDefinition | MultiAssetDefinition) else one
            if isinstance(job, Job):
                found[id(job)] = job
    return list(found.values())


def _from_json(path: Path) -> list[tuple[str, Any]]:
    """Every definition with where it stands."""
    try:
        data = json.loads(path.read_bytes(), object_pairs_hook=_once_each)
    except ValueError as error:
        raise DefinitionError(f"definitions file {str(path)!r} is not JSON: {error}") from error
    if not isinstance(data, list):
        return [(str(path), data)]
    return [(f"{path}, definition {number}", each) for number, each in enumerate(data, 1)]


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, where each name may be given once: of two, the first would be lost in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"field {name!r} is given twice in one object")
    return found


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
        _check_once_each(node, set())
        each = node.value if isinstance(node, SequenceNode) else [node]
        data = loader.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise DefinitionError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    places = [f"{path}, line {one.start_mark.line + 1}" for one in each]
    return list(zip(places, data if isinstance(node, SequenceNode) else [data], strict=True))


def _check_once_each(node: "Node", seen: set["Node"]) -> None:
    """Raises MarkedYAMLError where a mapping gives a name twice, as `_once_each` does for JSON."""
    from yaml import MappingNode, MarkedYAMLError, SequenceNode

    if node in seen:  # reached before, through another alias
        return
    seen.add(node)
    if isinstance(node, SequenceNode):
        for one in node.value:
            _check_once_each(one, seen)
    elif isinstance(node, MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            if isinstance(key.value, str):
                if key.value in names:
                    raise MarkedYAMLError(None, None, f"field {key.value!r} is given twice", key.start_mark)
                names.add(key.value)
            _check_once_each(value, seen)


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


def _run(path: Path) -> tuple[list[Any], list[str]]:
    """What a Python file has names for, run as `python FILE` would, and the ids of jobs that it has none for.

    A module that is imported on the way may keep jobs of its own.
    """
    folder = str(path.parent.absolute())
    sys.path.insert(0, folder)
    before = set(sys.modules)
    try:
        with jobs_made() as made:
            found = list(runpy.run_path(str(path), run_name=FILE_MODULE).values())
        imported = [vars(module).values() for name, module in sys.modules.items() if name not in before]
        kept = {job.id for values in (found, *imported) for job in _jobs_in(values)}
        return found, list(dict.fromkeys(job.id for job in made if job.id not in kept))
    except Exception as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        where = f"{path}, line {line}" if line else str(path)
        if isinstance(error, DefinitionError | DefinitionTypeError):
            raise DefinitionError(f"{where}: {error}") from error
        raise DefinitionError(f"{where}: {explained(error)}") from error
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
