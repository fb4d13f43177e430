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

_MAX_VALUES: Final = 1_000_000
"""Objects, lists, names, numbers and texts of a YAML file, far more than anybody's definitions have."""

_MAX_BRACKETS: Final = 100
"""Of lists and objects inside each other on one line of YAML."""

_QUOTED: Final = 500
"""Characters of either end of a message that says more."""

_MAX_DIGITS: Final = 4_300
"""Of a whole number; Python reads no longer ones."""


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
        raise DefinitionError(f"definitions file {str(path)!r} is not JSON: {_short(error)}") from error
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
        _check_nodes(node, {})
        each = node.value if isinstance(node, SequenceNode) else [node]
        data = loader.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise DefinitionError(
            f"{where}: not YAML: {_short(getattr(error, 'problem', None) or error)}"
        ) from error
    places = [f"{path}, line {one.start_mark.line + 1}" for one in each]
    return list(zip(places, data if isinstance(node, SequenceNode) else [data], strict=True))


def _check_nodes(node: "Node", sizes: dict["Node", int]) -> int:
    """How many values a node stands for, each alias as often as it is used.

    Raises MarkedYAMLError where these are more than a file may hold, since a few lines of aliases of aliases stand for
    billions, where a tag asks for what JSON does not know, and where a mapping gives a name twice, as `_once_each` does
    for JSON.
    """
    from yaml import MappingNode, MarkedYAMLError, SequenceNode

    if node in sizes:  # reached before, through another alias, or it holds itself
        return sizes[node]
    sizes[node] = size = 1
    if problem := _tag_problem(node):
        raise MarkedYAMLError(None, None, problem, node.start_mark)
    if isinstance(node, SequenceNode):
        size += sum(_check_nodes(one, sizes) for one in node.value)
    elif isinstance(node, MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            if isinstance(key.value, str):
                if key.value in names:
                    raise MarkedYAMLError(None, None, f"field {key.value!r} is given twice", key.start_mark)
                names.add(key.value)
            size += _check_nodes(key, sizes) + _check_nodes(value, sizes)
    if size > _MAX_VALUES:
        problem = f"with its aliases this stands for more than {_MAX_VALUES:,} values: write what is needed"
        raise MarkedYAMLError(None, None, problem, node.start_mark)
    sizes[node] = size
    return size


_SCALARS: Final = (
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", [*"tTfF"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", [*"-0123456789"]),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", [*"-0123456789"]),
    ("merge", r"<<", ["<"]),
)
"""Unquoted text that is no text, by its tag: what JSON knows, and no more."""


_TAGS: Final = "tag:yaml.org,2002:"
_FORMS: Final = {tag: re.compile(rf"{pattern}\Z") for tag, pattern, _ in _SCALARS}


def _tag_problem(node: "Node") -> str | None:
    """Why a node cannot be what its tag says, whether that is written in the file or follows from its form."""
    tag = node.tag.removeprefix(_TAGS)
    if tag in ("seq", "map"):
        return None
    if tag != "str" and tag not in _FORMS:
        return f"the tag {node.tag!r:.100} is not known: leave it out, or write what JSON knows"
    if tag != "str" and not _FORMS[tag].match(node.value):
        return f"{node.value!r:.100} is no {tag}"
    if tag == "int" and len(node.value) > _MAX_DIGITS:
        return f"a number of {len(node.value):,} digits: at most {_MAX_DIGITS:,} are allowed"
    return None


@lru_cache(maxsize=1)
def _yaml_loader() -> "type[SafeLoader]":
    from yaml import MarkedYAMLError, SafeLoader

    class Loader(SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way

        def fetch_flow_collection_start(self, TokenClass: Any) -> None:
            if self.flow_level >= _MAX_BRACKETS:  # each costs PyYAML as much as all around it
                raise MarkedYAMLError(None, None, "brackets are nested too deeply", self.get_mark())
            super().fetch_flow_collection_start(TokenClass)

    for tag, _, first in _SCALARS:
        Loader.add_implicit_resolver(_TAGS + tag, _FORMS[tag], first)
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
                raise type(error)(f"{where}: {_short(error)}") from error
            fields = each if isinstance(each, dict) else {}
            name = str(fields.get("id") or fields.get("name") or "?")
            refused.append(Refused(_short(name), f"{where}: {_short(error)}"))
    return found, refused


def _short(error: object) -> str:
    """What an error says, without the middle of something long that it quotes."""
    text = str(error)
    return text if len(text) <= 2 * _QUOTED else f"{text[:_QUOTED]} ... {text[-_QUOTED:]}"


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
