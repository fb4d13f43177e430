"""A plugin as its users have it: a wheel, installed into an environment of its own, and used by every service."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.outside import Outside
from tests.servers.backends import unavailable
from tidegate.sdk import AssetEventProducer

ROOT = Path(__file__).parents[2]
PLUGIN = Path(__file__).parent / "plugin"
DEFINITIONS = PLUGIN / "definitions.py"

# May 2026 begins on a Friday; Monday the 25th is the holiday of the definition.
BUSINESS_DAYS = [1, *range(4, 9), *range(11, 16), *range(18, 23), *range(26, 30)]

pytestmark = pytest.mark.skipif(unavailable("embedded") is not None, reason=str(unavailable("embedded")))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the plugin's wheel and, from the tests' own environment, all that Tidegate needs."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    shutil.copytree(PLUGIN, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    _run(build)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    found = folder / "venv" / "bin" / "python"
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(found),
            "install",
            "--no-deps",
            "--no-index",
            str(wheel),
        ]
    )
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    libraries = sysconfig.get_path("purelib")
    (site / "libraries.pth").write_text(f"import site; site.addsitedir({libraries!r})\n", encoding="utf-8")
    return found


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "shared", ROOT / "services")))}


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def up(python: Path, folder: Path) -> Iterator[str]:
    """`tidegate up` in the plugin's environment; gives the address of its Kafka, once it is ready."""
    command = [str(python), "-m", "tidegate.cli", "up", "--data", str(folder), "--apply", str(DEFINITIONS)]
    command += ["--kafka-port", "0", "--redis-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if "Kafka  " in line:
                    yield line.split()[1]
                    break
            else:
                raise AssertionError("tidegate up ended: " + "".join(said))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


async def test_a_plugin_in_a_wheel_is_used_by_every_service(python: Path, tmp_path: Path) -> None:
    with up(python, tmp_path) as kafka:
        async with AssetEventProducer(kafka, "/tests") as producer:
            await producer.send("sales", partition_key="emea:2026-03-10")
            await producer.send("sales", partition_key="2026-03-10")  # no namespace
            await producer.send("daily", partition_key="2026-05-02")  # a Saturday
            await producer.send("daily", partition_key="2026-05-25")  # the holiday
            for day in BUSINESS_DAYS:
                await producer.send("daily", partition_key=f"2026-05-{day:02}")
        with Outside(kafka) as outside:
            deadline = asyncio.get_running_loop().time() + 60
            while len(outside.read("run-commands.copy", "run-commands.month")) < 2:
                assert asyncio.get_running_loop().time() < deadline, "waited for two run commands"
                await asyncio.sleep(0.1)
            (copy,) = outside.read("run-commands.copy")
            (month,) = outside.read("run-commands.month")
            read = outside.read("audit-log")
            audit = [each for each in read if each.value["kind"] not in ("consumer-registered", "fired")]
        assert copy.value["partition_key"] == "2026-03-10"
        assert month.value["partition_key"] == "2026-05"
        members = [event["partition_key"] for event in month.value["triggering_asset_events"]]
        assert members == [f"2026-05-{day:02}" for day in BUSINESS_DAYS]
        assert sorted((each.value["kind"], each.value["partition_key"]) for each in audit) == [
            ("mapping-failed", "2026-03-10"),
            ("not-a-member", "2026-05-02"),
            ("not-a-member", "2026-05-25"),
        ]
    assert json.loads((tmp_path / "broker" / "ports.json").read_text(encoding="utf-8"))["pid"]


def test_a_plugin_in_a_wheel_is_used_by_simulations(python: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"now": "2026-03-10T00:00:00Z"}\n', encoding="utf-8")
    command = [str(python), "-m", "tidegate.cli", "simulate", str(PLUGIN / "workdays.py"), str(events)]
    runs = [
        json.loads(line)["run"] for line in _run([*command, "--now", "2026-03-06T00:00:00Z"]).splitlines()
    ]
    # 6 March 2026 is a Friday: its run starts on Saturday, that of Monday on Tuesday.
    starts = [(run["job"], run["data_interval"][0]) for run in runs]
    assert starts == [("report", "2026-03-06T00:00:00Z"), ("report", "2026-03-09T00:00:00Z")]
