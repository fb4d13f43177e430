"""Where the time between an event and its command goes: how long each service took, by the broker's own times.

Every topic of ours is stamped by the broker as it appends a record (LogAppendTime, whole milliseconds), so the topics
of the road say afterwards when the last event of a command went through which service.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench.common.latency import percentile
from bench.common.measuring import Timed
from bench.common.receiving import ends, read_on
from tidegate.contracts.accepted import AcceptedBatch
from tidegate.contracts.contributions import ContributionBatch, read_contributions_record
from tidegate.contracts.events import parse_event
from tidegate.contracts.runs import RunCommand, read_run_requests_record, requests_in
from tidegate.contracts.topics import ACCEPTED, ASSET_EVENTS, CONTRIBUTIONS, RUN_REQUESTS

STAGES: Final = ("published", "ingest", "mapper", "rollup", "dispatcher", "committed and received")
"""From the instant at which the event was due to be sent to `asset-events`; each service, from its input's stamp to its
output's; from the command's stamp, inside the transaction, to its receipt."""


class Road:
    """The topics between an event and its command, from the end that they have now."""

    def __init__(self, bootstrap: str, commands: Sequence[str]) -> None:
        self._bootstrap, self._commands = bootstrap, frozenset(commands)
        self._places = ends(bootstrap, (ASSET_EVENTS, ACCEPTED, CONTRIBUTIONS, RUN_REQUESTS, *commands))

    def stages_ms(self, timed: Sequence[Timed]) -> dict[str, list[float]]:
        """Milliseconds by stage, of every command that was completed by an event of ours."""
        self._events: dict[str, dict[str, float]] = {ASSET_EVENTS: {}, ACCEPTED: {}, CONTRIBUTIONS: {}}
        self._requests: dict[str, float] = {}
        self._found: dict[str, tuple[float, str | None]] = {}
        for message in read_on(self._bootstrap, self._places):
            self._note(message.topic() or "", message.timestamp()[1], message.value() or b"")
        wall = 1000 * (time.time() - time.monotonic())
        took: dict[str, list[float]] = {stage: [] for stage in STAGES}
        for each in timed:
            written, event = self._found.get(each.run_id, (0, None))
            stamps = [
                self._events[topic].get(event or "") for topic in (ASSET_EVENTS, ACCEPTED, CONTRIBUTIONS)
            ]
            instants = [
                wall + 1000 * each.due,
                *stamps,
                self._requests.get(each.run_id),
                written,
                wall + 1000 * each.came,
            ]
            known = [instant for instant in instants if instant is not None]
            if len(known) == len(instants):
                for stage, before, after in zip(STAGES, known, known[1:], strict=False):
                    took[stage].append(after - before)
        return took

    def _note(self, topic: str, at: int, value: bytes) -> None:
        if topic in self._commands:
            command = RunCommand.from_bytes(value)
            self._found[command.run_id] = (at, command.completed_by)
        elif topic == RUN_REQUESTS:
            for request in requests_in(read_run_requests_record(value)):
                self._requests.setdefault(request.run_id, at)
        else:
            for event in _event_ids(topic, value):
                self._events[topic].setdefault(event, at)


def _event_ids(topic: str, value: bytes) -> list[str]:
    if topic == ASSET_EVENTS:
        return [parse_event(value).id]
    if topic == ACCEPTED:
        return [event.id for event in AcceptedBatch.from_bytes(value).events]
    record = read_contributions_record(value)
    return [event.id for event in record.events] if isinstance(record, ContributionBatch) else []


def medians_and_tails(stages: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """For tables: "p50 / p99" by stage."""
    return {
        stage: f"{percentile(took, 50):.1f} / {percentile(took, 99):.1f}" for stage, took in stages.items()
    }
