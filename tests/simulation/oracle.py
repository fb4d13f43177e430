"""What must have come out, worked out from the logs alone: shares no code with the core and the rollup's script.

Each stage is held against what the stage before it wrote, so that a fault is named where it arose.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition

from tests.simulation.folding import (
    HORIZON_MS,
    Coordinates,
    Definitions,
    Firing,
    Folding,
    Identity,
    Mapped,
    Name,
    Note,
    entries,
)
from tests.simulation.jobs import LIMITS
from tests.simulation.kafka import Kafka

INVALID: Final = "event-refused"
POISON: Final = b"poison"
READERS: Final = {
    "accepted-events": "mapper",
    "contributions": "rollup",
    "run-requests": "dispatcher",
    "run-events": "dispatcher",
}
"""Who reads the topics that may hold poison."""
BY_RECORD: Final = {"member-replaced", "member-rerun", "member-late", "duplicate-event", "round-closed"}
BY_ROUND: Final = {"deadline-failed", "deadline-dropped"}
BY_PERSON: Final = {"round-fired", "round-discarded", "member-withdrawn", "action-without-effect"}
SLACK_MS: Final = 4_000
"""Within which an owner must have looked for deadlines."""


class Audited(NamedTuple):
    kind: str
    job: str | None
    event: str | None
    position: str | None


class Oracle:
    """Reads the logs of one schedule that has come to rest."""

    def __init__(
        self,
        kafka: Kafka,
        *,
        shards: int,
        were_marks_lost: bool,
        lasted_ms: int,
        now_ms: int,
        early_ms: int,
        open_rounds: Mapping[Name, frozenset[Identity]],
    ) -> None:
        """`open_rounds` are those in Redis; `early_ms` says by how much a clock may have been fast."""
        self._kafka, self._shards = kafka, shards
        self._is_dedupe_exact = not were_marks_lost and lasted_ms < HORIZON_MS
        self._now_ms, self._early_ms, self._open_rounds = now_ms, early_ms, open_rounds
        self.problems: list[str] = []
        self._audit = {entry["id"]: entry for entry in self._messages("audit-log")}
        self._audited = Counter(
            Audited(entry["kind"], entry.get("job"), entry.get("event_id"), entry.get("position"))
            for entry in self._audit.values()
        )
        self._excused = self._gaps()
        self._definitions = Definitions(kafka.records("definitions"))
        self._run_ids: dict[tuple[str, int, int], str] = {}

    def judge(self) -> list[str]:
        """Every way in which the outcome is wrong."""
        self._check_ingest()
        self._check_mapper()
        firings = self._check_rollup()
        self._check_dispatcher(firings)
        self._check_limits()
        self._check_every_event()
        self._check_poison()
        self._check_positions()
        return self.problems

    # Reading

    def _messages(self, topic: str) -> Iterator[dict[str, Any]]:
        for record in self._records(topic):
            yield json.loads(record.value)

    def _batches(self) -> Iterator[dict[str, Any]]:
        """What the rollup wrote to run-requests; the rest is what people did to a job."""
        return (each for each in self._messages("run-requests") if each["kind"] == "requests")

    def _records(self, topic: str) -> list[ConsumerRecord]:
        """Every record of a topic that can be read."""
        return [record for record in self._kafka.records(topic) if record.value != POISON]

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
        for record in sorted(self._records("accepted-events"), key=self._order):
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

    def _wanted(self) -> Iterator[tuple[dict[str, Any], str, str | None, str, int]]:
        """(event, job, downstream key or None, why not, revision) of every way that an accepted event takes."""
        for event in filter(lambda each: each["is_input"], self._accepted().values()):
            for job in self._definitions.of:
                defined = self._definitions.at(job, event["stamp"])
                if defined is None or event["asset"] not in defined.meaning.assets:
                    continue
                revision = max(each for each in self._definitions.of[job] if each < event["stamp"])
                placed = defined.meaning.place(event["key"])
                yield event, job, placed, defined.meaning.why_not(event["key"]), revision

    def _check_mapper(self) -> None:
        wanted: list[tuple[str, int, str, Identity]] = []
        notes: list[tuple[str, str, str]] = []
        for event, job, placed, why_not, revision in self._wanted():
            if placed is None:
                notes.append((why_not, job, event["identity"][1]))
            else:
                wanted.append((job, revision, placed, event["identity"]))
        found: dict[Coordinates, tuple[str, int, str, Identity]] = {}
        for record in sorted(self._records("contributions"), key=self._order):
            message = json.loads(record.value)
            if message["kind"] == "contributions" and not message["is_remapped"]:
                for each in entries(message):
                    about = (each.job, each.revision, each.key, each.event.identity)
                    first = found.setdefault(each.coordinates, about)
                    self._expect(first == about, f"mapper made {first} of {each} and later {about}")
        self._compare("contributions", wanted, found.values())
        kinds = {"no-partition-key", "partitioned-event", "mapping-failed", "not-a-member"}
        self._compare(
            "audit of the mapper",
            notes,
            ((each.kind, each.job, each.event) for each in self._audited.elements() if each.kind in kinds),
        )

    # Rollup

    def _check_rollup(self) -> list[Firing]:
        """Holds all that the rollup gave against a fold of contributions; returns the firings."""
        folding = Folding(self._definitions, self._kafka.partitions, self._shards, self._early_ms)
        for record in self._records("contributions"):
            folding.take(record)
        self.problems += folding.problems
        self._compare("run requests", folding.firings, self._requests())
        self._compare("mapped again", folding.mapped.elements(), self._mapped_again())
        told = Counter(
            {note: 1 if note.kind in BY_PERSON else times for note, times in folding.notes.items()}
        )
        self._compare("audit of the rollup", told.elements(), self._notes())
        open_rounds = folding.open_rounds()
        waiting = {
            name: frozenset(event.identity for event in each.waiting.values())
            for name, each in open_rounds.items()
        }
        self._compare("open rounds", waiting.items(), self._open_rounds.items())
        for name, each in open_rounds.items():
            late = each.due is not None and each.due < self._now_ms - SLACK_MS
            self._expect(not late, f"the deadline of {name} passed and nothing happened: {each}")
            assert each.meaning is not None
            is_over = each.meaning.is_satisfied(set(each.waiting))
            self._expect(not is_over, f"{name} is satisfied and did not fire: {each}")
        for (shard, job), revision in folding.folded.items():
            newest = self._definitions.newest(job)
            self._expect(
                revision == newest, f"shard {shard} stands at revision {revision} of {job}, not {newest}"
            )
        return folding.firings

    def _requests(self) -> Iterable[Firing]:
        """Every run that was asked for, by where its round ended."""
        found: dict[tuple[str, int, int], Firing] = {}
        for batch in self._batches():
            log = batch["source"].partition("#")[0]
            for request in batch["requests"]:
                where = (log, request["offset"], request["ordinal"])
                run_id = self._run_ids.setdefault(where, request["run_id"])
                self._expect(
                    run_id == request["run_id"], f"the firing at {where} was asked for as two runs (R7)"
                )
                firing = Firing(
                    request["job"],
                    request["incarnation"],
                    request.get("partition_key") or "",
                    request["generation"],
                    frozenset((each["source"], each["id"]) for each in request["events"]),
                    request["revision"],
                    request["cause"],
                    request.get("failed") is not None,
                    *where,
                )
                first = found.setdefault(where, firing)
                self._expect(first == firing, f"{first} was later asked for as {firing}")
        return found.values()

    def _mapped_again(self) -> Iterable[Mapped]:
        found: dict[Coordinates, Mapped] = {}
        for record in self._records("contributions"):
            message = json.loads(record.value)
            if message["kind"] != "contributions" or not message["is_remapped"]:
                continue
            log = message["source"].partition("#")[0]
            for each in entries(message):
                about = Mapped(
                    *(log, each.coordinates[1], each.job, each.revision, each.key, each.place[0]),
                    each.event.identity,
                )
                first = found.setdefault(each.coordinates, about)
                self._expect(first == about, f"rollup made {first} of {each.coordinates} and later {about}")
        return found.values()

    def _notes(self) -> Iterator[Note]:
        for entry in self._audit.values():
            kind, position = entry["kind"], entry.get("position") or ""
            details = entry.get("details") or {}
            events = frozenset((each["source"], each["id"]) for each in details.get("events", ()))
            if kind in BY_PERSON:
                yield Note(kind, entry["job"], details["by"], None, events)
            elif kind in BY_ROUND:
                yield Note(kind, entry["job"], None, position, events)
            elif kind in BY_RECORD and position.startswith("contributions/"):
                yield Note(kind, entry["job"], entry["event_id"], position)

    def _check_every_event(self) -> None:
        """However it went: what counts for a job has started a run of it, waits, or is named in the audit log."""
        told: set[tuple[str, str]] = set()
        for batch in self._batches():
            told |= {
                (request["job"], each["id"]) for request in batch["requests"] for each in request["events"]
            }
        told |= {(name[0], each[1]) for name, events in self._open_rounds.items() for each in events}
        for entry in self._audit.values():
            details = entry.get("details") or {}
            ids = [entry.get("event_id"), details.get("replaced_event_id")]
            ids += [each["id"] for each in details.get("events", ())]
            told |= {(entry["job"], each) for each in ids if each is not None and entry.get("job")}
        for event, job, _, _, _ in self._wanted():
            event_id = event["identity"][1]
            self._expect((job, event_id) in told, f"event {event_id} disappeared on its way to job {job}")

    def _check_poison(self) -> None:
        for topic, service in READERS.items():
            wanted = {
                f"{topic}/{each.partition}@{each.offset}"
                for each in self._kafka.records(topic)
                if each.value == POISON
            }
            found = {
                entry["position"]
                for entry in self._audit.values()
                if entry["kind"] == "unreadable-record"
                and entry["service"] == service
                and entry["position"].startswith(f"{topic}/")
            }
            self._compare(f"poison of {topic}", wanted, found)

    # Dispatcher

    def _check_dispatcher(self, firings: list[Firing]) -> None:
        asked = {self._run_ids[where]: each for each in firings if (where := each[-3:]) in self._run_ids}
        commands: Counter[str] = Counter()
        for topic in sorted({tp.topic for tp in self._kafka.logs if tp.topic.startswith("run-commands.")}):
            for command in self._messages(topic):
                run_id = command["run_id"]
                commands[run_id] += 1
                events = frozenset(
                    (each["source"], each["id"]) for each in command["triggering_asset_events"]
                )
                about = (command["job"], command.get("partition_key") or "", command["generation"], events)
                firing = asked.get(run_id)
                said = firing and (firing.job, firing.key, firing.generation, firing.events)
                self._expect(about == said, f"the command of run {run_id} says {about}, its round {said}")
        # Events that come again after the horizon are new ones, though their run has the same id (D5). Where that is
        # still remembered, it is said that no second command is sent (T7).
        firings_of = Counter(self._run_ids.values())
        for run_id, times in commands.items():
            self._expect(
                times <= firings_of[run_id],
                f"run {run_id} was commanded {times} times for {firings_of[run_id]} rounds",
            )
        is_failed = {run_id: each.is_failed for run_id, each in asked.items()}
        wanted = {run_id for run_id in asked if not is_failed[run_id]}
        self._compare("commands", wanted, commands.keys())
        states: dict[str, dict[str, Any] | None] = {}
        begun: set[tuple[str, str, int]] = set()
        for record in self._kafka.records("runs"):
            run_id = record.key.decode()
            if run_id.startswith("job:"):
                continue
            state = states[run_id] = None if record.value is None else json.loads(record.value)
            if state is not None:
                begun.add((run_id, state["source"], state["offset"]))
        again = sum(entry.kind == "run-id-mismatch" for entry in self._audited.elements())
        self._expect(
            len(begun) + again == len(firings),
            f"{len(begun)} runs and {again} repeated ones for {len(firings)} rounds",
        )
        failed = sum(is_failed.get(run_id, False) for run_id, _, _ in begun)
        self._expect(
            commands.total() == len(begun) - failed,
            f"{commands.total()} commands for {len(begun)} runs of which {failed} failed at once",
        )
        fired = [
            each for each in self._messages("audit-log") if each["kind"] == "fired"
        ]  # in the transaction: once
        self._compare(
            "fired in the audit log",
            (run_id for run_id, _, _ in begun if not is_failed.get(run_id, False)),
            (run["run_id"] for entry in fired for run in entry["details"]["runs"]),
        )
        for run_id in asked:
            self._expect(run_id in states, f"`runs` knows nothing of run {run_id}")
            if state := states.get(run_id):
                wanted_state = "failed" if is_failed[run_id] else "succeeded"
                self._expect(
                    state["state"] == wanted_state,
                    f"run {run_id} is {state['state']}, not {wanted_state}",
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
