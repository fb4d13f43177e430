"""A real Redis as Tidegate asks for it: append-only file, fsync every second, no eviction."""

import shutil
from pathlib import Path

from tests.servers.process import HOST, Server, exchange, free_ports


class Redis(Server):
    """A redis-server with its data in `folder`; `url` stays the same over stop, kill and start."""

    start_deadline_s = 20.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._port}/0"

    def command(self) -> list[str]:
        return [
            *("redis-server", "--port", str(self._port), "--bind", HOST, "--dir", str(self.folder)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
            *("--maxmemory-policy", "noeviction"),
        ]

    def answers(self) -> bool:
        return exchange(self._port, b"PING\r\n").startswith(b"+PONG")  # while it reads its file: -LOADING


def redis_available() -> str | None:
    """Why no Redis can be started here, or None."""
    return None if shutil.which("redis-server") else "redis-server is not on the PATH"
