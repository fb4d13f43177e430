"""The services and the relay with one workload, in turn on the same servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.common.deployment import Deployment, deployment
from bench.common.measuring import Bench, FullSpeed
from bench.common.receiving import Receiver
from bench.common.results import middle, note
from bench.common.servers import Servers
from bench.common.workloads import Sizes, Workload
from bench.relay import relay
from tidegate.contracts.topics import ACCEPTED, CONTRIBUTIONS, RUN_REQUESTS


@dataclass(slots=True)
class Duel:
    """What both did at full speed, run by run."""

    workload: Workload
    sizes: Sizes
    """Of the services' messages, as their topics have them."""
    pipeline: list[FullSpeed] = field(default_factory=list)
    relay: list[FullSpeed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Events a second of the services by those of the relay just before; the median."""
        pairs = zip(self.pipeline, self.relay, strict=True)
        return middle([ours.events_per_s / theirs.events_per_s for ours, theirs in pairs])

    @property
    def events_per_s(self) -> float:
        return middle([each.events_per_s for each in self.pipeline])


@contextmanager
def services(servers: Servers, workload: Workload) -> Iterator[tuple[Deployment, Bench]]:
    """The services as long as the block is, not yet warmed up."""
    with deployment(servers, workload.jobs) as deployed, Receiver(servers.kafka, workload.topics) as receiver:
        yield deployed, Bench(servers, deployed, workload, receiver)


def duel(servers: Servers, workload: Workload, ours: Bench, events: int, warm_up: int, repeats: int) -> Duel:
    """Relay and services in turn, each idle while the other runs; both are warmed up first.

    The relay's messages have the sizes that those of the services turned out to have. `events` and `warm_up` are for a
    workload of weight 1.
    """
    events, warm_up = (max(1, round(each * workload.weight)) for each in (events, warm_up))
    ours.warm_up(warm_up)
    found = Duel(workload, measured_sizes(servers, workload, ours))
    note(f"{workload.title}: messages of {found.sizes}")
    with relay(servers, workload, found.sizes) as theirs:
        theirs.warm_up(warm_up)
        for number in range(repeats):
            found.relay.append(theirs.at_full_speed(events))
            found.pipeline.append(ours.at_full_speed(events))
            speeds = (
                f"relay {found.relay[-1].events_per_s:.0f}, services {found.pipeline[-1].events_per_s:.0f}"
            )
            note(f"{workload.title} {number + 1}/{repeats}: {speeds} events/s")
        found.problems += [f"{workload.name}, relay: {each}" for each in theirs.problems]
    return found


def measured_sizes(servers: Servers, workload: Workload, ours: Bench) -> Sizes:
    """Bytes on disk for one message, on the topics that the services have written; estimates where nothing is there.

    The event's own size is that of its value, since the relay's records have a key and a frame too.
    """
    events, commands = ours.events, ours.commands
    if not commands:
        return workload.sizes
    return Sizes(
        event=workload.sizes.event,
        accepted=max(1, servers.bytes_of(ACCEPTED) // events),
        contribution=max(1, servers.bytes_of(CONTRIBUTIONS) // (events * workload.spread)),
        request=max(1, servers.bytes_of(RUN_REQUESTS) // commands),
        command=max(1, sum(map(servers.bytes_of, workload.topics)) // commands),
    )
