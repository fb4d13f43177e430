"""python tests/conformance/run.py FOLDER: hold the library against every vector file of a folder.

Prints what passed, what was decided otherwise by decision and rule, and every failure; ends with 1 on any failure.
"""

import json
import sys
from collections import Counter
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.conformance.harness import Failure, Raised, Report, run_file  # noqa: E402


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python tests/conformance/run.py FOLDER", file=sys.stderr)
        return 2
    files = sorted(Path(arguments[0]).glob("*.json"))
    if not files:
        print(f"no vector files in {arguments[0]}", file=sys.stderr)
        return 2
    reports = [run_file(path) for path in files]
    for report in reports:
        _print(report)
    decided = sum(report.decided.total() for report in reports)
    failed = sum(report.failed for report in reports)
    print(
        f"all: {sum(report.passed for report in reports)} passed, {decided} decided otherwise, {failed} failed"
    )
    return 0 if all(report.is_clean for report in reports) else 1


def _print(report: Report) -> None:
    by_decision: Counter[str] = Counter()
    for (decision, _), count in report.decided.items():
        by_decision[decision] += count
    ids = ", ".join(f"{decision} {count}" for decision, count in sorted(by_decision.items()))
    otherwise = f"{by_decision.total()} decided otherwise" + (f" ({ids})" if ids else "")
    print(f"{report.topic}: {report.passed} passed, {otherwise}, {report.failed} failed")
    for (decision, about), count in sorted(report.decided.items()):
        print(f"    {count:4} {decision}: {about}")
    if report.problem:
        print(f"    {report.problem}")
        return
    for failure in report.failures:
        _print_failure(failure)


def _print_failure(failure: Failure) -> None:
    vector = failure.vector
    rule = f" (rule {failure.rule.decision}: {failure.rule.about})" if failure.rule else ""
    print(f"    FAILED {vector['id']} {vector['op']}{rule}")
    print(f"        subject   {_short(vector['subject'])}")
    print(f"        input     {_short(vector['input'])}")
    print(f"        expected  {_short(failure.expected)}")
    print(f"        got       {failure.got.text if isinstance(failure.got, Raised) else _short(failure.got)}")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 600 else f"{text[:500]} ... {text[-80:]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
