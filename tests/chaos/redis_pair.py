"""A Redis with a replica behind one address: restarts, and failovers that lose acknowledged writes."""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import redis

from tests.chaos.proxy import Proxy
from tests.servers.process import HOST, ServerError, free_ports
from tests.servers.redis import Redis

_DEADLINE_S: Final = 20.0

Offsets = dict[tuple[str, str], int]
"""The next offset of every shard, by (key, field)."""


class Failover(NamedTuple):
    """What a failover did to the shards' offsets."""

    fell: int
    """How many shards stand at a lower offset than before."""
    by: int
    """The largest fall, in records."""


class RedisPair:
    """`url` leads to whichever of the two is the master; both keep an append-only file."""

    def __init__(self, folder: Path) -> None:
        self.namespace = ""
        """Of the run that is going on."""
        self._master, self._replica = Redis(folder / "redis-a"), Redis(folder / "redis-b")
        self._proxy = Proxy()
        self._running = ExitStack()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._proxy.port}/0"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._proxy)
            stack.callback(self._stop)
            self._master.start()
            self._replica.start()
            self._follow()
            self._proxy.lead_to(_port(self._master))
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def master(self) -> redis.Redis:
        """A client of the master itself."""
        return _client(self._master)

    def clear(self, namespace: str) -> None:
        """Begin anew with another namespace."""
        self.namespace = namespace
        with self.master() as client:
            client.flushall()

    def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kill -9 the master, and start it from its append-only file once `meanwhile` is done."""
        self._master.kill()
        self._proxy.lead_to(_port(self._master))
        meanwhile()
        self._master.start()

    def failover(self, lag_s: float, quiet: Callable[[], object] | None) -> Failover:
        """Cut the replica off while writes go on for `lag_s`, kill the master, promote the replica.

        A stopped replica would still find the writes in its socket once it goes on, so it is told to follow a port
        where nobody listens. `quiet` waits for a moment in which nobody asks anything; clients then keep their
        connections, and have nothing but the offsets to tell them.
        """
        (nobody,) = free_ports(1)
        with _client(self._replica) as replica:
            replica.replicaof(HOST, nobody)
            cut = self.offsets(self._master)
            began = time.monotonic()
            while time.monotonic() < began + lag_s or (
                self.offsets(self._master) == cut and time.monotonic() < began + _DEADLINE_S
            ):
                time.sleep(0.05)
            if quiet is not None:
                quiet()
            before = self.offsets(self._master)
            self._master.kill()
            replica.replicaof("NO", "ONE")
            after = self.offsets(self._replica)  # nobody writes yet: the proxy still leads to the dead one
        self._master, self._replica = self._replica, self._master
        self._proxy.lead_to(_port(self._master), cut=quiet is None)
        shutil.rmtree(self._replica.folder / "appendonlydir", ignore_errors=True)
        self._replica.start()
        self._follow()
        falls = [offset - after.get(place, 0) for place, offset in before.items()]
        return Failover(sum(fall > 0 for fall in falls), max(falls, default=0))

    def offsets(self, server: Redis | None = None) -> Offsets:
        """Where every shard stands."""
        found: Offsets = {}
        with _client(server or self._master) as client:
            for key in client.scan_iter(f"{self.namespace}:*:log", count=1_000):
                for name, value in client.hgetall(key).items():
                    if name.startswith("next:"):
                        found[key, name] = int(value)
        return found

    def deadlines(self) -> int:
        """How many open rounds have a deadline."""
        with self.master() as client:
            return sum(client.zcard(key) for key in client.scan_iter(f"{self.namespace}:*:due", count=1_000))

    def open_rounds(
        self, job: str = ""
    ) -> dict[tuple[str, str], frozenset[tuple[int, int, tuple[str, str]]]]:
        """What waits in rounds, of one job or of all, by (job, key): (asset, member, (source, id of the event)).

        Rounds on their way from one definition to the next are those of a job named "moved".
        """
        with self.master() as client:
            names = list(
                client.scan_iter(f"{self.namespace}:*:round:{job}{'/' if job else ''}*", count=10_000)
            )
            moved = list(client.scan_iter(f"{self.namespace}:*:moved:*", count=10_000))
            with client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hgetall(name)
                rounds = pipeline.execute()
        found = {("moved", name): frozenset[Any]() for name in moved}
        for name, fields in zip(names, rounds, strict=True):
            its_job, _, key = name.partition(":round:")[2].split("/", 2)
            members = set()
            for field, value in fields.items():
                kind, *place = field.split(":", 3)
                if kind in ("m", "x"):
                    _, _, event, source, *_ = json.loads(f"[{value}]")
                    members.add((int(place[0]), int(place[1]), (source, event)))
            if members:  # it may have ended since it was named
                found[its_job, key] = frozenset(members)
        return found

    def _follow(self) -> None:
        with _client(self._replica) as replica:
            replica.replicaof(HOST, _port(self._master))
            deadline = time.monotonic() + _DEADLINE_S
            while replica.info("replication")["master_link_status"] != "up":
                if time.monotonic() > deadline:
                    raise ServerError(f"the replica does not follow within {_DEADLINE_S:g} s")
                time.sleep(0.05)

    def _stop(self) -> None:
        for server in (self._replica, self._master):
            server.stop()


def _port(server: Redis) -> int:
    return int(server.url.rpartition(":")[2].partition("/")[0])


def _client(server: Redis) -> redis.Redis:
    return redis.Redis(host=HOST, port=_port(server), decode_responses=True, socket_timeout=30)
