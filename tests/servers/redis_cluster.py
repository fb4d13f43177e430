"""A Redis Cluster on loopback: masters with one replica each, and failovers that lose acknowledged writes."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import redis

from tests.servers.process import HOST, ServerError, free_ports
from tests.servers.redis import Redis

_SLOTS: Final = 16_384
_DEADLINE_S: Final = 20.0


class Node(Redis):
    """One redis-server in cluster mode. Only tests decide who is master."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = self._port
        (self.bus,) = free_ports(1)

    def command(self) -> list[str]:
        return [
            *super().command(),
            *("--cluster-enabled", "yes", "--cluster-port", str(self.bus)),
            *("--cluster-node-timeout", "30000", "--cluster-replica-no-failover", "yes"),
            *("--repl-diskless-sync-delay", "0"),
        ]

    def client(self) -> redis.Redis:
        """A client of this one server, which does not follow to others."""
        return redis.Redis(host=HOST, port=self.port, decode_responses=True, socket_timeout=30)

    def ask(self, *command: str | int) -> str:
        """The answer to a command, as text."""
        with self.client() as client:
            return str(client.execute_command(*command))


class RedisCluster:
    """`masters` nodes that share the slots evenly, and a replica of each; `url` names all of them."""

    def __init__(self, folder: Path, masters: int = 3) -> None:
        self.masters = [Node(folder / f"master-{number}") for number in range(masters)]
        self.replicas = [Node(folder / f"replica-{number}") for number in range(masters)]
        self._running = ExitStack()

    @property
    def nodes(self) -> list[Node]:
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        return f"redis://{','.join(f'{HOST}:{node.port}' for node in self.nodes)}/0"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._meet()
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def cut_off(self, number: int) -> None:
        """Break the link between a master and its replica for good: what is written from now on is on one of them.

        A replica that was only stopped would still find the writes in its socket; so the master lets none follow.
        """
        master, replica = self.masters[number], self.replicas[number]
        master.ask("ACL", "SETUSER", "default", "-psync", "-sync")
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        self._until(lambda: "master_link_status:down" in _info(replica), "the replica to be cut off")

    def promote(self, number: int) -> None:
        """Kill a master and let its replica take its place, with what that has."""
        master, replica = self.masters[number], self.replicas[number]
        master.kill()
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        self.masters[number], self.replicas[number] = replica, master
        self._until(
            lambda: all(_leads(node, replica) for node in self.masters), "the replica to be known as master"
        )

    def _meet(self) -> None:
        first, count = self.masters[0], len(self.masters)
        for number, master in enumerate(self.masters):
            start, end = _SLOTS * number // count, _SLOTS * (number + 1) // count - 1
            master.ask("CLUSTER", "ADDSLOTSRANGE", start, end)
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", HOST, first.port, first.bus)
        self._until(lambda: all(_knows(node, len(self.nodes)) for node in self.nodes), "all nodes to meet")
        for master, replica in zip(self.masters, self.replicas, strict=True):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        self._until(self._is_whole, "the cluster to be whole")

    def _is_whole(self) -> bool:
        pairs = zip(self.masters, self.replicas, strict=True)
        return all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes) and all(
            "master_link_status:up" in _info(replica) and _leads(asked, master)
            for master, replica in pairs
            for asked in self.nodes
        )

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                raise ServerError(f"waited {_DEADLINE_S:g} s for {what}")
            time.sleep(0.05)


def _info(node: Node) -> str:
    """INFO replication as the server sends it."""
    with node.client() as client:
        client.response_callbacks.pop("INFO", None)
        return str(client.execute_command("INFO", "replication"))


def _knows(node: Node, count: int) -> bool:
    lines = node.ask("CLUSTER", "NODES").splitlines()
    return len(lines) == count and not any("handshake" in line for line in lines)


def _leads(asked: Node, leader: Node) -> bool:
    """Whether a node knows another one as a master that has slots."""
    fields = (line.split() for line in asked.ask("CLUSTER", "NODES").splitlines())
    return any(f":{leader.port}@" in each[1] and "master" in each[2] and len(each) > 8 for each in fields)
