"""The kept faults of tests/mutations stand for something as long as their places and tests are there."""

import re

import pytest

from tests.mutations.__main__ import ROOT
from tests.mutations.faults import APPLY, CONTROLS, DISPATCHER, FAULTS, FOLD, INGEST, MAPPING, Fault


@pytest.mark.parametrize(
    "fault", FAULTS, ids=lambda fault: f"{fault.file.rpartition('/')[2]}: {fault.old.strip()[:40]}"
)
def test_a_fault_has_one_place_and_a_test_that_must_notice_it(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.new != fault.old
    path, _, test = fault.tests.partition("::")
    assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_faults_in_every_part_that_decides() -> None:
    assert {APPLY, CONTROLS, FOLD, MAPPING, DISPATCHER, INGEST} <= {fault.file for fault in FAULTS}
    assert len(set(FAULTS)) == len(FAULTS)
