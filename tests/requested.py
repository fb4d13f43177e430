"""What the rollup asks for, as readers of `run-requests` have it."""

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.runs import EncodedRequest, RunRequest, TriggeringEvent
from tidegate_rollup import acted as _acted
from tidegate_rollup import outbox
from tidegate_rollup.outbox import OutboxItem


class ReadRequest(RunRequest):
    """Its events as models."""

    events: tuple[TriggeringEvent, ...]  # type: ignore[assignment]


def run_request(each: OutboxItem) -> tuple[ReadRequest, AuditEntry | None]:
    encoded, conflict = outbox.run_request(each)
    return _read(encoded), conflict


def acted(each: OutboxItem, partition: int) -> tuple[ReadRequest | None, list[AuditEntry]]:
    encoded, audit = _acted.acted(each, partition)
    return encoded and _read(encoded), audit


def _read(encoded: EncodedRequest) -> ReadRequest:
    """The request, which its model would have written in the same way."""
    request = ReadRequest.from_bytes(encoded.raw)
    assert request.to_bytes() == encoded.raw
    assert request.job == encoded.job
    return request
