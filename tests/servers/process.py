"""One server process that a test owns: started until it answers, stopped by pid, startable again."""

import os
import secrets
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidegate.runtime.parent import end_with_parent

HOST = "127.0.0.1"
_PORTS = range(10_000, 32_000)
"""Outgoing connections, of which another test process makes many, have theirs above these."""


class ServerError(RuntimeError):
    """A server that does not start or stop; the message ends with the end of its log."""


class Server:
    """A process on fixed ports and one folder; as a context manager it runs for the length of the block.

    It has a session of its own, so that Ctrl-C reaches only the tests, and on Linux it ends with them.
    """

    start_deadline_s = 60.0
    stop_deadline_s = 30.0
    poll_s = 0.02

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{type(self).__name__} is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> None:
        """Start, or start again after `stop` or `kill`, and wait until it answers."""
        if self._process is not None:
            raise ServerError(f"{type(self).__name__} runs already (pid {self.pid})")
        if self.answers():
            raise ServerError(f"another process has taken a port of this {type(self).__name__}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as out:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent(),  # noqa: PLW1509 - one system call, nothing is locked
            )
        deadline = time.monotonic() + self.start_deadline_s
        while not self.answers():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                what = "is silent" if code is None else f"stopped ({code})"
                raise ServerError(self._told(what))
            time.sleep(self.poll_s)

    def stop(self) -> None:
        """Stop cleanly; raises ServerError when only a kill helped."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self.stop_deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(self._told("had to be killed")) from None
        self._process = None

    def kill(self) -> None:
        """Kill -9: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def state(self) -> str:
        """Whether it runs, and the end of its log."""
        if self._process is None:
            how = "is stopped"
        else:
            code = self._process.poll()
            how = "runs" if code is None else f"ended by itself ({code})"
        return self._told(how)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP) until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.resume()  # a paused process cannot stop
        self.stop()

    def _told(self, what: str) -> str:
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        tail = "\n".join(text.splitlines()[-15:]) or "(empty)"
        return f"{type(self).__name__} {what}; its log ends:\n{tail}"


def free_ports(count: int) -> list[int]:
    """Different loopback ports that nobody listens on now, nor will before a server of ours does."""
    probes: list[socket.socket] = []
    found: list[int] = []
    try:
        while len(found) < count:
            probes.append(socket.socket())
            port = secrets.choice(_PORTS)
            with suppress(OSError):  # somebody has it
                probes[-1].bind((HOST, port))
                found.append(port)
        return found
    finally:
        for probe in probes:
            probe.close()


def exchange(port: int, request: bytes) -> bytes:
    """The first bytes that come back for `request`; nothing when nobody listens."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(request)
            return connection.recv(64)
    except OSError:
        return b""
