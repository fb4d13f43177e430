"""Arguments and options that several commands share."""

import getpass
from typing import Annotated

import typer

from tidegate.contracts.definitions import MAX_PARTITIONS, MAX_SHARDS

_JOB = typer.Argument(metavar="JOB", help="Id of the job.")
_KEY = typer.Argument(
    metavar="KEY", help="Key of the round, as `tidegate pending` shows it; - for a job without keys."
)
JobArgument = Annotated[str, _JOB]
OptionalJobArgument = Annotated[str | None, _JOB]
KeyArgument = Annotated[str, _KEY]
OptionalKeyArgument = Annotated[str | None, _KEY]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", "--partition-key", help="Partition key.")]
EventOption = Annotated[
    str | None, typer.Option("--event", metavar="ID", help="Id of an event, as its producer gave it.")
]
LimitOption = Annotated[
    int, typer.Option(min=1, help="List at most so many; of what has a time, the newest.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, with everything that is known of each.")]
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
PartitionsOption = Annotated[
    int, typer.Option(min=1, max=MAX_PARTITIONS, help="Partitions of every keyed topic; fixed for life.")
]
ShardsOption = Annotated[
    int, typer.Option(min=1, max=MAX_SHARDS, help="Parts of the state in Redis; fixed for life.")
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


def round_key(argument: str | None) -> str | None:
    """The key that a KEY argument means, None for a job without keys."""
    return None if argument == "-" else argument


DEFAULT_LIMIT = 100
DEFAULT_PARTITIONS = 4
DEFAULT_SHARDS = 16
DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_REDIS = "redis://127.0.0.1:6379/0"
DEFAULT_GROUP = "tidegate-worker"
DEFAULT_NAMESPACE = "tidegate"
