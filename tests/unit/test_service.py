"""The life of a service: sessions start again, readiness says why, a stop is bounded."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.packages import install_package
from tests.servers.process import free_ports
from tidegate.runtime.state import ServiceState


def test_a_service_is_not_ready_until_every_reason_is_gone() -> None:
    state = ServiceState(stall_after_s=60)
    assert not state.is_ready
    state.unblock("starting")
    state.block("gap", "records are gone")
    assert state.reasons == {"gap": "records are gone"}
    state.unblock("gap")
    assert state.is_ready


def test_a_loop_that_stands_still_is_dead_only_while_records_wait() -> None:
    state = ServiceState(stall_after_s=0)
    assert state.stalled_for_s is None
    state.set_lag("contributions", 0, 5)
    assert state.stalled_for_s is not None
    state.set_lag("contributions", 0, 0)
    assert state.stalled_for_s is None


PROGRAM = """
import asyncio
from tidegate.runtime.service import serve
from tidegate.runtime.settings import Settings

runs = 0

async def session(settings, state):
    global runs
    runs += 1
    print("session", runs, flush=True)
{session}

serve("test", Settings(health_port={port}, shutdown_deadline_s={deadline_s}), session)
"""


def run_service(
    body: str, folder: Path, deadline_s: float = 2, packages: Path | None = None
) -> subprocess.Popen[str]:
    """A process with a session written out here; what it prints comes back on standard output."""
    program = folder / "service.py"
    session = textwrap.indent(textwrap.dedent(body), "    ")
    program.write_text(PROGRAM.format(session=session, port=free_ports(1)[0], deadline_s=deadline_s))
    return subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(packages),
    )


def environment(packages: Path | None) -> dict[str, str]:
    """The environment of a process that also finds the packages in a folder."""
    paths = [str(packages)] if packages else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}


SHOUT = """
from dataclasses import dataclass
from tidegate import PartitionMapper

@dataclass(frozen=True)
class Shout(PartitionMapper):
    def to_downstream(self, key):
        return key.upper()
"""


def install_shout_and_two_that_fail(folder: Path) -> Path:
    install_package(
        folder, "broken", "import sys\nsys.exit(3)\n", {"tidegate.windows": {"gone": "broken:Gone"}}
    )
    points = {"tidegate.mappers": {"shout": "shout:Shout", "quiet": "shout:Whisper"}}
    return install_package(folder, "shout", SHOUT, points)


def test_a_service_knows_the_types_of_plugins_and_says_which_plugin_failed(tmp_path: Path) -> None:
    process = run_service(
        """
        from tidegate.core.plain import from_plain
        print("mapped", from_plain({"type": "Shout"}).to_downstream("quiet"), flush=True)
        state.stopping.set()
        """,
        tmp_path,
        packages=install_shout_and_two_that_fail(tmp_path / "packages"),
    )
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out.split()) == (0, ["session", "1", "mapped", "QUIET"]), err
    failures = [line for line in err.splitlines() if "plugin_failed" in line]
    assert len(failures) == 2
    assert any("tidegate.windows:gone = broken:Gone" in line and "SystemExit: 3" in line for line in failures)
    assert any("tidegate.mappers:quiet = shout:Whisper" in line for line in failures)


def test_the_command_line_knows_them_too_and_warns_on_standard_error(tmp_path: Path) -> None:
    packages = install_shout_and_two_that_fail(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "--help"],
        env=environment(packages),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    warnings = done.stderr.splitlines()
    assert len(warnings) == 2
    assert all(line.startswith("warning: plugin tidegate.") for line in warnings)
    assert "warning" not in done.stdout


def test_a_session_that_fails_is_started_again_with_the_reason_in_readiness(tmp_path: Path) -> None:
    process = run_service(
        """
        if runs < 3:
            raise ConnectionError("no broker")
        state.unblock("session")
        await state.stopping.wait()
        """,
        tmp_path,
    )
    assert process.stdout is not None
    assert [process.stdout.readline().split()[1] for _ in range(3)] == ["1", "2", "3"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "ConnectionError: no broker" in err


def test_a_cancellation_that_a_client_passes_on_ends_the_session_and_not_the_service(tmp_path: Path) -> None:
    process = run_service(
        """
        import asyncio
        if runs == 1:
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task
        state.stopping.set()
        """,
        tmp_path,
    )
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out.split()) == (0, ["session", "1", "session", "2"]), err


def test_a_session_that_does_not_stop_is_left_at_the_deadline(tmp_path: Path) -> None:
    process = run_service(
        """
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(600)  # stands for a connection whose end never comes
        """,
        tmp_path,
        deadline_s=0.5,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "shutdown_deadline_passed" in err
