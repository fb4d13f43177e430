"""What is decided otherwise about windows.json: only what may be declared."""

from typing import Any

from tests.conformance.rules.decided import rules
from tests.conformance.rules.model import Model, Subject


def declared(model: Model, subject: Subject, given: Any) -> Any:
    model.check_window(subject)
    return {"ok": True}


RULES = rules({"construct": declared, "members": declared})
