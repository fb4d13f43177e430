"""One small process that speaks Kafka and Redis (package `noida-db`), to try Tidegate and for quick tests.

Confirmed with 0.2.3 against Kafka 4.3.1 and Redis 7.0: topic settings (given back by describe_configs),
LogAppendTime, compaction and retention, the range assignor and rebalances of members that leave, commit
metadata also inside transactions, read_committed, fencing by transactional id, `auto_offset_reset="none"`,
records of 8 MiB; Lua with the same libraries and conversions, 7,000 arguments and 1,000 keys.

Not for production. What it does otherwise than Kafka and Redis:

- Written to disk about once a second, Kafka and Redis apart, each as a whole. A kill loses acknowledged
  writes, moves log ends back, and can leave Redis ahead of Kafka. SIGTERM saves everything: at once when
  small, 9 s with 150 MB of log, and about four times that size on disk.
- Session timeouts are not kept: a killed consumer stays in its group, and if it led the group, the next
  member waits for ever. Use `group_instance_id`: the restarted member then takes over at once.
- Transaction timeouts are not kept: an open transaction holds up readers until its id is used again. A
  kill and restart aborts it, yet a commit sent afterwards is answered as if it had worked.
- Asking for a topic that is absent, or sending to it, creates it. Listing all topics is safe.
- Of several headers with one name only the last stays. Commit metadata has no limit (Kafka: 4,096 bytes).
  The broker tells few settings of its own. Redis lacks WAIT, ROLE and CLUSTER; long loops in Lua are slow.
"""

import asyncio
import fcntl
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.errors import TidegateError
from tidegate.runtime.parent import end_with_parent

_HOST = "127.0.0.1"
_START_DEADLINE_S = 30.0  # ready in 50 ms; hundreds of megabytes are read back in seconds
_STOP_DEADLINE_S = 60.0  # SIGTERM writes everything; a SIGKILL before that loses it
_LOCK_DEADLINE_S = 5.0  # a predecessor whose owner died is perhaps still saving
_POLL_S = 0.02
# ApiVersions: size 10, key 18, version 0, correlation id 1, no client id
_API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")

_log = logging.getLogger(__name__)


class EmbeddedBrokerError(TidegateError, RuntimeError):
    """The embedded broker cannot be started here, or did not come up."""


@dataclass(frozen=True, slots=True)
class EmbeddedBroker:
    """A running embedded broker: `kafka` is "host:port", `redis` a URL."""

    kafka: str
    redis: str
    pid: int
    folder: Path


@asynccontextmanager
async def embedded(folder: Path, kafka_port: int = 0, redis_port: int = 0) -> AsyncIterator[EmbeddedBroker]:
    """Run the embedded broker on `folder` until the block ends; yields once Kafka and Redis both answer.

    Port 0 takes the port this folder had before if it is free, else any free one: Kafka clients remember
    addresses. On Linux the broker stops by itself when the calling thread ends, however that happens; it
    never gets the terminal's Ctrl-C, so that services can finish first. Raises EmbeddedBrokerError.
    """
    child = _Child(folder)
    try:
        for _ in child.starting(kafka_port, redis_port):
            await asyncio.sleep(_POLL_S)
        yield child.broker()
    finally:
        for _ in child.stopping():
            await asyncio.sleep(_POLL_S)


@contextmanager
def embedded_blocking(folder: Path, kafka_port: int = 0, redis_port: int = 0) -> Iterator[EmbeddedBroker]:
    """The same as `embedded` for code without an event loop."""
    child = _Child(folder)
    try:
        for _ in child.starting(kafka_port, redis_port):
            time.sleep(_POLL_S)
        yield child.broker()
    finally:
        for _ in child.stopping():
            time.sleep(_POLL_S)


class _Child:
    """The process and its folder: `data`, `broker.log`, `ports.json`, `lock`.

    `starting` and `stopping` yield whenever they would wait, so that blocking and asyncio callers share them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._log_file = self._folder / "broker.log"
        self._state_file = self._folder / "ports.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = -1
        self._pid = 0
        self._kafka_port = self._redis_port = 0

    def broker(self) -> EmbeddedBroker:
        kafka, redis = f"{_HOST}:{self._kafka_port}", f"redis://{_HOST}:{self._redis_port}/0"
        return EmbeddedBroker(kafka=kafka, redis=redis, pid=self._pid, folder=self._folder)

    def starting(self, kafka_port: int, redis_port: int) -> Iterator[None]:
        binary = _binary()
        self._folder.mkdir(parents=True, exist_ok=True)
        yield from self._locking()
        before = self._state()
        self._kafka_port = _port("kafka", kafka_port, before.get("kafka", 0))
        self._redis_port = _port("redis", redis_port, before.get("redis", 0), taken=self._kafka_port)
        process = self._launch(binary)
        self._pid = process.pid
        state = {"kafka": self._kafka_port, "redis": self._redis_port, "pid": self._pid}
        self._state_file.write_text(json.dumps(state), encoding="utf-8")
        deadline = time.monotonic() + _START_DEADLINE_S
        while not (_kafka_answers(self._kafka_port) and _redis_answers(self._redis_port)):
            if process.poll() is not None:
                self._process = None
                raise EmbeddedBrokerError(f"the embedded broker stopped ({process.returncode}){self._tail()}")
            if time.monotonic() > deadline:
                waited = f"{_START_DEADLINE_S:g} s"
                raise EmbeddedBrokerError(f"the embedded broker is silent after {waited}{self._tail()}")
            yield

    def stopping(self) -> Iterator[None]:
        process = self._process
        try:
            if process is not None and process.poll() is None:
                process.terminate()
                deadline = time.monotonic() + _STOP_DEADLINE_S
                while process.poll() is None and time.monotonic() < deadline:
                    yield
                if process.poll() is None:
                    process.kill()
                    process.wait()
                    _log.error("embedded broker killed after %g s: last writes lost", _STOP_DEADLINE_S)
            elif process is not None:
                _log.warning("embedded broker had stopped by itself (%s)%s", process.returncode, self._tail())
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _launch(self, binary: Path) -> subprocess.Popen[bytes]:
        command = [str(binary), "start", "--data-dir", str(self._folder / "data"), "--host", _HOST]
        command += ["--only", "redis,kafka"]
        command += ["--redis-port", str(self._redis_port), "--kafka-port", str(self._kafka_port)]
        with self._log_file.open("wb") as out:  # also hides a warning of the linker on older systems
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(self._lock,),  # the lock lives as long as the broker, whatever becomes of us
                preexec_fn=end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - one system call, nothing is locked
            )
        return self._process

    def _locking(self) -> Iterator[None]:
        lock = self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + _LOCK_DEADLINE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    pid = self._state().get("pid", "?")
                    raise EmbeddedBrokerError(
                        f"{self._folder} is in use by a running embedded broker (pid {pid}); "
                        "stop it or use another folder"
                    ) from error
                yield
            else:
                return

    def _state(self) -> dict[str, int]:
        try:
            found = json.loads(self._state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {k: v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}

    def _tail(self) -> str:
        with suppress(OSError):
            lines = self._log_file.read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n  ".join([f"; the end of {self._log_file}:", *(lines[-10:] or ["(empty)"])])
        return ""


def _binary() -> Path:
    spec = importlib.util.find_spec("noida_db")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(place) / "noida-db"
        if binary.is_file():
            if not os.access(binary, os.X_OK):
                binary.chmod(0o755)  # some installers drop the bit
            return binary
    raise EmbeddedBrokerError(
        "the package noida-db is not installed, or not for this system; "
        "install it, or connect to a Kafka and a Redis"
    )


def _port(name: str, wanted: int, before: int, taken: int = 0) -> int:
    if wanted:
        if wanted == taken or not _is_free(wanted):
            raise EmbeddedBrokerError(f"{name} port {wanted} is in use; choose another, or 0 for a free one")
        return wanted
    if before and before != taken and _is_free(before):
        return before
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # closed connections of a predecessor do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _kafka_answers(port: int) -> bool:
    return _exchange(port, _API_VERSIONS)[4:8] == b"\x00\x00\x00\x01"  # our correlation id


def _redis_answers(port: int) -> bool:
    return _exchange(port, b"PING\r\n").startswith(b"+PONG")


def _exchange(port: int, request: bytes) -> bytes:
    try:
        with socket.create_connection((_HOST, port), timeout=1) as connection:
            connection.sendall(request)
            return connection.recv(64)
    except OSError:
        return b""
