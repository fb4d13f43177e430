"""The machine, and the versions of everything that takes part in a measurement."""

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tests.servers import kafka

PACKAGES: Final = ("aiokafka", "redis", "hiredis", "uvloop", "pydantic", "confluent-kafka")


def describe() -> dict[str, Any]:
    """Processor, memory, what else it is doing, and the versions of everything that takes part."""
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "processor": _first(r"model name\s*: (.*)", _read("/proc/cpuinfo")) or platform.machine(),
        "memory_gib": round(int(_first(r"MemTotal:\s*(\d+)", _read("/proc/meminfo")) or 0) / 1024**2, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Kafka": kafka.VERSION,
        "Java": _first(r'version "([^"]+)"', _said("java", "-version")),
        "redis-server": _first(r"v=(\S+)", _said("redis-server", "--version")),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError:  # not Linux
        return ""


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found[1] if found else None


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return ""
    return done.stdout + done.stderr
