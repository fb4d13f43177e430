"""What strikes: every kind of fault of tests/chaos/plan.py, done to a running fleet.

A victim is frozen by SIGSTOP wherever it happens to be, so that its work cannot shrink while it is counted, and dies
there if some waits. A crash point is passed with work at hand only; a death there counts if its group had not committed
everything, or a transaction of it was open.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeVar

from confluent_kafka import KafkaException
from redis import asyncio as aioredis

from tests.chaos.fleet import SERVICES, Fleet, Member, points_of
from tests.chaos.jobs import FACTS, definitions
from tests.chaos.oracle import Action
from tests.chaos.plan import Fault
from tests.chaos.plan_feed import Feed
from tests.chaos.redis_pair import RedisPair
from tests.chaos.watch import StallWatch
from tests.servers.kafka import Kafka
from tidegate.definitions import Definitions
from tidegate.runtime.acting_on_rounds import NoSuchRoundError, act
from tidegate.runtime.applying import apply_definitions

_PUSHED: Final = 40
"""Records that are published at once, so that there is work for a victim."""
_DEADLINE_S: Final = 90.0
_POINT_DEADLINE_S: Final = 40.0
_QUIET_DEADLINE_S: Final = 15.0
_SLOW_MS: Final = 5_000
_HARMLESS: Final = (".committed", ".stored", ".confirmed")
"""After these a zombie has nothing left to do wrong."""
_POISONED: Final = ("accepted-events", "contributions", "run-requests", "run-events")
_POISON: Final = (b"", b"\xff\x00 not text", b"{", b"[]", b'{"v": 1}', b'{"v": 99, "entries": 3}')

_ACTIONS: Final = 3
"""What people do at one time."""

T = TypeVar("T")


class Faults:
    """Strikes one fault after the other and keeps the score."""

    def __init__(
        self,
        fleet: Fleet,
        kafka: Kafka,
        redis: RedisPair,
        feed: Feed,
        watch: StallWatch,
        session_timeout_ms: int,
        victims: Sequence[str],
        jobs: Sequence[str],
        log: Callable[[str], None],
    ) -> None:
        self._fleet, self._kafka, self._redis, self._feed, self._watch = fleet, kafka, redis, feed, watch
        self._session_s = session_timeout_ms / 1000
        self._log = log
        self._victims, self._next_victims = victims, list[str]()
        self._acted_on = [job for job in jobs if job in FACTS and FACTS[job].actions]
        self._changing, self._variant = [job for job in jobs if job in FACTS and FACTS[job].changes], 0
        self.struck: Counter[str] = Counter()
        """By kind of fault."""
        self.kills: Counter[str] = Counter()
        """By service: with work at hand."""
        self.points: Counter[str] = Counter()
        """By crash point: deaths there."""
        self.idle_kills = 0
        """Deaths without work at hand, which prove nothing."""
        self.rollbacks = 0
        """Failovers that lost writes of the rollup."""
        self.poison: list[str] = []
        """Positions of poison on internal topics."""
        self.actions: list[Action] = []
        self.unchanged: dict[int, int] = {}
        """By partition of `asset-events`, what ingest had committed before the first change."""

    def strike(self, fault: Fault) -> None:
        """Do one fault, and return when its cause is gone."""
        ways: Mapping[str, Callable[[random.Random], str]] = {
            "kill": self._kill,
            "crash": self._crash,
            "freeze": self._freeze,
            "zombie": self._zombie,
            "rebalance": self._rebalance,
            "kafka": self._restart_kafka,
            "redis": self._restart_redis,
            "failover": self._failover,
            "flush": self._flush_scripts,
            "poison": self._write_poison,
            "slow": self._slow_redis,
            "clock": self._step_clock,
            "change": self._change,
            "action": self._act,
        }
        began = time.monotonic()
        self._log(
            f"{fault.kind}: {ways[fault.kind](random.Random(fault.dice))} ({time.monotonic() - began:.1f} s)"
        )
        self.struck[fault.kind] += 1

    # Processes

    def _kill(self, dice: random.Random) -> str:
        victim, waiting = self._caught(dice)
        self._die(victim, waiting)
        victim.start()
        return f"{victim.label} with {waiting} records waiting"

    def _crash(self, dice: random.Random) -> str:
        victim = self._ready_one(self._service(dice), dice)
        point = f"{dice.choice(points_of(victim.name))}:{dice.randint(1, 4)}"
        self._restart(victim, point)
        if not self._until(lambda: not victim.is_running, _POINT_DEADLINE_S):
            self._restart(victim, None)
            victim, waiting = self._caught(dice)
            self._die(victim, waiting)
            victim.start()
            return f"{point} was not reached; {victim.label} with {waiting} records waiting instead"
        waiting = self._patiently(lambda: self._fleet.waiting(victim))
        if victim.exit_code != -signal.SIGKILL:
            raise AssertionError(f"{victim.label} ended with {victim.exit_code}{victim.log_tail()}")
        self.points[point.partition(":")[0]] += 1
        # Between the end of its transaction and what follows it there may be nothing left to commit.
        self._count(victim, waiting or int(point.startswith("transaction.")))
        victim.start()
        return f"{victim.label} at {point} with {waiting} records waiting"

    def _freeze(self, dice: random.Random) -> str:
        victim, waiting = self._caught(dice)
        held_s = dice.uniform(0.2, self._session_s / 2)
        with self._watch.fault():
            time.sleep(held_s)
            os.kill(victim.pid, signal.SIGCONT)
        return f"{victim.label} for {held_s:.1f} s with {waiting} records waiting"

    def _zombie(self, dice: random.Random) -> str:
        """Frozen for longer than its session, at a crash point where it can be: others take over, then it goes on."""
        victim = self._ready_one(self._service(dice), dice)
        points = [each for each in points_of(victim.name) if not each.endswith(_HARMLESS)]
        point = f"{dice.choice(points)}:{dice.randint(1, 3)}"
        self._restart(victim, f"{point}:stop")
        if not self._until(victim.is_stopped, _POINT_DEADLINE_S):
            os.kill(victim.pid, signal.SIGSTOP)
            point = "somewhere"
        held_s = self._session_s + dice.uniform(2, 6)  # a transaction may take 10 s
        with self._watch.fault():
            time.sleep(held_s)
            os.kill(victim.pid, signal.SIGCONT)
        if point == "somewhere":
            self._restart(victim, None)  # or it would freeze at the point later, when nobody wakes it
        return f"{victim.label} at {point} for {held_s:.1f} s"

    def _rebalance(self, dice: random.Random) -> str:
        victim = self._ready_one(dice.choice(self._victims), dice)
        with self._watch.fault():
            victim.stop()
        time.sleep(dice.uniform(0, 2))
        victim.start()
        return f"{victim.label} left and came back"

    # Servers

    def _restart_kafka(self, dice: random.Random) -> str:
        is_kill = dice.random() < 0.5
        with self._watch.fault():
            self._kafka.kill() if is_kill else self._kafka.stop()
            self._kafka.start()
        self._patiently(self._fleet.behind)
        return "killed and started" if is_kill else "stopped and started"

    def _restart_redis(self, dice: random.Random) -> str:
        with self._watch.fault():
            self._redis.restart()
        return "killed and started from its append-only file"

    def _failover(self, dice: random.Random) -> str:
        """In the middle of work, or in a quiet moment, so that no session breaks off and finds out by that."""
        is_quiet = dice.random() < 0.5
        with self._watch.fault():
            self._feed.push(_PUSHED)
            done = self._redis.failover(dice.uniform(0.5, 2.5), self._quiet if is_quiet else None)
            self._feed.is_held = False
        self.rollbacks += done.fell > 0
        return f"{done.fell} shards fell, by up to {done.by} records" + (
            ", in a quiet moment" if is_quiet else ""
        )

    def _quiet(self) -> None:
        self._feed.is_held = True
        _until(lambda: not self._patiently(self._fleet.behind), _QUIET_DEADLINE_S)

    def _flush_scripts(self, dice: random.Random) -> str:
        with self._redis.master() as master:
            master.script_flush()
        return "scripts are gone"

    def _slow_redis(self, dice: random.Random) -> str:
        with self._watch.fault(), self._redis.master() as master:
            master.client_pause(_SLOW_MS, all=True)
            time.sleep(_SLOW_MS / 1000)
        return f"every call took up to {_SLOW_MS} ms"

    def _write_poison(self, dice: random.Random) -> str:
        topic = dice.choice(_POISONED)
        partitions = self._patiently(lambda: self._fleet.outside.ends([topic]))
        partition = dice.randrange(len(partitions))
        offset = self._feed.publish(topic, partition, dice.choice(_POISON))
        self.poison.append(f"{topic}/{partition}@{offset}")
        return self.poison[-1]

    def _step_clock(self, dice: random.Random) -> str:
        name, by_s = dice.choice(SERVICES), dice.choice((-1, 1)) * dice.uniform(60, 600)
        self._fleet.clocks[name].write_text(f"{by_s:.3f}", encoding="ascii")
        return f"{name} by {by_s:.0f} s"

    def set_clocks_right(self) -> None:
        for file in self._fleet.clocks.values():
            file.unlink(missing_ok=True)

    # People

    def _change(self, dice: random.Random) -> str:
        """`tidegate apply` of other variants of the jobs that change."""
        if not self._variant:
            group = f"{self._fleet.namespace}-ingest"
            known = self._patiently(lambda: self._fleet.outside.committed(group, ["asset-events"]))
            self.unchanged = {partition: offset for (_, partition), offset in known.items()}
        self._variant += 1
        changed = Definitions(definitions(self._changing, self._variant))
        asyncio.run(apply_definitions(self._kafka.bootstrap, changed))
        return f"variant {self._variant} of {', '.join(self._changing)}"

    def _act(self, dice: random.Random) -> str:
        """`tidegate fire`, `discard` and `withdraw`, on rounds that are open, and on an event that is not there."""
        done: list[str] = []
        for _ in range(_ACTIONS if self._acted_on else 0):
            job = dice.choice(self._acted_on)
            rounds = self._redis.open_rounds(job)
            if not rounds:
                continue
            (_, key), members = dice.choice(sorted(rounds.items()))
            kind = dice.choice(FACTS[job].actions)
            events = [event for _, _, (_, event) in sorted(members)]
            event = dice.choice([*events, "nobody"]) if kind == "withdraw" else None

            async def do(
                kind: Literal["fire", "discard", "withdraw"] = kind,
                job: str = job,
                key: str = key,
                event: str | None = event,
            ) -> str:
                namespace = self._fleet.namespace
                async with aioredis.from_url(self._redis.url, decode_responses=True) as client:
                    acted = await act(
                        *(self._kafka.bootstrap, client, namespace, kind, job, key),
                        by="chaos",
                        event_id=event,
                        wait_s=0,
                    )
                return acted.position

            try:
                self.actions.append(Action(kind, job, key, asyncio.run(do())))
            except NoSuchRoundError:
                continue  # it ended in between
            done.append(f"{kind} {job} {key}")
        return ", ".join(done) or "no round was open"

    # What they share

    def _service(self, dice: random.Random) -> str:
        """Every service once, then again, in an order of its own each time."""
        if not self._next_victims:
            self._next_victims = dice.sample(self._victims, len(self._victims))
        return self._next_victims.pop()

    def _ready_one(self, name: str, dice: random.Random) -> Member:
        members = self._fleet.of(name)
        if not _until(lambda: any(member.is_ready() for member in members), _DEADLINE_S):
            raise AssertionError(
                f"no replica of {name} is ready within {_DEADLINE_S:g} s: {[each.ready() for each in members]}"
                + "".join(each.log_tail() for each in members)
            )
        return dice.choice([member for member in members if member.is_ready()] or members)

    def _caught(self, dice: random.Random) -> tuple[Member, int]:
        """A replica, frozen while records wait for it."""
        name = self._service(dice)
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline:
            victim = self._ready_one(name, dice)
            self._feed.push(_PUSHED)
            os.kill(victim.pid, signal.SIGSTOP)
            held = time.monotonic() + self._session_s / 2
            while time.monotonic() < held:
                if waiting := self._patiently(lambda victim=victim: self._fleet.waiting(victim)):  # type: ignore[misc]
                    return victim, waiting
            os.kill(victim.pid, signal.SIGCONT)
        raise AssertionError(f"no chance to catch {name} with work waiting for {_DEADLINE_S:g} s")

    def _die(self, victim: Member, waiting: int) -> None:
        victim.kill()
        self._count(victim, waiting)

    def _count(self, victim: Member, waiting: int) -> None:
        if waiting:
            self.kills[victim.name] += 1
        else:
            self.idle_kills += 1

    def _restart(self, victim: Member, point: str | None) -> None:
        """Stop it cleanly, and start it again with a crash point."""
        victim.stop()
        victim.start_with(point)

    def _until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Whether the condition came to hold, with some work coming along meanwhile."""
        pushes = 4
        return any(
            self._feed.push(_PUSHED) or _until(condition, timeout / pushes)  # type: ignore[func-returns-value]
            for _ in range(pushes)
        )

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask Kafka, again where it is not quite there yet."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            try:
                return ask()
            except (KafkaException, AssertionError):
                if time.monotonic() > deadline:
                    raise
                self._fleet.outside.begin_anew()
                time.sleep(0.2)


def _until(condition: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
