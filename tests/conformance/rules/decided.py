"""Rules made of the model: a decision applies to a vector if the model's answer rests on it."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tests.conformance.harness import Rule, Vector
from tests.conformance.rules.model import Model, Refused, Subject

Ask = Callable[[Model, Subject, Any], Any]

ABOUT = {
    "D1": "keys that a temporal mapper reads",
    "D12": "blank keys in definitions",
    "D19": "refused where it is declared",
    "D20": "members and hours are real periods",
    "F01": "mapper at the members' granularity, or at neither",
    "F02": "backward rollups fire",
    "F03": "real local periods at clock changes",
    "F04": "finer keys count for the member that contains them",
    "F07": "no date from a product by default",
    "F08": "a repeated hour carries its offset",
    "F11": "no rollup inside another mapper",
    "F12": "fan-out keys are distinct",
    "F13": "a fan-out's default mapper takes the zone of the upstream mapper",
    "F14": "a fan-out checks types when it is declared",
    "F15": "a carried date passes through compositions",
    "F16": "keys beside the anchor are normalised, wrong weeks refused",
    "F20": "allowed keys are a list",
    "F21": "a bare date is a key",
    "F29": "no blanks around keys",
    "F30": "the number of a policy is a whole one",
    "F35": "a repeated time is the first one",
}


def rules(ops: Mapping[str, Ask]) -> list[Rule]:
    """One rule a decision, for the ops that the model answers."""

    @lru_cache(maxsize=20_000)
    def worked_out(op: str, subject: str, given: str) -> tuple[Any, tuple[str, ...]]:
        model = Model()
        try:
            answer = ops[op](model, json.loads(subject), json.loads(given))
        except Refused as refused:
            answer = {"error": refused.name}
        except OverflowError:  # beyond the calendar
            answer = {"error": "ValueError"}
        return answer, tuple(model.touched)

    def of(vector: Vector) -> tuple[Any, tuple[str, ...]]:
        if vector["op"] not in ops:
            return None, ()
        return worked_out(vector["op"], json.dumps(vector["subject"]), json.dumps(vector["input"]))

    def rule(decision: str, about: str) -> Rule:
        return Rule(decision, about, lambda vector: decision in of(vector)[1], lambda vector: of(vector)[0])

    return [rule(decision, about) for decision, about in ABOUT.items()]


def construct(model: Model, subject: Subject, given: Any) -> Any:
    model.check(subject)
    return {"ok": True}


def to_downstream(model: Model, subject: Subject, given: Any) -> Any:
    model.check(subject)
    keys = model.downstream(subject, given)
    return {"key": keys} if isinstance(keys, str) else {"keys": keys}
