"""A program that is kept running beside us: started, watched, started again when it dies, stopped in time."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidegate.runtime.parent import end_with_parent

_log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0
_STABLE_AFTER_S: Final = 30.0

Notice = Callable[[str], None]
"""Takes one line for people."""


class Child:
    """One program. Output goes to `log_file`; Ctrl-C in our terminal does not reach it; it is killed when we die.

    `health_port` is where its /readyz answers; without one it counts as ready once it runs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log_file: Path,
        notice: Notice,
        health_port: int | None = None,
    ) -> None:
        self.name, self.log_file, self.health_port = name, log_file, health_port
        self._command, self._env, self._notice = list(command), dict(env), notice
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopping = self._is_held = False
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def start(self, *, held: bool = False) -> None:
        """Start it, and again whenever it ends, until `stop`; one that is `held` waits for a line of standard input."""
        self._is_held = held
        self._watching = asyncio.create_task(self._watch(), name=f"watch-{self.name}")

    def release(self) -> None:
        """Have a program that was held begin."""
        self._is_held = False
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"\n")
            self._process.stdin.close()

    async def stop(self, deadline_s: float) -> None:
        """SIGTERM, and SIGKILL after the deadline."""
        self._stopping = True
        if (process := self._process) is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), deadline_s)
            except TimeoutError:
                self._notice(f"{self.name} did not stop within {deadline_s:g} s and is killed")
                self.kill()
                await process.wait()
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching

    def kill(self) -> None:
        """Kill -9 now; unless it is being stopped, it is started again."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def why_not_ready(self) -> str | None:
        """None when it is ready."""
        if self.pid is None:
            return "it is not running"
        return None if self.health_port is None else await _why_not_ready(self.health_port)

    def log_tail(self, lines: int = 10) -> str:
        try:
            found = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        except OSError:
            found = []
        return "\n  ".join([f"the end of {self.log_file}:", *(line[:400] for line in found or ["(empty)"])])

    async def _watch(self) -> None:
        wait_s, clock = _FIRST_WAIT_S, asyncio.get_running_loop().time
        while not self._stopping:
            started = clock()
            code = await self._run()
            if self._stopping:
                return
            if clock() - started > _STABLE_AFTER_S:
                wait_s = _FIRST_WAIT_S
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._notice(f"{self.name} {how}; it is started again in {wait_s:g} s (log: {self.log_file})")
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            self.restarts += 1

    async def _run(self) -> int:
        with self.log_file.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._env,
                stdin=asyncio.subprocess.PIPE if self._is_held else asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )
        if self._stopping:  # asked to stop while it was being started
            self._process.terminate()
        if not self._is_held:  # perhaps released while it was being started
            self.release()
        return await self._process.wait()


def free_port() -> int:
    """A loopback port that was free just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


async def _why_not_ready(port: int) -> str | None:
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(f"GET /readyz HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
                answer = await reader.read()
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] == [b"200"]:
            return None
        reasons = json.loads(body)["reasons"]
        return "; ".join(map(str, reasons.values())) or "it is not ready"
    except (OSError, ValueError, KeyError, TimeoutError):
        return "it does not answer yet"
