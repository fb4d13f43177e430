"""The library against every vector file (tests/conformance/run.py), and the runner against its own rules."""

import os
from pathlib import Path

import pytest

from tests.conformance import harness
from tests.conformance.harness import Raised, Rule, Vector, run_file

FOLDER = Path(os.environ.get("TIDEGATE_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance"))
FILES = sorted(FOLDER.glob("*.json")) if FOLDER.is_dir() else []

needs_vectors = pytest.mark.skipif(not FILES, reason="no folder of vectors: set TIDEGATE_CONFORMANCE")


@needs_vectors
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_vector_is_passed_or_decided_otherwise(path: Path) -> None:
    report = run_file(path)
    assert not report.problem
    assert [(failure.vector["id"], failure.expected, failure.got) for failure in report.failures] == []
    assert report.passed > 0


def test_a_file_that_no_module_answers_fails(tmp_path: Path) -> None:
    path = tmp_path / "unheard_of.json"
    path.write_text(
        '{"topic": "unheard_of", "vectors": [{"id": "1", "op": "x", "subject": {}, "input": 1, "expect": {}}]}'
    )
    report = run_file(path)
    assert not report.is_clean
    assert "no module answers this file" in report.problem


def test_rules_that_ask_the_library_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "mappers.py").write_text("from tidegate import StartOfDayMapper\nRULES = []\n")
    monkeypatch.setattr(harness, "_HERE", tmp_path)
    with pytest.raises(ValueError, match="must not ask the library"):
        harness.load("mappers")


@pytest.mark.parametrize(
    ("expected", "got", "is_same"),
    [
        ({"instant": "2026-03-10T00:00:00+00:00"}, {"instant": "2026-03-09T20:00:00-04:00"}, True),
        ({"instant": "2026-03-10T00:00:00+00:00"}, {"instant": "2026-03-10T00:00:01+00:00"}, False),
        ({"key": "2026-03-10T00:00:00+00:00"}, {"key": "2026-03-10T00:00:00Z"}, False),
        ({"keys": ["a", "b"]}, {"keys": ["b", "a"]}, False),
        ({"keys": ["a", "b"], "unordered": True}, {"keys": ["b", "a"]}, True),
        ({"counts": True}, {"counts": 1}, False),
        ({"key": "a"}, {"key": "a", "other": 1}, False),
        ({"error": "ValueError"}, Raised(frozenset({"KeyFault", "ValueError"}), ""), True),
        ({"error": "TypeError"}, Raised(frozenset({"ValueError"}), ""), False),
        ({"error": "KeyError"}, Raised(frozenset({"ValueError"}), ""), True),
        ({"error": "InvalidTimezone"}, Raised(frozenset({"ValueError"}), ""), True),
        ({"error": "ValueError"}, {"key": "a"}, False),
        ({"key": "a"}, Raised(frozenset({"ValueError"}), ""), False),
    ],
)
def test_answers_are_compared_as_the_vectors_say(expected: object, got: object, is_same: bool) -> None:
    assert harness.same(expected, got) is is_same


def test_a_rule_speaks_before_the_vector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = {"double": lambda vector: {"is": 2 * vector["input"]}}
    rules = [
        Rule(
            "D0",
            "odd ones",
            lambda vector: vector["input"] % 2 == 1,
            lambda vector: {"is": vector["expect"]["rule"]},
        )
    ]
    monkeypatch.setattr(harness, "load", lambda topic: (answers, rules))

    def vector(given: int, **expect: int) -> str:
        return f'{{"id": "{given}", "op": "double", "subject": {{}}, "input": {given}, "expect": {_json(expect)}}}'

    path = tmp_path / "t.json"
    vectors = [vector(2, **{"is": 4}), vector(4, **{"is": 9}), vector(1, rule=2), vector(3, rule=7)]
    path.write_text(f'{{"topic": "t", "vectors": [{", ".join(vectors)}]}}')
    report = run_file(path)
    assert (report.passed, report.decided.total(), report.failed) == (1, 1, 2)


def test_a_rule_that_raises_fails_its_vector_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = [Rule("D0", "none", lambda vector: 1 // vector["input"] > 1, lambda vector: {})]
    monkeypatch.setattr(
        harness, "load", lambda topic: ({"same": lambda vector: {"is": vector["input"]}}, rules)
    )
    path = tmp_path / "t.json"
    path.write_text(
        '{"topic": "t", "vectors": [{"id": "a", "op": "same", "subject": {}, "input": 0, "expect": {"is": 0}},'
        ' {"id": "b", "op": "same", "subject": {}, "input": 1, "expect": {"is": 1}}]}'
    )
    report = run_file(path)
    assert (report.passed, [failure.vector["id"] for failure in report.failures]) == (1, ["a"])
    assert "ZeroDivisionError" in report.failures[0].got


def _json(expect: Vector) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in expect.items()) + "}"
