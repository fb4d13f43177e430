"""`tidegate`: every command, and how errors are shown."""

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

import structlog
import typer

from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from aiokafka.errors import KafkaConnectionError

_SERVER: Final = re.compile(r"\('([^']+)', (\d+)")

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("up", "up"),
    "topics": ("topics", "app"),
    "apply": ("apply", "apply"),
    "emit": ("emit", "emit"),
    "simulate": ("simulate", "simulate"),
    "worker": ("worker", "worker"),
    "exec": ("exec", "exec_"),
    "pending": ("pending", "pending"),
    "status": ("status", "status"),
    "fire": ("act_on_rounds", "fire"),
    "discard": ("act_on_rounds", "discard"),
    "withdraw": ("act_on_rounds", "withdraw"),
    "replay": ("replay", "replay"),
    "runs": ("runs", "runs"),
    "trigger": ("act_on_jobs", "trigger"),
    "pause": ("act_on_jobs", "pause"),
    "resume": ("act_on_jobs", "resume"),
    "explain": ("explain", "explain"),
    "audit": ("audit", "audit"),
    "dead-letters": ("dead_letters", "dead_letters"),
    "redrive": ("act_on_runs", "redrive"),
    "fail": ("act_on_runs", "fail"),
    "check": ("check", "check"),
    "accept-gap": ("gaps", "accept"),
}
"""Each by its name: the module, and what it is called there."""


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """`tidegate` with the commands of these names; of the others nothing is loaded."""
    app = typer.Typer(
        name="tidegate",
        help="Event-driven, partition-aware scheduling on Kafka and Redis.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(lambda: None)  # a group, also with one command
    for name in names:
        module, attribute = COMMANDS[name]
        found = getattr(import_module(f"tidegate.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def main() -> None:
    """The entry point: one clear line on standard error and exit code 2 for what went wrong."""
    _quiet_logs()
    named = sys.argv[1:2]
    try:
        command_line(named if named and named[0] in COMMANDS else COMMANDS)()
    except TidegateError as error:
        _fail(str(error))
    except Exception as error:
        _fail_of_server(error)
        raise


def _fail_of_server(error: Exception) -> None:
    """Says what Kafka or Redis had against it; returns where the error is another's."""
    from aiokafka.errors import KafkaConnectionError, KafkaError
    from redis.exceptions import RedisClusterException, RedisError

    if isinstance(error, KafkaConnectionError):
        _fail(f"Kafka cannot be reached: {_tried(error)}")
    elif isinstance(error, KafkaError):
        _fail(f"Kafka answered with an error: {error!r}")
    elif isinstance(error, (RedisError, RedisClusterException)):
        _fail(f"Redis cannot be reached or answered with an error: {error}")


def _tried(error: "KafkaConnectionError") -> str:
    text = " ".join(map(str, error.args))
    servers = [f"{host}:{port}" for host, port in _SERVER.findall(text)]
    return f"tried {', '.join(servers)}" if servers else text


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    sys.exit(2)


def _quiet_logs() -> None:
    """Warnings go to standard error; what the Kafka client says of its attempts is in the error that it raises."""
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, structlog.dev.ConsoleRenderer(colors=False)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
