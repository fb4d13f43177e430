"""`python -m tests.mutations [WORD ...]`: put each fault into a copy of the sources, run its tests, print a table.

With words, only faults whose file or text holds one of them. Exit code 1 if any stayed unnoticed.
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
_FAILED: Final = 1
"""pytest's exit code where tests ran and some failed; others mean that nothing was shown."""


def main(words: list[str]) -> int:
    chosen = [each for each in FAULTS if not words or any(word in str(each) for word in words)]
    unnoticed = 0
    with TemporaryDirectory() as folder:
        for number, fault in enumerate(chosen):
            copy = Path(folder) / str(
                number
            )  # a folder of its own: no compiled file of another fault is found
            for name in _COPIED:
                there = ROOT / name
                if there.is_dir():
                    shutil.copytree(there, copy / name, ignore=_IGNORED)
                else:
                    shutil.copy(there, copy / name)
            code = _run(fault, copy)
            shutil.rmtree(copy)
            verdict = {0: "UNNOTICED", _FAILED: "caught"}.get(code, f"no verdict (pytest {code})")
            unnoticed += code != _FAILED
            change = f"{fault.old.strip()} -> {fault.new.strip() or '(nothing)'}".replace("\n", " ")
            print(f"{verdict:<9} | {fault.file} | {change} | {fault.tests.partition('::')[2]}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} caught")
    return int(unnoticed > 0)


def _run(fault: Fault, copy: Path) -> int:
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.file} does not hold {fault.old!r} once"
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    path, _, test = fault.tests.partition("::")
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
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
