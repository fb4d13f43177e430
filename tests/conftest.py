"""What every test run says at its end: which tests were left out, and why. In CI a missing server is a failure."""

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.fixtures import stop_backends
from tests.servers.backends import BACKENDS, unavailable

# How long an example takes says nothing on a busy machine.
settings.register_profile("tidegate", deadline=None)
settings.load_profile("tidegate")


def _missing() -> dict[str, str]:
    """Why each backend that cannot be used here cannot."""
    found = {name: unavailable(name) for name in sorted(BACKENDS)}
    return {name: reason for name, reason in found.items() if reason is not None}


def _is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a test says of itself may hold half of a surrogate pair, which cannot be sent to the other process."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    return type(value)(map(_sendable, value)) if isinstance(value, list | tuple) else value


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In CI a failure is named at once, as a run may be ended before it comes to its summary."""
    if report.failed and _is_ci() and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED at {report.when}: {report.nodeid}", flush=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many `-n auto` means; scripts/test asks for it."""
    from tests.parallel import WORKERS

    return WORKERS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.parallel import TwoEnded

    return TwoEnded(config, log)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    stop_backends()
    if exitstatus == pytest.ExitCode.OK and _is_ci() and _missing():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        where = report.longrepr
        reasons[str(where[2]).removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)] += 1
    missing = _missing()
    if not reasons and not missing:
        return
    terminalreporter.section("LEFT OUT", sep="!", red=True, bold=True)
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:>5} tests: {reason}", red=True)
    for name, reason in missing.items():
        terminalreporter.line(f"nothing ran on the {name} servers: {reason}", red=True, bold=True)
    if missing and _is_ci():
        terminalreporter.line("this is CI, so the run FAILS", red=True, bold=True)
