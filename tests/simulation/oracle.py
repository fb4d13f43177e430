"""What must have come out, worked out from the logs alone: shares no code with the core and the rollup's script.

Each stage is held against what the stage before it wrote, so that a fault is named where it arose.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition

from tests.simulation.kafka import Kafka

HORIZON_MS: Final = 60_000
INVALID: Final = "event-refused"

JOBS_OF: Final = {"a": ("added", "both", "each"), "b": ("quarter",), "c": ("both",), "d": ("plain",)}
"""The jobs that an asset matters to."""
ASSETS_OF: Final = {"added": {"a"}, "both": {"a", "c"}, "each": {"a"}, "plain": {"d"}, "quarter": {"b"}}
MONTHS_OF_QUARTER: Final = 3
LIMITS: Final = {"each": 1}
"""How many runs of a job may be active at once."""

Identity = tuple[str, str]
"""(source, id) of an event."""
Coordinates = tuple[str, int, int]
"""(source log, offset, ordinal) of the record that another was made from."""


class Firing(NamedTuple):
    """A satisfied round."""

    job: str
    key: str
    generation: int
    events: frozenset[Identity]
    log: str
    offset: int
    ordinal: int


@dataclass(slots=True)
class _Round:
    """One (job, key): what is waiting, and what is remembered of the rounds that fired."""

    waiting: dict[tuple[str, str], Identity] = field(default_factory=dict)
    replaced: set[Identity] = field(default_factory=set)
    fired_at: int | None = None
    generation: int = 0
    seen: dict[Identity, int] = field(default_factory=dict)


class Audited(NamedTuple):
    kind: str
    job: str | None
    event: str | None
    position: str | None


class Oracle:
    """Reads the logs of one schedule that has come to rest."""

    def __init__(self, kafka: Kafka, *, were_marks_lost: bool, lasted_ms: int) -> None:
        self._kafka = kafka
        self._is_dedupe_exact = not were_marks_lost and lasted_ms < HORIZON_MS
        self.problems: list[str] = []
        self._audit = {entry["id"]: entry for entry in self._messages("audit-log")}
        self._audited = Counter(
            Audited(entry["kind"], entry.get("job"), entry.get("event_id"), entry.get("position"))
            for entry in self._audit.values()
        )
        self._excused = self._gaps()

    def judge(self) -> list[str]:
        """Every way in which the outcome is wrong."""
        self._check_ingest()
        self._check_mapper()
        expected = self._check_rollup()
        self._check_dispatcher(expected)
        self._check_limits()
        self._check_positions()
        return self.problems

    # Reading

    def _messages(self, topic: str) -> Iterator[dict[str, Any]]:
        for record in self._kafka.records(topic):
            yield json.loads(record.value)

    def _gaps(self) -> dict[TopicPartition, set[int]]:
        """Offsets that a person accepted as lost."""
        lost: dict[TopicPartition, set[int]] = defaultdict(set)
        for entry in self._audit.values():
            if entry["kind"] == "log-gap" and entry["details"]["accepted"]:
                name, _, offset = entry["position"].rpartition("@")
                topic, _, number = name.rpartition("/")
                lost[TopicPartition(topic, int(number))] |= set(
                    range(int(offset), entry["details"]["beginning"])
                )
        return lost

    def _expect(self, ok: bool, problem: str) -> None:
        if not ok:
            self.problems.append(problem)

    def _compare(self, what: str, expected: Iterable[Any], found: Iterable[Any]) -> None:
        wanted, there = Counter(iter(expected)), Counter(iter(found))
        for each in wanted - there:
            self.problems.append(f"{what}: missing {each}")
        for each in there - wanted:
            self.problems.append(f"{what}: too much {each}")

    # Ingest

    def _accepted(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The first record of every accepted event, by (source log, offset).

        One that comes after a later one of its source is a repeat by rule E1: an event that was called a duplicate at
        first, and was accepted by a zombie when its mark had expired. It counts as told, not as input.
        """
        found: dict[tuple[str, int], dict[str, Any]] = {}
        highest: dict[tuple[int, str], int] = {}
        for record in sorted(self._kafka.records("accepted-events"), key=self._order):
            batch = json.loads(record.value)
            for event in batch["events"]:
                offset, stamp, _, source, event_id, asset, key, *_ = event
                about = {"stamp": stamp, "identity": (source, event_id), "asset": asset, "key": key}
                first = found.setdefault((batch["source"], offset), about)
                high = highest.get((record.partition, batch["source"]), -1)
                if first is about:
                    about["is_input"] = offset > high
                highest[record.partition, batch["source"]] = max(offset, high)
                same = {**first, **about, "stamp": first["stamp"]} == first
                self._expect(
                    same, f"ingest gave {batch['source']}@{offset} another content when it was repeated"
                )
        return found

    def _order(self, record: ConsumerRecord) -> int:
        log = self._kafka.log(record.topic, record.partition)
        order: int = log.slots[record.offset].order
        return order

    def _check_ingest(self) -> None:
        accepted = self._accepted()
        letters = {
            (each["topic"], each["partition"], each["offset"])
            for each in self._messages("asset-events.rejected")
        }
        by_position: dict[str | None, set[str]] = defaultdict(set)
        for entry in self._audited:
            by_position[entry.position].add(entry.kind)
        taken: dict[Identity, int] = Counter()
        lost: set[Identity] = set()
        everything: set[Identity] = set()
        for record in self._kafka.records("asset-events"):
            position = f"asset-events/{record.partition}@{record.offset}"
            kinds = by_position[position]
            is_excused = record.offset in self._excused[TopicPartition("asset-events", record.partition)]
            event = json.loads(record.value)
            if "id" not in event:
                is_told = INVALID in kinds and ("asset-events", record.partition, record.offset) in letters
                self._expect(is_told or is_excused, f"{position} was refused in silence")
                continue
            identity = (event["source"], event["id"])
            everything.add(identity)
            if is_excused:
                lost.add(identity)
            is_duplicate = "duplicate-event" in kinds
            if taken_in := accepted.get((f"asset-events/{record.partition}", record.offset)):
                taken[identity] += taken_in["is_input"]
                if self._is_dedupe_exact:
                    self._expect(not is_duplicate, f"{position} was accepted and called a duplicate")
            else:
                self._expect(is_duplicate or is_excused, f"{position} disappeared")
        for identity in sorted(everything):
            if identity not in lost:
                self._expect(taken[identity] > 0, f"no record of event {identity} was accepted")
            if self._is_dedupe_exact:
                self._expect(taken[identity] < 2, f"event {identity} was accepted {taken[identity]} times")

    # Mapper

    def _check_mapper(self) -> None:
        added_at = [
            record.offset for record in self._kafka.records("definitions") if record.key == b"job:added"
        ]
        wanted: list[tuple[str, str, Identity]] = []
        notes: list[tuple[str, str, str]] = []
        for event in filter(lambda each: each["is_input"], self._accepted().values()):
            source_id: Identity = event["identity"]
            for job in JOBS_OF.get(event["asset"], ()):
                if job == "added" and not (added_at and added_at[0] < event["stamp"]):
                    continue
                placed = _placed(job, event["key"])
                if placed is None:
                    notes.append((_why_not(job, event["key"]), job, source_id[1]))
                else:
                    wanted.append((job, placed, source_id))
        found: dict[Coordinates, tuple[str, str, Identity]] = {}
        for record in sorted(self._kafka.records("contributions"), key=self._order):
            for coordinates, about, _ in _contributions(record):
                first = found.setdefault(coordinates, about)
                self._expect(first == about, f"mapper made {first} of {coordinates} and later {about}")
        self._compare("contributions", wanted, found.values())
        kinds = {"no-partition-key", "partitioned-event", "mapping-failed"}
        self._compare(
            "audit of the mapper",
            notes,
            ((each.kind, each.job, each.event) for each in self._audited.elements() if each.kind in kinds),
        )

    # Rollup

    def _check_rollup(self) -> dict[tuple[str, int, int], Firing]:
        """Holds run requests and audit against a fold of contributions; returns the firings by where they arose."""
        firings: dict[tuple[str, int, int], Firing] = {}
        notes: list[tuple[str, str, str, str]] = []
        rounds: dict[tuple[str, str], _Round] = defaultdict(_Round)
        highest: set[Coordinates] = set()
        for record in self._kafka.records("contributions"):
            log = f"contributions/{record.partition}"
            for ordinal, (coordinates, (job, key, event), place) in enumerate(_contributions(record)):
                if coordinates in highest:
                    continue
                highest.add(coordinates)
                outcome = _fold(rounds[job, key], job, place, event, record.timestamp)
                if isinstance(outcome, str):
                    notes.append((outcome, job, event[1], f"{log}@{record.offset}"))
                elif outcome is not None:
                    generation, events = outcome
                    where = (log, record.offset, ordinal)
                    firings[where] = Firing(job, key, generation, events, *where)
        asked: dict[tuple[str, int, int], str] = {}
        found: dict[tuple[str, int, int], Firing] = {}
        for record in self._kafka.records("run-requests"):
            batch = json.loads(record.value)
            if batch["kind"] != "requests":  # what a person did to a job
                continue
            log = batch["source"].partition("#")[0]
            for request in batch["requests"]:
                where = (log, request["offset"], request["ordinal"])
                run_id = asked.setdefault(where, request["run_id"])
                self._expect(
                    run_id == request["run_id"], f"the firing at {where} was asked for as two runs (R7)"
                )
                events = frozenset((each["source"], each["id"]) for each in request["events"])
                key = request.get("partition_key") or ""
                firing = Firing(request["job"], key, request["generation"], events, *where)
                first = found.setdefault(where, firing)
                self._expect(first == firing, f"{first} was later asked for as {firing}")
        self._compare("run requests", firings.values(), found.values())
        kinds = {"member-replaced", "member-rerun", "member-late"}
        self._compare(
            "audit of the rollup",
            notes,
            (
                (each.kind, each.job, each.event, each.position)
                for each in self._audited.elements()
                if each.kind in kinds
                or (each.kind == "duplicate-event" and (each.position or "").startswith("contributions/"))
            ),
        )
        self._run_ids = asked
        return firings

    # Dispatcher

    def _check_dispatcher(self, firings: dict[tuple[str, int, int], Firing]) -> None:
        by_content: dict[tuple[str, str, int, frozenset[Identity]], list[Firing]] = defaultdict(list)
        for firing in firings.values():
            by_content[firing[:4]].append(firing)
        commands: list[tuple[str, str, int, frozenset[Identity]]] = []
        run_ids: Counter[str] = Counter()
        for topic in sorted({tp.topic for tp in self._kafka.logs if tp.topic.startswith("run-commands.")}):
            for command in self._messages(topic):
                run_ids[command["run_id"]] += 1
                events = frozenset(
                    (each["source"], each["id"]) for each in command["triggering_asset_events"]
                )
                commands.append(
                    (command["job"], command.get("partition_key") or "", command["generation"], events)
                )
        # Events that come again after the horizon are new ones, though their run has the same id (D5). Where that is
        # still remembered, it is said that no second command is sent (T7).
        firings_of = Counter(self._run_ids.values())
        for run_id, times in run_ids.items():
            self._expect(
                times <= firings_of[run_id],
                f"run {run_id} was commanded {times} times for {firings_of[run_id]} rounds",
            )
        again = sum(entry.kind == "run-id-mismatch" for entry in self._audited.elements())
        spare = sum(len(same) - 1 for same in by_content.values())
        self._compare("commands", by_content, set(commands))
        self._expect(
            len(commands) + again == len(by_content) + spare,
            f"{len(commands)} commands and {again} repeated runs for {len(by_content) + spare} rounds",
        )
        states: dict[str, dict[str, Any] | None] = {}
        for record in self._kafka.records("runs"):
            run_id = record.key.decode()
            states[run_id] = None if record.value is None else json.loads(record.value)
        for run_id in run_ids:
            self._expect(run_id in states, f"`runs` knows nothing of run {run_id}")
            state = states.get(run_id)
            if state is not None:
                self._expect(
                    state["state"] == "succeeded", f"run {run_id} has ended, but is {state['state']}"
                )

    def _check_limits(self) -> None:
        """After every transaction, no more runs of a job are active than may be, and a paused job has sent none."""
        for tp, log in sorted(self._kafka.logs.items()):
            if tp.topic != "runs":
                continue
            active: dict[str, str] = {}
            paused: set[str] = set()
            for transaction, slots in groupby(log.slots, key=lambda slot: slot.transaction):
                if transaction is not None and transaction.outcome != "commit":
                    continue
                records = [slot.record for slot in slots if slot.record is not None]
                was_paused = set(paused)
                for record in records:
                    name = record.key.decode()
                    state = json.loads(record.value) if record.value else {}
                    if name.startswith("job:"):
                        (paused.add if state["is_paused"] else paused.discard)(state["job"])
                    elif state.get("state") in ("sent", "running"):
                        is_kept = name in active or state["job"] not in was_paused & paused
                        self._expect(is_kept, f"run {name} was sent at {tp} while its job was paused")
                        active[name] = state["job"]
                    else:
                        active.pop(name, None)
                for job, limit in LIMITS.items():
                    count = sum(each == job for each in active.values())
                    self._expect(count <= limit, f"{count} runs of {job} are active at once at {tp}")

    def _check_positions(self) -> None:
        for group in self._kafka.groups.values():
            for tp, log in self._kafka.logs.items():
                if tp in group.committed:
                    behind = [
                        slot
                        for slot in log.slots[group.committed[tp].offset :]
                        if slot.record is not None
                        and (slot.transaction is None or slot.transaction.outcome == "commit")
                    ]
                    self._expect(
                        not behind, f"{group.name} stands {len(behind)} records behind the end of {tp}"
                    )


def _placed(job: str, key: str | None) -> str | None:
    """The downstream key that an event with `key` counts for, None where it counts for none."""
    if job == "plain":
        return "" if key is None else None
    if job == "quarter":
        is_month = key is not None and key.startswith("2024-")
        return f"2024-Q{(int(key[5:7]) - 1) // 3 + 1}" if is_month and key is not None else None
    return key


def _why_not(job: str, key: str | None) -> str:
    if job == "plain":
        return "partitioned-event"
    return "no-partition-key" if key is None else "mapping-failed"


def _contributions(
    record: ConsumerRecord,
) -> Iterator[tuple[Coordinates, tuple[str, str, Identity], tuple[str, str]]]:
    """(coordinates, (job, key, event), (asset, key of the event)) of every entry of a record."""
    batch = json.loads(record.value)
    for entry in batch.get(
        "entries", ()
    ):  # others are control records: no job changes here, so they move no round
        offset, ordinal, job, event, key, asset = entry[:6]
        event_key, event_id, source = batch["events"][event][:3]
        name = batch["jobs"][job]
        yield (
            (batch["source"], offset, ordinal),
            (name[0], key, (source, event_id)),
            (name[4][asset], event_key or ""),
        )


def _fold(
    state: _Round, job: str, place: tuple[str, str], event: Identity, at: int
) -> str | tuple[int, frozenset[Identity]] | None:
    """One contribution: what is audited of it, or the generation and events of the run that it starts, or nothing."""
    since = at - HORIZON_MS
    is_remembered = state.fired_at is not None and state.fired_at >= since
    if is_remembered:
        if state.seen.get(event, since - 1) >= since:
            return "duplicate-event"
        if job == "quarter":
            return "member-rerun"  # its rounds fire when every member is in
    if (there := state.waiting.get(place)) is not None:
        if event == there or event in state.replaced:
            return "duplicate-event"
        state.replaced.add(there)
        state.waiting[place] = event
        return "member-replaced"
    state.waiting[place] = event
    is_full = (
        len(state.waiting) == MONTHS_OF_QUARTER
        if job == "quarter"
        else {asset for asset, _ in state.waiting} == ASSETS_OF[job]
    )
    if not is_full:
        return None
    state.generation = state.generation + 1 if is_remembered else 1
    state.fired_at, events = at, frozenset(state.waiting.values())
    state.seen |= dict.fromkeys((*events, *state.replaced), at)
    state.waiting, state.replaced = {}, set()
    return state.generation, events
