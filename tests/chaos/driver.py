"""One chaos run: servers, services, a plan, its faults, and the verdict."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.broker.conftest import delete_topics
from tests.chaos.faults import Faults
from tests.chaos.fleet import EVERYBODY, Fleet
from tests.chaos.jobs import FACTS, commands_topic, definitions
from tests.chaos.oracle import Logs, Raw, Verdict, check
from tests.chaos.plan import Plan
from tests.chaos.plan_feed import Feed
from tests.chaos.redis_pair import RedisPair
from tests.chaos.watch import StallWatch
from tests.servers.backends import Backend
from tests.servers.kafka import Kafka
from tidegate.contracts.definitions import Installation
from tidegate.definitions import Definitions, Job
from tidegate.runtime.applying import apply_definitions
from tidegate.runtime.installing import install
from tidegate.runtime.topic_admin import admin_client

SHARDS: Final = 16
SESSION_TIMEOUT_MS: Final = 3_000
_MOST_PER_S, _LEAST_PER_S = 2_000.0, 30.0
_SETTLE_S: Final = 240.0
_SHOWN: Final = 20


@dataclass(slots=True)
class Report:
    """What a run gave."""

    seed: int
    events: int
    kills: Counter[str]
    idle_kills: int
    points: Counter[str]
    faults: Counter[str]
    rollbacks: int
    verdict: Verdict
    longest_stall_s: float
    stalled: str
    took_s: float
    """From the first event until nothing was left to do."""

    @property
    def is_right(self) -> bool:
        return not (self.verdict.lost or self.verdict.doubled or self.verdict.unexplained)

    def lines(self) -> list[str]:
        """For people; the last one is for programs."""
        verdict = self.verdict

        def counts(some: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in sorted(some.items())) or "none"

        found = [
            f"{self.events} events and {verdict.commands} run commands of {verdict.rounds} keys in {self.took_s:.0f} s",
            f"kills with work at hand: {counts(self.kills)}; without: {self.idle_kills}",
            f"deaths at crash points: {counts(self.points)}",
            f"faults: {counts(self.faults)}; failovers that lost writes of the rollup: {self.rollbacks}",
            f"audit entries: {counts(verdict.audited)}",
            f"longest stall beyond faults: {self.longest_stall_s:.1f} s ({self.stalled or 'nobody'})",
        ]
        found += [f"PROBLEM {each}" for each in verdict.problems[:_SHOWN]]
        if len(verdict.problems) > _SHOWN:
            found.append(f"... and {len(verdict.problems) - _SHOWN} more problems")
        found.append(self.line())
        return found

    def line(self) -> str:
        """What programs read."""
        verdict = self.verdict
        return (
            f"seed={self.seed} events={self.events} kills={self.kills.total()} commands={verdict.commands}"
            f" lost={verdict.lost} doubled={verdict.doubled} unexplained={verdict.unexplained}"
            f" longest_stall_s={self.longest_stall_s:.1f}"
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A Kafka, and a Redis with its replica, for one run after the other."""

    kafka: Kafka
    redis: RedisPair


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """The servers, with their data and logs in `folder`."""
    kafka = Kafka(folder / "kafka")
    kafka.start_deadline_s = 180.0  # a dozen processes want to start beside it
    with RedisPair(folder) as redis, kafka:
        yield Stage(kafka, redis)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs of its own for a plan of its own, with what tells whether the right thing came out."""

    jobs: tuple[Job, ...]
    check: Callable[[Logs], Verdict]


def run(
    plan: Plan,
    servers: Stage,
    folder: Path,
    *,
    jobs: Sequence[str] = tuple(FACTS),
    replicas: int = 2,
    sabotage: str | None = None,
    victims: Sequence[str] = EVERYBODY,
    most_per_s: float = _MOST_PER_S,
    scenario: Scenario | None = None,
    log: Callable[[str], None] = print,
) -> Report:
    """Run a plan from empty topics to the verdict; the logs of processes go to `folder`.

    The jobs are those of that name in tests/chaos/jobs.py, or those of `scenario`.
    """
    if scenario is None:
        scenario = Scenario(definitions(jobs), lambda logs: check(logs, jobs))
    jobs = [job.id for job in scenario.jobs]
    namespace = f"c-{uuid.uuid4().hex[:8]}"
    kafka, redis = servers.kafka, servers.redis
    with _state_told(kafka), ExitStack() as stack:
        started = time.monotonic()
        redis.clear(namespace)
        asyncio.run(prepare(kafka.bootstrap, plan.partitions, scenario.jobs))
        backend = Backend("chaos", kafka.bootstrap, redis.url)
        fleet = Fleet(backend, namespace, jobs, folder / "services", replicas, SESSION_TIMEOUT_MS, sabotage)
        stack.callback(fleet.stop)
        fleet.start()
        watch = StallWatch(kafka.bootstrap, namespace, fleet.reads)
        stack.callback(watch.stop)
        feed = Feed(kafka.bootstrap, plan.records, _LEAST_PER_S * 4, lambda: watch.behind)
        faults = Faults(fleet, kafka, redis, feed, watch, SESSION_TIMEOUT_MS, victims, jobs, log)
        feed.start()
        watch.start()
        began = time.monotonic()
        for number, fault in enumerate(plan.faults, start=1):
            feed.allowed = len(plan.records) * number // (len(plan.faults) + 1)
            faults.strike(fault)
            # As fast as leaves something for the faults that are still to come.
            per_fault_s = (time.monotonic() - began) / number
            still = 1.2 * per_fault_s * (len(plan.faults) - number) + 1
            feed.rate = min(most_per_s, max(_LEAST_PER_S, feed.left / still))
        struck, left_over = time.monotonic(), feed.left
        faults.set_clocks_right()
        feed.hurry(most_per_s)
        ended = [
            f"{each.label} ended by itself{each.log_tail(4)}" for each in fleet.members if not each.is_running
        ]
        fleet.start()
        fed = time.monotonic()
        left = fleet.settle(_SETTLE_S, redis.deadlines)
        settled = time.monotonic()
        watch.stop()
        logs = _logs(fleet, jobs, faults, redis)
    # The processes are gone, so that judging has the processor for itself.
    verdict = scenario.check(logs)
    log(
        f"{began - started:.0f} s to start, {struck - began:.0f} s of faults, {fed - struck:.0f} s for the last"
        f" {left_over} records, {settled - fed:.0f} s to settle, {time.monotonic() - settled:.0f} s to judge"
    )
    for problem in ended:
        verdict.unexpected(problem)
    if left:
        verdict.unexpected(f"records still wait after {_SETTLE_S:g} s: {left}")
    return Report(
        seed=plan.seed,
        events=len(plan.records),
        kills=faults.kills,
        idle_kills=faults.idle_kills,
        points=faults.points,
        faults=faults.struck,
        rollbacks=faults.rollbacks,
        verdict=verdict,
        longest_stall_s=watch.longest_s,
        stalled=watch.of,
        took_s=settled - began,
    )


@contextmanager
def _state_told(kafka: Kafka) -> Iterator[None]:
    """What goes wrong within ends with how the broker does."""
    try:
        yield
    except Exception as error:
        error.add_note(kafka.state)
        raise


async def prepare(bootstrap: str, partitions: int, jobs: Sequence[Job]) -> None:
    """Fresh topics, and these definitions."""
    async with admin_client(bootstrap) as admin:
        old = [name for name in await admin.list_topics() if not name.startswith("__")]
        await delete_topics(admin, old)
    await install(bootstrap, Installation(partitions=partitions, shards=SHARDS), 1)
    await apply_definitions(bootstrap, Definitions(tuple(jobs)), ())


def _logs(fleet: Fleet, jobs: Sequence[str], faults: Faults, redis: RedisPair) -> Logs:
    def read(*topics: str) -> list[Raw]:
        return [
            Raw(
                each.topic,
                each.partition,
                each.offset,
                None if each.key is None else each.key.encode(),
                each.value,
            )
            for each in fleet.outside.read(*topics)
        ]

    return Logs(
        events=read("asset-events"),
        commands=read(*map(commands_topic, jobs)),
        audit=read("audit-log"),
        rejected=read("asset-events.rejected"),
        poison=faults.poison,
        actions=faults.actions,
        open=redis.open_rounds(),
        unchanged=faults.unchanged,
    )
