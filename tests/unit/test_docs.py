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


def test_rules_stand_in_the_order_of_their_numbers() -> None:
    sections = (ROOT / "docs" / "rules.md").read_text().split("\n## ")
    for section in sections:
        names = re.findall(r"^- \*\*([A-Z]\d+)", section, re.MULTILINE)
        assert names == sorted(names, key=lambda name: ("EIRTDFB".index(name[0]), int(name[1:])))


def test_the_architecture_names_every_room_and_no_file_that_is_gone() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    places = (ROOT / "shared", ROOT / "services")
    for name in re.findall(r"`(?:services/)?((?:\w+/)*\w+\.(?:py|lua))`", text):
        assert any(any(place.rglob(name)) for place in places), name
    rooms = [*(ROOT / "tests").iterdir(), *(ROOT / "shared/tidegate").iterdir()]
    folders = {each.name for each in rooms if each.is_dir() and not each.name.startswith((".", "_"))}
    assert {name for name in folders if not re.search(rf"\b{name}\b", text)} == set()
    modules = {each.stem for each in (ROOT / "shared/tidegate/runtime").glob("[a-z]*.py")}
    assert {name for name in modules if not re.search(rf"\b{name}\b", text)} == set()
