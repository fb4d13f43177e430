"""`tidegate`: every command, and how errors are shown."""

import logging
import re
import sys
from typing import Final

import structlog
import typer
from aiokafka.errors import KafkaConnectionError, KafkaError
from redis.exceptions import RedisClusterException, RedisError

from tidegate.cli import (
    act_on_jobs,
    act_on_rounds,
    act_on_runs,
    apply,
    audit,
    check,
    dead_letters,
    emit,
    exec,
    explain,
    gaps,
    pending,
    replay,
    runs,
    simulate,
    status,
    topics,
    up,
    worker,
)
from tidegate.core.errors import TidegateError

_SERVER: Final = re.compile(r"\('([^']+)', (\d+)")

app = typer.Typer(
    name="tidegate",
    help="Event-driven, partition-aware scheduling on Kafka and Redis.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("up")(up.up)
app.add_typer(topics.app, name="topics")
app.command("apply")(apply.apply)
app.command("emit")(emit.emit)
app.command("simulate")(simulate.simulate)
app.command("worker")(worker.worker)
app.command("exec")(exec.exec_)
app.command("pending")(pending.pending)
app.command("status")(status.status)
app.command("fire")(act_on_rounds.fire)
app.command("discard")(act_on_rounds.discard)
app.command("withdraw")(act_on_rounds.withdraw)
app.command("replay")(replay.replay)
app.command("runs")(runs.runs)
app.command("trigger")(act_on_jobs.trigger)
app.command("pause")(act_on_jobs.pause)
app.command("resume")(act_on_jobs.resume)
app.command("explain")(explain.explain)
app.command("audit")(audit.audit)
app.command("dead-letters")(dead_letters.dead_letters)
app.command("redrive")(act_on_runs.redrive)
app.command("fail")(act_on_runs.fail)
app.command("check")(check.check)
app.command("accept-gap")(gaps.accept)


def main() -> None:
    """The entry point: one clear line on standard error and exit code 2 for what went wrong."""
    _quiet_logs()
    try:
        app()
    except TidegateError as error:
        _fail(str(error))
    except KafkaConnectionError as error:
        _fail(f"Kafka cannot be reached: {_tried(error)}")
    except KafkaError as error:
        _fail(f"Kafka answered with an error: {error!r}")
    except (RedisError, RedisClusterException) as error:
        _fail(f"Redis cannot be reached or answered with an error: {error}")


def _tried(error: KafkaConnectionError) -> str:
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
