"""The runner proves itself: every small fault in the library makes it fail."""

import multiprocessing
from pathlib import Path

import pytest

from tests.conformance.faults import FAULTS, Fault, forget
from tests.conformance.harness import run_file
from tests.conformance.test_conformance import FOLDER, needs_vectors

TOPICS = ("mappers", "rollup", "to_partition_date", "wait_policy", "windows")
NOTICED = 3
PATHS = [FOLDER / f"{topic}.json" for topic in TOPICS]

pytestmark = needs_vectors


@pytest.fixture(scope="module", autouse=True)
def whole() -> None:
    """Without a fault the runner is content; processes forked from here inherit what the rules worked out."""
    assert all(run_file(path).is_clean for path in PATHS)


def test_there_are_enough_faults_and_each_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_runner_notices(fault: Fault) -> None:
    process = multiprocessing.get_context("fork").Process(target=_run, args=(fault, PATHS))
    process.start()
    process.join(60)
    assert process.exitcode == NOTICED


def _run(fault: Fault, paths: list[Path]) -> None:
    """Ends with NOTICED where the runner fails, 0 where it is content; the fault lives in this process alone."""
    forget()
    fault.seed()
    noticed = any(not run_file(path, to_first_failure=True).is_clean for path in paths)
    raise SystemExit(NOTICED if noticed else 0)
