"""The documents keep up with the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"\b(?:[EIR]\d|T\d|[DF]\d\d?|B\d{3})\b")


def cited_rules() -> dict[str, set[str]]:
    """Every rule that the code names, with the files that do."""
    found: dict[str, set[str]] = {}
    for folder in ("shared", "services"):
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.lua")]:
            for name in RULE.findall(path.read_text()):
                found.setdefault(name, set()).add(path.name)
    return found


def test_every_rule_that_the_code_cites_is_written_down() -> None:
    written = set(RULE.findall((ROOT / "docs" / "rules.md").read_text()))
    missing = {name: sorted(files) for name, files in cited_rules().items() if name not in written}
    assert not missing
