"""Hold the library against files of vectors.

A topic has two modules. `tests/conformance/<topic>.py` asks the library: `ANSWERS` maps every op of the file to a
function from the vector to the answer, in the shape of the vector's `expect`; whatever it raises is the answer
`{"error": ...}`. `tests/conformance/rules/<topic>.py` knows what docs/rules.md decides otherwise: `RULES` is a list of
`Rule`. It works expectations out by hand and never imports the library, which loading checks.

The first rule that applies to a vector says what is expected of it; without one the vector itself does. A vector is
*passed* where the library gives what is expected and that is what the vector says, *decided otherwise* where it gives
what is expected and that differs from the vector, *failed* in all other cases.
"""

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

Vector = Mapping[str, Any]
"""One entry of a file's `vectors`: id, op, subject, input, expect, tags."""

Answer = Any
Ask = Callable[[Vector], Answer]

LIBRARY: Final = "tidegate"
_HERE: Final = Path(__file__).parent
_REJECTED: Final = frozenset({"AttributeError", "OverflowError", "KeyError"})
"""Errors that Airflow did not mean: any refusal is as good."""
_TEXTS: Final = frozenset({"key", "keys", "partition_key"})
"""Fields whose values are texts even where they look like instants."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a decision makes of the vectors of one kind, seen before or not."""

    decision: str
    """Its id in docs/rules.md, such as `F16`."""
    about: str
    """What it says, in a few words."""
    applies: Callable[[Vector], bool]
    """A predicate on op, subject and input; it never looks at ids, tags or the vector's own expectation."""
    expectation: Ask
    """What the library must answer, in the shape of `expect`."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An answer that is an exception."""

    names: frozenset[str]
    """The names of its type and of every base."""
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    vector: Vector
    expected: Any
    got: Any
    rule: Rule | None = None


@dataclass(slots=True)
class Report:
    """What became of one file."""

    topic: str
    passed: int = 0
    decided: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Vectors decided otherwise per (decision, what its rule is about)."""
    failures: list[Failure] = field(default_factory=list)
    problem: str = ""
    """Why the file could not be run at all."""

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def is_clean(self) -> bool:
        return not self.failures and not self.problem


def run_file(path: Path, *, to_first_failure: bool = False) -> Report:
    """Ask the library every vector of a file, or those up to the first that fails."""
    data = json.loads(path.read_bytes())
    report = Report(data["topic"])
    try:
        answers, rules = load(report.topic)
    except ImportError as error:
        report.problem = f"no module answers this file: {error}"
        report.failures = [Failure(vector, vector["expect"], report.problem) for vector in data["vectors"]]
        return report
    for vector in data["vectors"]:
        _hold(vector, answers, rules, report)
        if report.failures and to_first_failure:
            break
    return report


def load(topic: str) -> tuple[Mapping[str, Ask], Sequence[Rule]]:
    """The answers and rules of a topic; raises ImportError, and ValueError for rules that import the library."""
    answers: ModuleType = import_module(f"tests.conformance.{topic}")
    source = _HERE / "rules" / f"{topic}.py"
    if not source.exists():
        return answers.ANSWERS, ()
    for imported in _imports(source):
        if imported.split(".")[0] == LIBRARY:
            raise ValueError(f"rules/{topic}.py imports {imported}: rules must not ask the library")
    return answers.ANSWERS, import_module(f"tests.conformance.rules.{topic}").RULES


def _imports(source: Path) -> Iterator[str]:
    """Names of every module that a source file imports, those of its neighbours in `rules` included."""
    for node in ast.walk(ast.parse(source.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            yield name
            neighbour = _HERE / "rules" / f"{name.rpartition('.')[2]}.py"
            if name.startswith("tests.conformance.rules.") and neighbour.exists():
                yield from _imports(neighbour)


def _hold(vector: Vector, answers: Mapping[str, Ask], rules: Sequence[Rule], report: Report) -> None:
    rule = None
    try:
        rule = next((rule for rule in rules if rule.applies(vector)), None)
        expected = vector["expect"] if rule is None else rule.expectation(vector)
    except (
        Exception
    ) as error:  # a rule that cannot cope with a vector never seen: say so, and go on with the others
        problem = f"a rule of this file raised {type(error).__name__}: {error}"
        report.failures.append(Failure(vector, vector["expect"], problem, rule))
        return
    got = _answer(vector, answers)
    if not same(expected, got):
        report.failures.append(Failure(vector, expected, got, rule))
    elif rule is None or _agree(expected, vector["expect"]):
        report.passed += 1
    else:
        report.decided[rule.decision, rule.about] += 1


def _answer(vector: Vector, answers: Mapping[str, Ask]) -> Answer:
    if vector["op"] not in answers:
        return f"no answer is defined for op {vector['op']!r}"
    try:
        return answers[vector["op"]](vector)
    except Exception as error:
        return Raised(
            frozenset(kind.__name__ for kind in type(error).__mro__), f"{type(error).__name__}: {error}"
        )


def same(expected: Any, got: Any) -> bool:
    """Whether an answer is what is expected, by the rules of the vectors' README."""
    if isinstance(expected, Mapping) and set(expected) == {"error"}:
        if not isinstance(got, Raised):
            return False
        name = expected["error"]
        return name in _REJECTED or ("ValueError" if name == "InvalidTimezone" else name) in got.names
    return not isinstance(got, Raised) and _same_value(expected, got, unordered=False, as_text=False)


def _agree(expected: Any, stated: Any) -> bool:
    """Whether two expectations ask for the same."""
    if isinstance(expected, Mapping) and "error" in expected and isinstance(stated, Mapping):
        return expected.get("error") == stated.get("error") or stated.get("error") in _REJECTED
    return _same_value(expected, stated, unordered=False, as_text=False)


def _same_value(expected: Any, got: Any, *, unordered: bool, as_text: bool) -> bool:
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or expected.keys() - {"unordered"} != got.keys() - {"unordered"}:
            return False
        return all(
            _same_value(
                value, got[name], unordered=bool(expected.get("unordered")), as_text=as_text or name in _TEXTS
            )
            for name, value in expected.items()
            if name != "unordered"
        )
    if isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple):
            return False
        if unordered:
            return {json.dumps(one, sort_keys=True) for one in expected} == {
                json.dumps(one, sort_keys=True) for one in got
            }
        return len(expected) == len(got) and all(
            _same_value(one, other, unordered=False, as_text=as_text)
            for one, other in zip(expected, got, strict=True)
        )
    if isinstance(expected, str) and isinstance(got, str) and not as_text and expected.endswith("+00:00"):
        return _instant(expected) == _instant(got)
    return type(expected) is type(got) and bool(expected == got)


def _instant(text: str) -> datetime | str:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return at if at.tzinfo else text
