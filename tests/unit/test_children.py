"""Programs kept running: started again when they die, stopped in time, silent about Ctrl-C."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.runtime.children import Child, free_port

_FOREVER = "import time\nprint('here', flush=True)\ntime.sleep(600)"
_STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _FOREVER


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
        await asyncio.sleep(0.02)


class Kept:
    """A child that runs some Python, and the notices it gave."""

    def __init__(self, folder: Path, code: str, health_port: int | None = None) -> None:
        self.notices: list[str] = []
        self.child = Child(
            "some",
            [sys.executable, "-c", code],
            dict(os.environ),
            folder / "some.log",
            self.notices.append,
            health_port,
        )

    def has_written(self) -> bool:
        return "here" in self.child.log_tail()


async def test_a_child_that_dies_is_started_again_and_said_so(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _FOREVER)
    kept.child.start()
    await until(lambda: kept.child.pid is not None, "the first start")
    first = kept.child.pid
    kept.child.kill()
    await until(lambda: kept.child.pid not in (None, first), "the second start")
    assert kept.child.restarts == 1
    assert kept.notices == [
        f"some was ended by signal 9; it is started again in 0.2 s (log: {tmp_path}/some.log)"
    ]
    await kept.child.stop(10)
    assert kept.child.pid is None
    assert len(kept.notices) == 1


async def test_a_child_that_is_held_begins_once_it_is_released(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "input()\n" + _FOREVER)
    kept.child.start(held=True)
    await until(lambda: kept.child.pid is not None, "the start")
    await asyncio.sleep(0.2)
    assert not kept.has_written()
    kept.child.release()
    await until(kept.has_written, "its first line")
    await kept.child.stop(10)
    assert kept.notices == []


async def test_a_child_released_while_it_is_being_started_begins(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "input()\n" + _FOREVER)
    kept.child.start(held=True)
    await asyncio.sleep(0)
    kept.child.release()
    await until(kept.has_written, "its first line")
    await kept.child.stop(10)
    assert kept.notices == []


async def test_restarts_of_a_child_that_never_works_become_rare(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "raise SystemExit(3)")
    kept.child.start()
    await until(lambda: len(kept.notices) >= 3, "three ends")
    await kept.child.stop(10)
    assert [notice.split("again in ")[1].split(" (")[0] for notice in kept.notices[:3]] == [
        "0.2 s",
        "0.4 s",
        "0.8 s",
    ]
    assert "exit code 3" in kept.notices[0]


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _STUBBORN)
    kept.child.start()
    await until(kept.has_written, "its first line")
    await kept.child.stop(0.2)
    assert kept.child.pid is None
    assert kept.notices == ["some did not stop within 0.2 s and is killed"]


async def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _FOREVER)
    kept.child.start()
    await until(kept.has_written, "its first line")
    assert kept.child.pid is not None
    assert os.getsid(kept.child.pid) == kept.child.pid != os.getsid(0)
    await kept.child.stop(10)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        ("200 OK", '{"ready": true, "reasons": {}}', None),
        ("503 No", '{"reasons": {"gap": "a gap"}}', "a gap"),
        ("200 no json", "", None),
        ("500 No", "", "it does not answer yet"),
    ],
)
async def test_readiness_is_what_readyz_says(
    tmp_path: Path, status: str, body: str, reason: str | None
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 {status}\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        kept = Kept(tmp_path, _FOREVER, server.sockets[0].getsockname()[1])
        assert await kept.child.why_not_ready() == "it is not running"
        kept.child.start()
        await until(lambda: kept.child.pid is not None, "the start")
        assert await kept.child.why_not_ready() == reason
        await kept.child.stop(10)


async def test_nobody_listening_is_not_ready(tmp_path: Path) -> None:
    kept = Kept(tmp_path, _FOREVER, free_port())
    kept.child.start()
    await until(lambda: kept.child.pid is not None, "the start")
    assert await kept.child.why_not_ready() == "it does not answer yet"
    await kept.child.stop(10)
