"""Every rule of the protocol can be broken in the simulation, or it is said why not and where it is tested."""

import re
from pathlib import Path

import pytest

from tests.simulation.broken import ELSEWHERE, SWITCHES

ROOT = Path(__file__).parents[2]


def test_every_rule_of_the_protocol_has_a_switch_or_a_test_elsewhere() -> None:
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    rules = set(re.findall(r"\*\*([EIRT]\d+)\b", text))
    assert len(rules) > 20
    switched = {name.partition(".")[0] for name in SWITCHES}
    assert rules - switched <= ELSEWHERE.keys()
    assert not switched & ELSEWHERE.keys()


@pytest.mark.parametrize("rule", ELSEWHERE)
def test_the_test_that_covers_a_rule_is_there(rule: str) -> None:
    path, _, test = ELSEWHERE[rule][1].partition("::")
    assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
