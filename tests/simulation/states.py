"""Redis at the end of a schedule, held against fresh folds of the logs that it was made from."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from tests.simulation.folding import Identity, Name
from tests.simulation.kafka import Kafka
from tests.simulation.oracle import POISON
from tests.simulation.redis import Client, Server
from tests.simulation.scheduling import Calls, Process
from tidegate.contracts.contributions import read_contributions_record
from tidegate.contracts.placement import shards_of_partition
from tidegate.contracts.redis_keys import shard_prefix
from tidegate_rollup.inputs import Input, by_shard, inputs_of
from tidegate_rollup.store import RoundStore

FRESH: Final = "fresh"
Dump = dict[str, Any]


class States:
    """Compares what the services left in Redis."""

    def __init__(
        self,
        kafka: Kafka,
        calls: Calls,
        server: Server,
        client: Client,
        namespace: str,
        horizon_ms: int,
        shards: int,
    ) -> None:
        self._kafka, self._calls, self._server, self._client = kafka, calls, server, client
        self._namespace, self._horizon_ms, self._shards = namespace, horizon_ms, shards

    def open_rounds(self) -> dict[Name, frozenset[Identity]]:
        """The events that wait in every round."""
        found: dict[Name, frozenset[Identity]] = {}
        for shard in range(self._shards):
            for name, fields in self._server.dump(shard_prefix(self._namespace, shard) + "round:").items():
                job, incarnation, key = name.split("/", 2)
                events = [
                    json.loads(f"[{text}]")
                    for field, text in fields.items()
                    if field.startswith(("m:", "x:"))
                ]
                found[job, incarnation, key] = frozenset((each[3], each[2]) for each in events)
        return found

    def judge(self) -> list[str]:
        """Every difference."""
        fresh = Process(self._calls, "fresh", 0, self._fold_all)
        self._calls.loop.settle()
        while waiting := self._calls.open():
            mine = [call for call in waiting if call.process is fresh]
            if not mine:
                break
            self._calls.answer(mine[0])
        fresh.task.result()
        problems: list[str] = []
        for partition in range(self._kafka.partitions):
            for shard in self._fed_by(partition):
                problems += self._compare_shard(partition, shard)
            problems += self._compare_runs(partition)
        return problems

    def _fed_by(self, partition: int) -> Sequence[int]:
        return shards_of_partition(partition, self._kafka.partitions, self._shards)

    async def _fold_all(self) -> None:
        store = RoundStore(self._client, FRESH, self._horizon_ms)
        for partition in range(self._kafka.partitions):
            log, ours = self._kafka.log("contributions", partition), self._fed_by(partition)
            entries: list[Input] = []
            for record in log.records(is_whole=True):
                if record.value != POISON:
                    read = read_contributions_record(record.value)
                    entries += inputs_of(record.offset, record.timestamp, read, ours, self._shards)
            if log.end:
                found = by_shard(entries)
                at = log.records(is_whole=True)[-1].timestamp
                batches = [(shard, None, found.get(shard, [])) for shard in ours]
                await store.apply(partition, log.end, log.end, at, batches)

    def _compare_shard(self, partition: int, shard: int) -> list[str]:
        log = self._kafka.log("contributions", partition)
        if not log.end:
            return []
        since = log.records(is_whole=True)[-1].timestamp - self._horizon_ms
        there = _lasting(self._server.dump(shard_prefix(self._namespace, shard)), since)
        self._leave_out_acknowledged(there, partition)
        fresh = _lasting(self._server.dump(shard_prefix(FRESH, shard)), since)
        return [
            f"shard {shard}: {name} is {there.get(name)}, a fresh fold gives {fresh.get(name)}"
            for name in sorted(there.keys() | fresh.keys())
            if there.get(name) != fresh.get(name)
        ]

    def _leave_out_acknowledged(self, dump: Dump, partition: int) -> None:
        """A rollback may bring back what was sent and acknowledged: the next start sends it again, as a repeat (R3)."""
        committed = self._kafka.group(f"{self._namespace}-rollup").committed[
            TopicPartition("contributions", partition)
        ]
        for name in [name for name in dump if name.startswith("outbox:")]:
            outbox = dict(dump.pop(name))
            if left := {
                field: what for field, what in outbox.items() if int(field.split(".")[0]) >= committed.offset
            }:
                dump[name] = left

    def _compare_runs(self, partition: int) -> list[str]:
        states: dict[str, str] = {}
        for record in self._kafka.log("runs", partition).records(is_whole=True):
            name = record.key.decode()
            states.pop(name, None)
            if record.value is not None:
                states[name] = record.value.decode()
        found = self._server.dump(f"{self._namespace}:{{d{partition}}}:")
        found.pop("log", None)
        found["runs"] = {name: text.partition("\n")[2] for name, text in found.get("runs", {}).items()}
        wanted = _runs_of(states)
        return [
            f"runs of partition {partition}: {name} is {found.get(name)}, `runs` gives {wanted.get(name)}"
            for name in sorted(wanted.keys() | found.keys())
            if (found.get(name) or {}) != (wanted.get(name) or {})
        ]


def _runs_of(states: Mapping[str, str]) -> Dump:
    """What Redis must hold besides the place in the log, counted anew from the full states."""
    wanted: Dump = defaultdict(dict)
    for name, text in states.items():
        state = json.loads(text)
        job = state["job"]
        if name.startswith("job:"):
            wanted["paused"] |= {job: text} if state["is_paused"] else {}
            continue
        wanted["runs"][name] = text
        if state["state"] == "queued":
            wanted["queued"][job] = str(int(wanted["queued"].get(job, 0)) + 1)
            wanted[f"queue:{job}"][f"{state.get('partition_key', '')}\t{name}"] = str(state["asked_at"])
        else:
            wanted["sent"][name] = str(state["sent_at"])
        if state["state"] in ("sent", "running"):
            wanted["active"][job] = str(int(wanted["active"].get(job, 0)) + 1)
    return wanted


def _lasting(dump: Dump, since: int) -> Dump:
    """What does not depend on how the log was cut into batches: expired marks go a share at a time."""
    names = ("expiry", "seen", "marks", "kept")
    expiry, seen, marks, kept_rounds = (dict(dump.get(name, {})) for name in names)
    gone = {name for name, at in expiry.items() if float(at) < since}
    kept = {
        "expiry": {name: at for name, at in expiry.items() if name not in gone},
        "marks": {name: _in_order(mark) for name, mark in marks.items() if name not in gone},
        "kept": {name: _as_fields(kept) for name, kept in kept_rounds.items() if name not in gone},
        "seen": {name: at for name, at in seen.items() if float(at) >= since},
        "log": {name: at for name, at in dict(dump.get("log", {})).items() if not name.startswith("at:")},
    }
    others = {name: value for name, value in dump.items() if name not in kept}
    return {name: value for name, value in {**others, **kept}.items() if value}


def _in_order(mark: str) -> str:
    """A mark with its members in order; they come as the fields of a hash do."""
    head, _, members = mark.rpartition(" ")
    return f"{head} {sorted(members.split(','))}"


def _as_fields(kept: str) -> tuple[str, Dump]:
    """What a run again takes from a round that was kept; the rest is there only if the round was in Redis before."""
    head, *lines = kept.split("\n")
    fields = dict(zip(lines[::2], lines[1::2], strict=True))
    return head, {name: text for name, text in fields.items() if name[:2] not in ("jo", "op", "r:")}
