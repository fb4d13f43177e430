"""How fast something turns events into commands: whole backlogs at full speed, and latency at fixed rates."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import ceil
from time import monotonic, sleep
from typing import Final, NamedTuple, Protocol

from bench.common.counting import command_of, differences
from bench.common.feeding import Feeder, Record
from bench.common.latency import matched, percentile
from bench.common.processes import Usage, cpu_between, held, usage
from bench.common.receiving import Arrival, Receiver
from bench.common.servers import Servers
from bench.common.workloads import Command, Event, Step, Workload, events_of

SILENCE_S: Final = 60.0
"""When no command came for so long, none is waited for any more."""
_LOOK_EVERY_S: Final = 0.05
HELD_FOR_MS: Final = 300_000
"""Session timeout of consumers that are frozen while their input is filled."""


class Subject(Protocol):
    """What is measured: processes that read one topic, and bring commands about."""

    @property
    def topic(self) -> str:
        """Where events go."""

    @property
    def pids(self) -> Mapping[str, int]: ...

    @property
    def front(self) -> int:
        """The process that reads events: while it is frozen, nothing happens."""

    def records(self, events: Iterator[Event]) -> Iterator[Record]: ...

    def due(self, command: Command) -> Command:
        """How the subject names a command that is due."""

    def settle(self) -> None:
        """Return when nothing is left to do."""


@dataclass(frozen=True, slots=True)
class FullSpeed:
    """A backlog, from the first process being let go to the receipt of the last command."""

    events: int
    contributions: int
    commands: int
    seconds: float
    cpu_s: Mapping[str, float]
    """By process, the broker and Redis among them."""

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds

    @property
    def contributions_per_s(self) -> float:
        return self.contributions / self.seconds

    @property
    def commands_per_s(self) -> float:
        return self.commands / self.seconds

    @property
    def cpu_per_1000(self) -> dict[str, float]:
        """Seconds for 1,000 events, by process."""
        return _per_1000(self.cpu_s, self.events)


class Timed(NamedTuple):
    """A command and its instants, of time.monotonic."""

    run_id: str
    due: float
    """When its last event was due to be sent."""
    came: float

    @property
    def latency_ms(self) -> float:
        return 1000 * (self.came - self.due)


@dataclass(frozen=True, slots=True)
class AtRate:
    """Events at the instants of a schedule."""

    per_s: float
    events: int
    timed: list[Timed]
    """The commands, but for those of the warm-up."""
    late_ms: list[float]
    """How much after its instant each event was sent: part of the latency."""
    cpu_s: Mapping[str, float]

    def percentile_ms(self, percent: float) -> float:
        """Of the latency of commands."""
        return percentile([each.latency_ms for each in self.timed], percent)

    def late_percentile_ms(self, percent: float) -> float:
        return percentile(self.late_ms, percent)

    @property
    def cpu_per_1000(self) -> dict[str, float]:
        return _per_1000(self.cpu_s, self.events)


class Bench:
    """Measures one subject with one workload; every step is used once, and every command counted.

    `problems` says where other commands came than were due, which makes all figures worthless.
    """

    def __init__(self, servers: Servers, subject: Subject, workload: Workload, receiver: Receiver) -> None:
        self.workload, self.problems = workload, list[str]()
        self._servers, self._subject, self._receiver = servers, subject, receiver
        self._next = 0

    @property
    def events(self) -> int:
        """How many events were published so far."""
        return self._next * self.workload.events_per_step

    @property
    def commands(self) -> int:
        """How many commands were due for them."""
        return self._next * self.workload.commands_per_step

    def warm_up(self, events: int) -> None:
        """At full speed, so that nothing is met for the first time afterwards."""
        if events > 0:
            self.at_full_speed(events)

    def at_full_speed(self, events: int) -> FullSpeed:
        """About so many events, in whole steps: they wait in Kafka before anything is let go."""
        steps = self._take(self.workload.steps(events))
        due = self._due(steps)
        with Feeder(self._servers.kafka, self._subject.topic, linger_ms=5) as feeder:
            with held(self._subject.front):
                feeder.fill(self._subject.records(events_of(steps)))
                self._receiver.begin(len(due), SILENCE_S)
                before, began = self._usage(), monotonic()
            came = self._receiver.collected()
            after = self._usage()
        self._check(due, came)
        events = len(steps) * self.workload.events_per_step
        return FullSpeed(
            events=events,
            contributions=events * self.workload.spread,
            commands=len(came),
            seconds=(came[-1].at if came else monotonic()) - began,
            cpu_s=cpu_between(before, after),
        )

    def at_rate(self, per_s: float, seconds: float, warm_s: float) -> AtRate:
        """So many events a second, after some seconds that do not count. Events are sent one by one, not in batches."""
        size = self.workload.events_per_step
        warm = ceil(per_s * warm_s / size)
        steps = self._take(warm + max(1, ceil(per_s * seconds / size)))
        due = self._due(steps)
        before = self._usage()
        self._receiver.begin(len(due), SILENCE_S)
        with Feeder(self._servers.kafka, self._subject.topic, linger_ms=5) as feeder:
            schedule = feeder.at_rate(self._subject.records(events_of(steps)), per_s)
        came = self._receiver.collected()
        after = self._usage()
        self._check(due, came)
        finished = schedule.due[size - 1 :: size]
        instants = chain.from_iterable([at] * self.workload.commands_per_step for at in finished)
        found = matched(zip(due, instants, strict=True), came, command_of)
        counting_from = schedule.due[warm * size]
        return AtRate(
            per_s=per_s,
            events=len(schedule.due),
            timed=[Timed(each.run_id, since, each.at) for since, each in found if since >= counting_from],
            late_ms=[1000 * each for each in schedule.late_s],
            cpu_s=cpu_between(before, after),
        )

    def peak_mib(self) -> dict[str, float]:
        """The most memory that each process has had since it started."""
        return {name: each.peak_mib for name, each in self._usage().items()}

    def _take(self, count: int) -> list[Step]:
        first, self._next = self._next, self._next + count
        return [self.workload.step(number) for number in range(first, self._next)]

    def _due(self, steps: list[Step]) -> list[Command]:
        return [self._subject.due(command) for step in steps for command in step.due]

    def _usage(self) -> dict[str, Usage]:
        return usage({**self._subject.pids, **self._servers.pids})

    def _check(self, due: list[Command], came: list[Arrival]) -> None:
        self._subject.settle()
        self.problems += differences(due, [*came, *self._receiver.rest()])


def until_settled(behind: Callable[[], Mapping[str, int]], timeout_s: float) -> None:
    """Return when twice in a row nothing is left; RuntimeError with what is after `timeout_s`."""
    deadline = monotonic() + timeout_s
    idle = 0
    while idle < 2:
        left = behind()
        idle = 0 if left else idle + 1
        if monotonic() > deadline:
            raise RuntimeError(f"records still wait after {timeout_s:g} s: {dict(left)}")
        sleep(_LOOK_EVERY_S)  # what is asked takes of the processor that the work needs


def _per_1000(cpu_s: Mapping[str, float], events: int) -> dict[str, float]:
    return {name: 1000 * seconds / events for name, seconds in cpu_s.items()}
