"""`python -m tests.mutations [WORD ...]`: put each fault into a copy of the sources, run its tests, print a table.

With words, only faults whose file or text holds one of them. Tests that fail without the fault prove nothing, so each
selection of them is run once on the sources as they are. Exit code 1 if any fault was not shown to be noticed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.mutations.faults import FAULTS, Fault

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("shared", "services", "tests", "examples", "pyproject.toml")
_IGNORED: Final = shutil.ignore_patterns("__pycache__", ".*")
CAUGHT: Final = "caught"
_PASSED: Final = 0
_FAILED: Final = 1
"""pytest's exit codes where tests ran; others mean that nothing was shown."""


def main(words: list[str]) -> int:
    chosen = [each for each in FAULTS if not words or any(word in str(each) for word in words)]
    caught = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        without: dict[str, int] = {}
        """What pytest says of each selection of tests where there is no fault."""
        for number, fault in enumerate(chosen):
            if fault.tests not in without:
                without[fault.tests] = _run(folder / "without", fault.tests)
            verdict = _verdict(folder / str(number), fault, without[fault.tests])
            caught += verdict == CAUGHT
            change = f"{fault.old.strip()} -> {fault.new.strip() or '(nothing)'}".replace("\n", " ")
            print(f"{verdict:<9} | {fault.file} | {change} | {fault.tests.partition('::')[2]}", flush=True)
    print(f"{caught} of {len(chosen)} caught")
    return int(caught < len(chosen))


def _verdict(copy: Path, fault: Fault, without: int) -> str:
    if without != _PASSED:
        return f"no verdict (pytest {without} without the fault)"
    code = _run(copy, fault.tests, fault)
    return {_PASSED: "UNNOTICED", _FAILED: CAUGHT}.get(code, f"no verdict (pytest {code})")


def _run(copy: Path, tests: str, fault: Fault | None = None) -> int:
    """pytest's exit code for a selection of tests in a copy of the sources, with a fault or none.

    The copy is a folder of its own, so that no compiled file of another fault is found, and is taken away afterwards.
    """
    for name in _COPIED:
        there = ROOT / name
        if there.is_dir():
            shutil.copytree(there, copy / name, ignore=_IGNORED)
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(there, copy / name)
    if fault is not None:
        file = copy / fault.file
        text = file.read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, f"{fault.file} does not hold {fault.old!r} once"
        file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    path, _, test = tests.partition("::")
    # The real Redis where a test has two: what differs between them is not what is looked for here.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", path, "-q", "-x", "-p", "no:cacheprovider"),
            *("-k", f"{test} and not embedded"),
        ],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(copy / each) for each in ("shared", "services", "")),
        },
        capture_output=True,
        check=False,
    )
    shutil.rmtree(copy)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
