"""Arguments and options that several commands share."""

import getpass
from typing import Annotated

import typer

JobArgument = Annotated[str, typer.Argument(help="Id of the job.")]
ByOption = Annotated[str, typer.Option("--by", help="Who does it, for the audit log.", show_default="you")]
KafkaOption = Annotated[
    str,
    typer.Option("--kafka", envvar="TIDEGATE_KAFKA", metavar="HOST:PORT", help="Kafka bootstrap servers."),
]
RedisOption = Annotated[
    str, typer.Option("--redis", envvar="TIDEGATE_REDIS", metavar="URL", help="Redis URL.")
]
GroupOption = Annotated[
    str,
    typer.Option(
        "--group", envvar="TIDEGATE_GROUP", help="Consumer group; workers of one group share the work."
    ),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        envvar="TIDEGATE_NAMESPACE",
        help="Prefix of consumer groups, transactional ids and Redis keys.",
    ),
]
InstanceOption = Annotated[
    str | None,
    typer.Option(
        "--instance-id",
        envvar="TIDEGATE_INSTANCE_ID",
        help="Static member of the group: a restart takes over at once. One worker at a time may have it.",
    ),
]
AcceptGapsOption = Annotated[
    bool,
    typer.Option("--accept-gaps", help="Go on where commands were lost to retention before they were read."),
]
MultiTeamOption = Annotated[
    bool | None,
    typer.Option(
        "--multi-team/--no-multi-team",
        help="Filter events by team; may be changed later. Left as recorded where it is not given; off at first.",
    ),
]


def person(by: str) -> str:
    """Who does it: the name that was given, or that of the account."""
    return by or getpass.getuser()


DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_REDIS = "redis://127.0.0.1:6379/0"
DEFAULT_GROUP = "tidegate-worker"
DEFAULT_NAMESPACE = "tidegate"
