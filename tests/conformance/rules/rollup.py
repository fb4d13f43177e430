"""What is decided otherwise about rollup.json."""

from typing import Any

from tests.conformance.rules.decided import construct, rules, to_downstream
from tests.conformance.rules.model import Model, Subject


def to_upstream(model: Model, subject: Subject, given: Any) -> Any:
    model.check(subject)
    return {"keys": model.upstream(subject, given)}


def covers(model: Model, subject: Subject, given: Any) -> Any:
    model.check(subject)
    return model.covers(subject, given)


RULES = rules(
    {"construct": construct, "covers": covers, "to_downstream": to_downstream, "to_upstream": to_upstream}
)
