"""`tidegate ...` on a started Kafka and Redis: in this process, since starting one takes seconds, or as people do."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from typer.testing import CliRunner

from tidegate.cli.app import command_line
from tidegate.core.errors import TidegateError


class Place(Protocol):
    """An installation, as fixtures describe them."""

    @property
    def kafka(self) -> str: ...
    @property
    def redis(self) -> str: ...
    @property
    def namespace(self) -> str: ...


class Said(NamedTuple):
    exit_code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def done(self) -> str:
        """The output of a command that ended well."""
        assert self.exit_code == 0, self.text
        return self.out

    @property
    def refused(self) -> str:
        """The error of a command that did nothing."""
        assert self.exit_code == 2, self.text
        return self.err


def invoke(at: Place | None, *arguments: str, events: str | None = None) -> Said:
    """A command in this process, from a thread without an event loop; errors come out as `main` has them.

    `events` is its standard input.
    """
    found = CliRunner().invoke(command_line(), arguments, env=_environment(at), input=events)
    if isinstance(found.exception, TidegateError):
        return Said(2, found.stdout, f"{found.stderr}error: {found.exception}\n")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Said(found.exit_code, found.stdout, found.stderr)


async def tidegate(at: Place, *arguments: str) -> Said:
    return await asyncio.to_thread(invoke, at, *arguments)


async def tidegate_json(at: Place, *arguments: str) -> Any:
    return json.loads((await tidegate(at, *arguments, "--json")).done)


def start(
    *arguments: str, at: Place | None = None, env: Mapping[str, str] | None = None, events: str | None = None
) -> Said:
    """A command as a process of its own; `events` is its standard input."""
    found = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", *arguments],
        env={**os.environ, **_environment(at), **(env or {})},
        input=events,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Said(found.returncode, found.stdout, found.stderr)


def _environment(at: Place | None) -> dict[str, str]:
    if at is None:
        return {}
    return {"TIDEGATE_KAFKA": at.kafka, "TIDEGATE_REDIS": at.redis, "TIDEGATE_NAMESPACE": at.namespace}
