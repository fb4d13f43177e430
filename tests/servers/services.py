"""Services as real processes: started with settings in the environment, asked over HTTP, killed by pid."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.servers.process import HOST, free_ports
from tidegate.runtime.parent import end_with_parent

READS: Mapping[str, tuple[str, ...]] = {
    "ingest": ("asset-events",),
    "mapper": ("accepted-events",),
    "rollup": ("contributions",),
    "dispatcher": ("run-requests", "run-events"),
}
"""What each service consumes, in the order of the road."""

_POLL_S = 0.05


class Servers(Protocol):
    """Where Kafka and Redis answer."""

    @property
    def kafka(self) -> str: ...

    @property
    def redis(self) -> str: ...


class ServiceProcess:
    """One `python -m tidegate_<name>`; may be started again after it ended, on the same health port and log file.

    `env` adds to the settings, for example {"TIDEGATE_TEAMS": '["blue"]'}. Its output is appended to
    `<log_folder>/<label>.log`; several processes of one service need labels of their own. The process dies with the
    thread that called `start`, so call that on the main thread.
    """

    def __init__(
        self,
        name: str,
        servers: Servers,
        log_folder: Path,
        env: Mapping[str, str] | None = None,
        label: str = "",
    ) -> None:
        self.name = name
        self.module = f"tidegate_{name}"
        self.log_file = log_folder / f"{label or name}.log"
        (self.health_port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._env = {
            "TIDEGATE_KAFKA": servers.kafka,
            "TIDEGATE_REDIS": servers.redis,
            "TIDEGATE_HEALTH_HOST": HOST,
            "TIDEGATE_HEALTH_PORT": str(self.health_port),
            "PYTHONUNBUFFERED": "1",
            **(env or {}),
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """As subprocess has it: negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> Self:
        """Start the process without waiting for it."""
        assert not self.is_running, f"{self.name} runs already"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests alone
                preexec_fn=end_with_parent(),  # noqa: PLW1509 - one system call, no locks
            )
        return self

    def ready(self) -> dict[str, Any]:
        """What /readyz says: `ready`, `reasons`, `lag`; {} while nothing answers."""
        try:
            return self._get("/readyz")
        except (OSError, ValueError):
            return {}

    def is_alive(self) -> bool:
        """What /healthz says."""
        try:
            return bool(self._get("/healthz").get("alive"))
        except (OSError, ValueError):
            return False

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, `name{labels}` to value; {} while nothing answers."""
        try:
            with urlopen(f"http://{HOST}:{self.health_port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def wait_ready(self, timeout: float = 30) -> Self:
        """Return when /readyz says yes; fails with the reasons and the end of the log."""
        self._wait(lambda: self.ready().get("ready") is True, timeout, "ready")
        return self

    def wait_not_ready(self, reason: str, timeout: float = 30) -> str:
        """Return the text of the named reason once the service is not ready for it."""
        self._wait(lambda: reason in self.ready().get("reasons", {}), timeout, f"held back by {reason!r}")
        return str(self.ready()["reasons"].get(reason, ""))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL, also wait for the end."""
        assert self._process is not None, f"{self.name} was not started"
        assert self.is_running, f"{self.name} does not run{self.log_tail()}"
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait(10)

    def stop(self, timeout: float = 15) -> int | None:
        """SIGTERM, then SIGKILL after `timeout`; returns the exit code, None where it was never started."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        return self._process.returncode

    def log_tail(self, lines: int = 15) -> str:
        """The end of the log, set off for a failure message."""
        try:
            found = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        except OSError:
            found = []
        return "\n  ".join(
            [f"; the end of {self.log_file.name}:", *(line[:600] for line in found or ["(empty)"])]
        )

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urlopen(f"http://{HOST}:{self.health_port}{path}", timeout=5) as answer:
                body = answer.read()
        except HTTPError as error:
            body = error.read()
        found: dict[str, Any] = json.loads(body)
        return found

    def _wait(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if not self.is_running:
                raise AssertionError(f"{self.name} ended with {self.exit_code}{self.log_tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{self.name} is not {what} after {timeout:g} s: {self.ready() or 'no answer'}{self.log_tail()}"
                )
            time.sleep(_POLL_S)


@contextmanager
def services(
    names: tuple[str, ...], servers: Servers, log_folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[dict[str, ServiceProcess]]:
    """Several services, ready at once and stopped together at the end."""
    started = {name: ServiceProcess(name, servers, log_folder, env) for name in names}
    try:
        for service in started.values():
            service.start()
        for service in started.values():
            service.wait_ready()
        yield started
    finally:
        for service in started.values():
            if service.is_running:
                service.kill(signal.SIGCONT)
                service.kill(signal.SIGTERM)
        for service in started.values():
            service.stop()
