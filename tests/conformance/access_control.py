"""Answers to the vectors of the team filter."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.harness import Answer, Ask, Vector
from tidegate.core import access
from tidegate.core.access import AssetAccessControl


def _access_control(data: Mapping[str, Any] | None) -> AssetAccessControl | None:
    return None if data is None else AssetAccessControl(**data)


def deliver(vector: Vector) -> Answer:
    subject = vector["subject"]
    consumer, producer = subject["consumer"], subject["producer"]
    reason = access.refusal(
        consumer_team=consumer["team"],
        consumer=_access_control(consumer["access_control"]),
        producer_teams=producer["teams"],
        producer=_access_control(producer["access_control"]),
        from_api=producer["kind"] == "api",
    )
    return {"delivered": not subject["multi_team"] or reason is None}


ANSWERS: dict[str, Ask] = {"deliver": deliver}
