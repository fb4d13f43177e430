"""One schedule: events, faults and steps in an order that a seed decides; then peace, and a verdict."""

import contextlib
import json
import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from aiokafka import ConsumerRecord, TopicPartition

import tidegate_dispatcher.main
import tidegate_ingest.main
import tidegate_mapper.main
import tidegate_rollup.main
import tidegate_rollup.store
from tests.simulation import kafka as kafka_module
from tests.simulation import redis as redis_module
from tests.simulation.jobs import ADDED, JOBS, KEYS, MONTHS, definition
from tests.simulation.kafka import Kafka
from tests.simulation.oracle import POISON, READERS, Oracle
from tests.simulation.redis import Client, Copy, Server
from tests.simulation.scheduling import START_S, Call, Calls, Loop, Process, current
from tests.simulation.states import States
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.contributions import OperatorAction
from tidegate.contracts.definitions import DefinitionRecord, Installation
from tidegate.contracts.events import EVENT_TYPE, AssetEvent, AssetUpdate
from tidegate.contracts.placement import contributions_partition, partition_of
from tidegate.contracts.redis_keys import open_key, round_key, shard_prefix
from tidegate.contracts.runs import JobControl, Run, RunCommand, RunEvent, RunState
from tidegate.contracts.topics import (
    ASSET_EVENTS,
    AUDIT,
    CONTRIBUTIONS,
    DEFINITIONS,
    RUN_COMMANDS_PREFIX,
    RUN_EVENTS,
    RUN_REQUESTS,
    RUNS,
)
from tidegate.core.audit import AuditKind
from tidegate.core.plain import plain
from tidegate.runtime.gaps import acceptance_key
from tidegate.runtime.settings import Settings
from tidegate.runtime.state import ServiceState

PARTITIONS: Final = 2
SHARDS: Final = 4
HORIZON_S: Final = 60
NAMESPACE: Final = "sim"
SETTINGS: Final = Settings(namespace=NAMESPACE, dedupe_horizon_s=HORIZON_S, dispatch_cap=3)
STEPS: Final = 260
DRAIN_STEPS: Final = 6_000
REPLICAS: Final = 3

Session = Callable[[Settings, ServiceState], Awaitable[None]]
SERVICES: Final[
    dict[str, Callable[[], Session]]
] = {  # looked up late, so that switches may put others in their place
    "ingest": lambda: tidegate_ingest.main.session,
    "mapper": lambda: tidegate_mapper.main.session,
    "rollup": lambda: tidegate_rollup.main.session,
    "dispatcher": lambda: tidegate_dispatcher.main.session,
}
TAGS: Final = (
    *(shard_prefix(NAMESPACE, shard) for shard in range(SHARDS)),
    *(f"{NAMESPACE}:{{d{number}}}:" for number in range(PARTITIONS)),
)
"""What falls back by itself in Redis: one hash tag each, as if each were on a node of its own."""

PROGRAMMING_ERRORS: Final = (AssertionError, AttributeError, LookupError, TypeError, ValueError)

FAULTS: Final = {
    "kill": 1.0,
    "stop": 1.0,
    "depose": 1.0,
    "freeze": 1.0,
    "fail": 1.0,
    "spawn": 1.0,
    "save": 2.0,
    "roll_back": 1.0,
    "lose": 1.0,
    "forget_scripts": 0.5,
    "lose_marks": 1.0,
    "cut_off": 1.0,
    "later": 2.0,
    "act": 3.0,
    "change": 2.0,
    "skew": 0.5,
    "poison": 0.3,
    "pause": 1.0,
}
"""What may happen, and how often beside the others."""


class Focus(NamedTuple):
    """The services that a schedule is hard on, the faults that it holds, and its jobs."""

    targets: Sequence[str]
    faults: Sequence[str]
    jobs: Sequence[str] = ()
    """As many as chance has it, where it names none."""


class World:
    """Everything outside the services, and what happens to them."""

    def __init__(
        self,
        seed: int,
        server: Server,
        trace: Callable[[str], None] | None = None,
        focus: Focus | None = None,
    ) -> None:
        self._focus = focus
        self.seed, self._server, self._trace = seed, server, trace
        self._rng = random.Random(seed)
        self.loop = Loop()
        self.calls = Calls(self.loop)
        self.kafka = Kafka(self.calls, self._rng, PARTITIONS)
        self.kafka.is_deaf = lambda process: process.deaf_until > self.step
        self.kafka.watchers += (self._note_gap, self._note_forgotten)
        self.client = Client(server, self.calls)
        self.installation = Installation(partitions=PARTITIONS, shards=SHARDS)
        self.step = 0
        self.failures: list[str] = []
        """Errors of sessions that no fault explains."""
        self.events: list[bytes] = []
        self.were_marks_lost = False
        self._forgotten_too_early: list[str] = []
        self._numbers, self._ids = count(1), count(1)
        self._processes: list[Process] = []
        self._states: dict[Process, ServiceState] = {}
        self._orphans: list[tuple[Process, Any]] = []
        self._copies: list[tuple[str, Copy]] = []
        self._gaps: set[tuple[str, TopicPartition, int]] = set()
        self._read_commands: dict[TopicPartition, int] = {}
        self._reports: list[RunEvent] = []
        self._report_partitions: dict[str, int] = {}
        self._is_added = False
        self._defined: dict[str, tuple[str, str] | None] = {}
        """By job its incarnation and variant, None where it was deleted."""
        self._rounds_seen: list[tuple[str, str]] = []
        """(name, where it opened) of rounds that people have looked at."""
        self._fast_s = 0.0
        self._is_paused = False

    # The schedule

    def run(self) -> None:
        """Chaos, then peace until nothing moves any more."""
        scripts = (tidegate_rollup.store._SCRIPT, tidegate_ingest.store.REMEMBER)
        self._server.run([("FLUSHDB",), *(("SCRIPT", "LOAD", script) for script in scripts)])
        self.note("begin", self.seed)
        body = self.installation.model_dump()
        self._publish(DefinitionRecord(kind="installation", id="tidegate", incarnation="i1", body=body))
        rng = self._rng
        jobs = list(self._focus.jobs) if self._focus and self._focus.jobs else rng.sample(list(JOBS), 4)
        for job in sorted(jobs):
            self._define(job, JOBS[job][0], "i1")
        self._events_left = rng.randint(6, 24)
        rates = {fault: often * rng.choice((0.0, 0.0, 0.5, 1.0, 3.0)) for fault, often in FAULTS.items()}
        self._targets = rng.choice((*((service,) for service in SERVICES), tuple(SERVICES)))
        if self._focus:
            rates = {fault: float(fault in self._focus.faults) for fault in FAULTS}
            self._targets = tuple(self._focus.targets)
        faults, weights = list(rates), list(rates.values())
        share = rng.choice((0.02, 0.05, 0.1)) if any(weights) else 0.0
        event_share = rng.choice((0.04, 0.08, 0.2))
        for service in SERVICES:
            for _ in range(rng.choice((1, 1, 2))):
                self._spawn(service)
        for self.step in range(STEPS):
            self._move_time(rng.choice((0.001, 0.01, 0.1)))
            drawn = rng.random()
            if drawn < share:
                getattr(self, "_" + rng.choices(faults, weights)[0])()
            elif drawn < share + event_share and self._events_left:
                self._events_left -= 1
                self._produce()
            elif drawn < share + event_share + 0.06:
                self._work()
            elif drawn < share + event_share + 0.10:
                self._revive()
            elif self.kafka.unfinished and drawn < share + event_share + 0.2:
                self._write_marker()
            else:
                self._call()
        self._make_peace()
        self._drain()
        self.note("end")

    def judge(self) -> list[str]:
        """Everything that went wrong, once `run` has returned."""
        if self.failures:
            return list(dict.fromkeys(self.failures))
        lasted_ms = int((self.loop.now - START_S) * 1000)
        states = States(
            self.kafka, self.calls, self._server, self.client, NAMESPACE, HORIZON_S * 1000, SHARDS
        )
        oracle = Oracle(
            self.kafka,
            shards=SHARDS,
            were_marks_lost=self.were_marks_lost,
            lasted_ms=lasted_ms,
            now_ms=int(self.loop.now * 1000),
            early_ms=int(self._fast_s * 1000),
            open_rounds=states.open_rounds(),
        )
        return oracle.judge() + self._forgotten_too_early or states.judge()

    def close(self) -> None:
        for process in self._processes:
            process.kill()

    def note(self, *what: object) -> None:
        if self._trace:
            self._trace(f"{self.step:>5} {self.loop.now - START_S:8.3f} " + " ".join(map(str, what)))

    def _call(self) -> None:
        """One step of some process."""
        calls = self.calls.open(self.step)
        if not calls:
            return
        for _ in range(4):
            call = self._rng.choice(calls)
            if call.is_ready is None or call.is_ready():
                self._answer(call)
                return
        if call.kind != "view":
            self._move_time(0.2)
            self.calls.answer_empty(call)

    def _answer(self, call: Call) -> None:
        if self._trace:
            self.note(call.process.name, call.kind, call.what or getattr(call.perform, "__qualname__", ""))
        self.calls.answer(call)

    def _make_peace(self) -> None:
        self.step = STEPS
        self.note("peace")
        for process in self._processes:
            process.frozen_until = process.deaf_until = 0
            process.clock_off = 0.0
        while self._orphans:
            self._expire()
        if self._is_paused:
            self._control("resume")

    def _spawn_missing(self) -> None:
        for service in SERVICES:
            if not self._alive(service):
                self._spawn(service)

    def _drain(self) -> None:
        quiet = 0
        for self.step in range(STEPS, STEPS + DRAIN_STEPS):
            while self.kafka.unfinished and self._write_marker():
                pass
            self.kafka.expire_transactions()
            if self.failures:
                return
            calls = list(self.calls.open())
            self._rng.shuffle(calls)
            if ready := next((call for call in calls if call.is_ready is None or call.is_ready()), None):
                self._answer(ready)
                continue
            before = self.kafka.progress
            self._spawn_missing()
            while self._work():
                pass
            for group, tp, beginning in sorted(self._gaps):
                self._server.run([("SET", acceptance_key(NAMESPACE, group, tp), beginning)])
            if self.kafka.progress == before:
                self._move_time(2.0)  # both a commit and a move of idle shards are soon due
                for call in calls:
                    if call.is_ready is not None and call.kind != "view" and not call.future.done():
                        self.calls.answer_empty(call)
            quiet = quiet + 1 if self.kafka.progress == self._seen_progress else 0
            self._seen_progress = self.kafka.progress
            if quiet == 2:
                self._stray_reports()
            if quiet == 6:
                return
        self.failures.append(f"still busy after {DRAIN_STEPS} steps of peace")

    _seen_progress = -1

    def _stray_reports(self) -> None:
        """Reports on a run that nobody knows: each lets a dispatcher look at its Redis once more."""
        if not self._has_strayed:
            self._has_strayed = True
            report = RunEvent(run_id="nobody", job="each", state=RunState.RUNNING)
            for partition in range(PARTITIONS):
                self.kafka.append(RUN_EVENTS, partition, None, report.to_bytes())

    _has_strayed = False

    def _move_time(self, seconds: float) -> None:
        self.loop.now += seconds
        self.client.drop_expired()
        self.loop.settle()

    # Processes

    def _alive(self, service: str | None = None) -> list[Process]:
        return [each for each in self._processes if each.is_alive and service in (None, each.service)]

    def _spawn(self, service: str | None = None) -> None:
        service = service or self._rng.choice(self._targets)
        if len(self._alive(service)) < REPLICAS:
            self._processes.append(
                Process(self.calls, service, next(self._numbers), lambda: self._life(service))
            )
            self.note("spawn", self._processes[-1].name)
            self.loop.settle()

    async def _life(self, service: str) -> None:
        """What serve() does: sessions, one after the other."""
        process = current.get()
        state = self._states[process] = ServiceState(60)
        while not state.stopping.is_set():
            try:
                await SERVICES[service]()(SETTINGS, state)
            except Exception as error:
                self.note(process.name, "session failed:", repr(error)[:200])
                if isinstance(error, PROGRAMMING_ERRORS):
                    if self._trace:
                        self.note("".join(traceback.format_exception(error)))
                    self.failures.append(f"{process.name}: {error!r}"[:300])
                await self.calls.make("wait", lambda: None)
        process.is_alive = False

    def _exposed(self) -> list[Process]:
        """The processes that this schedule is hard on."""
        return [process for process in self._alive() if process.service in self._targets]

    def _exposed_calls(self) -> list[Call]:
        """Their calls that are on the way, those that wait for records left out."""
        calls = self.calls.open(self.step)
        return [call for call in calls if call.is_ready is None and call.process.service in self._targets]

    def _kill(self) -> None:
        """A process dies between two steps, often with a call on the way that comes through."""
        exposed, calls = self._exposed(), self._exposed_calls()
        if not exposed:
            return
        process = self._rng.choice(exposed)
        if calls and self._rng.random() < 0.7:
            call = self._rng.choice(calls)
            process = call.process
            if self._rng.random() < 0.6:
                self.note("comes through", process.name, call.kind)
                with contextlib.suppress(Exception):  # there is nobody left to hear it
                    call.perform()
        self.note("kill", process.name)
        process.kill()
        self._orphans += ((process, member) for member in process.members)

    def _expire(self) -> None:
        """The session of a member that is gone times out."""
        process, member = self._orphans.pop(self._rng.randrange(len(self._orphans)))
        self.note("session times out", process.name)
        member.group.leave(member)

    def _revive(self) -> None:
        """What happens around processes by itself: supervisors start them, groups notice the dead, members hear."""
        if self._orphans and self._rng.random() < 0.5:
            self._expire()
            return
        missing = [service for service in SERVICES if not self._alive(service)]
        if missing:
            self._spawn(self._rng.choice(missing))
            return
        behind = [
            member
            for process in self._alive()
            for member in process.members
            if member.is_behind and max(process.deaf_until, process.frozen_until) <= self.step
        ]
        if behind:
            member = self._rng.choice(behind)
            self.note("hears", member.process.name)
            member.hear()
        self.kafka.expire_transactions()

    def _stop(self) -> None:
        if exposed := self._exposed():
            process = self._rng.choice(exposed)
            self.note("stop", process.name)
            self._states[process].stopping.set()

    def _depose(self) -> None:
        """A process loses its place in the group, goes on without knowing it, or comes back to itself later."""
        members = [(process, member) for process in self._exposed() for member in process.members]
        in_flight = {call.process for call in self._exposed_calls()}
        if in_flight and self._rng.random() < 0.7:
            members = [each for each in members if each[0] in in_flight]
        if members:
            process, member = self._rng.choice(members)
            process.deaf_until = self.step + self._rng.choice((5, 20, 60, 150))
            if self._rng.random() < 0.5:
                process.frozen_until = self.step + self._rng.choice((5, 20, 60, 120))
            self.note(
                "depose", process.name, "deaf until", process.deaf_until, "frozen until", process.frozen_until
            )
            member.group.leave(member)
            if len(self._alive(process.service)) == 1:
                self._spawn(process.service)

    def _freeze(self) -> None:
        if exposed := self._exposed():
            process = self._rng.choice(exposed)
            process.frozen_until = self.step + self._rng.choice((5, 20, 60))
            self.note("freeze", process.name, "until", process.frozen_until)

    def _fail(self) -> None:
        """A call fails, though it may have come through."""
        calls = [call for call in self._exposed_calls() if call.kind in ("kafka", "redis")]
        if calls:
            call = self._rng.choice(calls)
            errors = kafka_module.ERRORS if call.kind == "kafka" else redis_module.ERRORS
            is_performed = self._rng.random() < 0.6
            self.note("fail", call.process.name, call.kind, "came through" if is_performed else "lost")
            self.calls.answer(call, self._rng.choice(errors)(), is_performed=is_performed)

    # Redis

    def _save(self) -> None:
        tag = self._rng.choice(TAGS)
        self._copies.append((tag, self._server.copy(tag)))

    def _roll_back(self) -> None:
        if self._copies:
            tag, copy = self._rng.choice(self._copies)
            self.note("roll back", tag)
            self._server.put_back(tag, copy)

    def _lose(self) -> None:
        tag = self._rng.choice(TAGS)
        self.note("lose", tag)
        self._server.put_back(tag, [])

    def _forget_scripts(self) -> None:
        self._server.run([("SCRIPT", "FLUSH")])

    def _lose_marks(self) -> None:
        if self._rng.random() < 0.3:
            self.were_marks_lost = True
            self.note("lose marks")
            self._server.put_back(f"{NAMESPACE}:seen:", [])

    # Kafka

    def _write_marker(self) -> bool:
        ended = [each for each in self.kafka.unfinished if each.outcome]
        if ended:
            self.kafka.write_marker(self._rng.choice(ended))
        return bool(ended)

    def _cut_off(self) -> None:
        """Retention removes the oldest events, whether they were read or not."""
        log = self.kafka.log(ASSET_EVENTS, self._rng.randrange(PARTITIONS))
        has_begun = log.tp in self.kafka.group(f"{NAMESPACE}-ingest").committed  # else nothing was lost to it
        if has_begun and self._rng.random() < 0.3:
            log.beginning = self._rng.randint(log.beginning, log.end)
            self.note("cut off", log.tp, log.beginning)

    def _note_gap(self, record: ConsumerRecord) -> None:
        if record.topic == AUDIT and AuditKind.LOG_GAP.value.encode() in record.value:
            entry = AuditEntry.from_bytes(record.value)
            assert entry.position
            assert entry.details
            name, _, _ = entry.position.rpartition("@")
            topic, _, number = name.rpartition("/")
            self._gaps.add(
                (entry.details["group"], TopicPartition(topic, int(number)), entry.details["beginning"])
            )

    def _note_forgotten(self, record: ConsumerRecord) -> None:
        """A run may be forgotten when the horizon has passed and the rollup can never ask for it again (T7)."""
        if record.topic != RUNS or record.value is not None:
            return
        states = [
            each for each in self.kafka.records(RUNS) if each.key == record.key and each.value is not None
        ]
        run = Run.from_bytes(states[-1].value)
        topic, _, number = run.source.partition("#")[0].rpartition("/")
        committed = self.kafka.group(f"{NAMESPACE}-rollup").committed.get(TopicPartition(topic, int(number)))
        if (
            committed is None
            or committed.offset <= run.offset
            or run.sent_at >= (self.loop.now - HORIZON_S) * 1000
        ):
            self._forgotten_too_early.append(
                f"run {run.run_id} was forgotten while it could be asked for again"
            )
        if run.state in (RunState.QUEUED, RunState.RUNNING):
            self._forgotten_too_early.append(f"run {run.run_id} was forgotten while it was {run.state.value}")

    # Producers, definitions, workers

    def _later(self) -> None:
        self._move_time(self._rng.choice((1, 4, 11, 31, 61, 61)))

    def _define(self, job: str, variant: str, incarnation: str) -> None:
        self._defined[job] = (incarnation, variant)
        body = plain(definition(job, variant, next(self._ids)))
        self._publish(DefinitionRecord(kind="job", id=job, incarnation=incarnation, body=body))

    def _change(self) -> None:
        """A definition changes in a way that matters or not, is deleted, or is created again."""
        job = self._rng.choice(sorted(self._defined))
        there = self._defined[job]
        variants = JOBS.get(job, (ADDED,))
        if there is None:
            self._define(job, self._rng.choice(variants), f"i{next(self._ids)}")
        elif (drawn := self._rng.random()) < 0.15:
            self._defined[job] = None
            self.kafka.append(DEFINITIONS, 0, f"job:{job}".encode(), None)
        elif drawn < 0.3:
            self._define(job, there[1], f"i{next(self._ids)}")
        else:
            self._define(job, there[1] if drawn < 0.5 else self._rng.choice(variants), there[0])
        self.note("change", job, there, self._defined[job])

    def _act(self) -> None:
        """A person does something to a round that is open in Redis, or was when somebody looked."""
        rng = self._rng
        shard = rng.randrange(SHARDS)
        (names,) = self._server.run([("ZRANGE", open_key(NAMESPACE, shard), 0, -1)])
        if names:
            name = rng.choice(names)
            key = round_key(NAMESPACE, shard, name)
            (opened,) = self._server.run([("HGET", key, "opened")])
            self._rounds_seen.append((name, opened.rpartition(".")[0]))
        if not self._rounds_seen:
            return
        name, opened = self._rounds_seen[-1] if rng.random() < 0.8 else rng.choice(self._rounds_seen)
        job, incarnation, key = name.split("/", 2)
        number = next(self._ids)
        kind = rng.choice(("fire", "discard", "withdraw", "withdraw"))
        event_id = (
            rng.choice([json.loads(value)["id"] for value in self.events]) if kind == "withdraw" else None
        )
        action = OperatorAction.model_validate(
            {
                **{"kind": kind, "id": f"act{number}", "by": f"p{number}", "event_id": event_id},
                **{"job": job, "incarnation": incarnation, "key": key, "opened": opened},
            }
        )
        target = crc32(f"{job}\0{key}".encode()) % SHARDS
        for _ in range(rng.choice((1, 1, 1, 2))):
            self.kafka.append(
                CONTRIBUTIONS, contributions_partition(target, PARTITIONS), None, action.to_bytes()
            )
        self.note("act", kind, name, opened, event_id)

    def _skew(self) -> None:
        """The clock of a process jumps."""
        if exposed := self._exposed():
            process = self._rng.choice(exposed)
            process.clock_off = self._rng.choice((-30.0, -3.0, 2.0, 20.0))
            self._fast_s = max(self._fast_s, process.clock_off)
            self.note("skew", process.name, process.clock_off)

    def _poison(self) -> None:
        topic = self._rng.choice(sorted(READERS))
        self.note("poison", topic)
        self.kafka.append(topic, self._rng.randrange(PARTITIONS), None, POISON)

    def _pause(self) -> None:
        """A person pauses the job whose runs are limited, or resumes it."""
        self._control("resume" if self._is_paused else "pause")

    def _control(self, kind: Literal["pause", "resume"]) -> None:
        self._is_paused = kind == "pause"
        self.note(kind)
        control = JobControl(kind=kind, id=f"c{next(self._ids)}", by="ana", job="each")
        self.kafka.append(RUN_REQUESTS, partition_of("each", PARTITIONS), None, control.to_bytes())

    def _publish(self, record: DefinitionRecord) -> None:
        self.kafka.append(DEFINITIONS, 0, record.record_key.encode(), record.to_bytes())

    def _produce(self) -> None:
        rng = self._rng
        if not self._is_added and rng.random() < 0.08:
            self._is_added = True
            self._define(ADDED, ADDED, "i1")
        if self.events and rng.random() < 0.2:
            value = rng.choice(self.events)
        elif rng.random() < 0.04:
            value = b'{"specversion": "1.0"}'
        else:
            value = self._event()
            self.events.append(value)
        record = self.kafka.append(ASSET_EVENTS, rng.randrange(PARTITIONS), None, value)
        self.note("event", record.partition, record.offset, value.decode())

    def _event(self) -> bytes:
        rng = self._rng
        asset = rng.choice("aaabbbbbccdz")
        key: str | None = (
            rng.choice(MONTHS[:3] if rng.random() < 0.7 else MONTHS) if asset == "b" else rng.choice(KEYS)
        )
        if (asset == "d") != (rng.random() < 0.05):
            key = None
        elif rng.random() < 0.05:
            key = "neither"
        number = next(self._ids)
        event = AssetEvent(
            specversion="1.0",
            id=f"e{number}",
            source=f"/s{number % 2}",
            type=EVENT_TYPE,
            data=AssetUpdate(asset=asset, partition_key=key),
        )
        return event.to_bytes()

    def _work(self) -> bool:
        """Workers take commands and report on them, sometimes twice; whether there was anything to do."""
        if self._reports and self._rng.random() < 0.7:
            report = self._reports.pop(0)
            self._report(report)
            if self._rng.random() < 0.1:
                self._report(report)
            return True
        for tp, log in sorted(self.kafka.logs.items()):
            read = self._read_commands.get(tp, 0)
            if tp.topic.startswith(RUN_COMMANDS_PREFIX) and read < log.stable_end:
                self._read_commands[tp] = read + 1
                slot = log.slots[read]
                if slot.record is not None and (
                    slot.transaction is None or slot.transaction.outcome == "commit"
                ):
                    self._take(RunCommand.from_bytes(slot.record.value))
                return True
        return bool(self._reports)

    def _take(self, command: RunCommand) -> None:
        self._report_partitions[command.run_id] = command.run_events_partition
        for state in (RunState.RUNNING, RunState.SUCCEEDED):
            self._reports.append(RunEvent(run_id=command.run_id, job=command.job, state=state))

    def _report(self, report: RunEvent) -> None:
        partition = self._report_partitions[report.run_id]
        if self._rng.random() < 0.15:  # a client that hashes keys its own way
            partition = (partition + 1) % PARTITIONS
        self.kafka.append(RUN_EVENTS, partition, report.job.encode(), report.to_bytes())
