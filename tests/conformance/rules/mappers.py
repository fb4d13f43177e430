"""What is decided otherwise about mappers.json."""

from tests.conformance.rules.decided import construct, rules, to_downstream

RULES = rules({"construct": construct, "to_downstream": to_downstream})
