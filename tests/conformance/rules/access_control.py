"""What docs/rules.md decides otherwise about teams."""

from tests.conformance.harness import Rule, Vector


def _has_no_team(vector: Vector) -> bool:
    return vector["subject"]["consumer"]["team"] is None


RULES = [
    Rule(
        "F38",
        "a consumer without a team takes events from anyone",
        _has_no_team,
        lambda vector: {"delivered": True},
    ),
]
