"""The command line in the process of the test, where starting another one would only cost time."""

import asyncio
import json
from typing import Any, NamedTuple

from typer.testing import CliRunner

from tests.broker.conftest import Installed
from tidegate.cli.app import app
from tidegate.core.errors import TidegateError


class Said(NamedTuple):
    exit_code: int
    text: str
    """Both outputs, and the error that ended the command, if any."""


async def tidegate(at: Installed, *arguments: str) -> Said:
    where = {"TIDEGATE_KAFKA": at.kafka, "TIDEGATE_REDIS": at.redis, "TIDEGATE_NAMESPACE": at.namespace}
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=where)
    if done.exception is not None and not isinstance(done.exception, TidegateError | SystemExit):
        raise done.exception
    error = str(done.exception) if isinstance(done.exception, TidegateError) else ""
    return Said(done.exit_code, done.output + error)


async def tidegate_json(at: Installed, *arguments: str) -> Any:
    said = await tidegate(at, *arguments, "--json")
    assert said.exit_code == 0, said.text
    return json.loads(said.text)
