"""Options that several commands share."""

from typing import Annotated

import typer

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

DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_REDIS = "redis://127.0.0.1:6379/0"
DEFAULT_GROUP = "tidegate-worker"
DEFAULT_NAMESPACE = "tidegate"
