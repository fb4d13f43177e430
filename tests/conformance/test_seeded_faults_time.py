"""The runner proves itself: small faults in timetables, assets, teams, dates and rounds make it fail too."""

import multiprocessing

import pytest

from tests.conformance.faults import Fault, forget
from tests.conformance.faults_time import FAULTS
from tests.conformance.harness import run_file
from tests.conformance.test_conformance import FOLDER, needs_vectors

NOTICED = 3

pytestmark = [needs_vectors, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def whole() -> None:
    """Without a fault the runner is content; processes forked from here inherit what the rules worked out."""
    assert all(run_file(FOLDER / f"{topic}.json").is_clean for topic in {topic for topic, _ in FAULTS})


def test_each_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for _, fault in FAULTS}) == len(FAULTS) >= 20


@pytest.mark.parametrize(("topic", "fault"), FAULTS, ids=[fault.name for _, fault in FAULTS])
def test_the_runner_notices(topic: str, fault: Fault) -> None:
    process = multiprocessing.get_context("fork").Process(target=_run, args=(topic, fault))
    process.start()
    process.join(60)
    assert process.exitcode == NOTICED


def _run(topic: str, fault: Fault) -> None:
    forget()
    fault.seed()
    is_clean = run_file(FOLDER / f"{topic}.json", to_first_failure=True).is_clean
    raise SystemExit(0 if is_clean else NOTICED)
