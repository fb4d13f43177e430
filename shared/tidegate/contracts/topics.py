"""Every topic in one place: name, key, partitions, cleanup, retention, sizes.

`tidegate topics create` makes them, `tidegate topics check` and every service at its start hold them against the
broker (rule E3).
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tidegate.core.errors import DefinitionError

MIB: Final = 1024 * 1024
MAX_EVENT_BYTES: Final = 256 * 1024
"""Larger asset events are refused (rule D27)."""

PACK_BYTES: Final = 512 * 1024
"""A packed record stays below this unless one entry alone is larger (rule E4)."""

MAX_INTERNAL_BYTES: Final = 8 * MIB
"""`max.message.bytes` of topics whose records hold a whole window of events."""


class Cleanup(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic must be. `fixed` partition counts never change, since state depends on them."""

    name: str
    key: str
    partitions: int
    cleanup: Cleanup
    retention: timedelta | None
    fixed: bool
    max_message_bytes: int = MIB
    append_time: bool = True
    """Whether the broker stamps records (LogAppendTime): times that decide come from one clock."""
    is_jobs_own: bool = False
    """Whether a job names it, who may have made it with other counts."""

    @property
    def config(self) -> dict[str, str]:
        """The topic-level configuration that Kafka is asked for."""
        config = {
            "cleanup.policy": self.cleanup.value,
            "max.message.bytes": str(self.max_message_bytes),
            "message.timestamp.type": "LogAppendTime" if self.append_time else "CreateTime",
        }
        if self.retention is not None:
            name = "retention.ms" if self.cleanup is Cleanup.DELETE else "min.compaction.lag.ms"
            config[name] = str(int(self.retention.total_seconds() * 1000))
        return config


ASSET_EVENTS: Final = "asset-events"
REJECTED: Final = "asset-events.rejected"
ACCEPTED: Final = "accepted-events"
CONTRIBUTIONS: Final = "contributions"
RUN_REQUESTS: Final = "run-requests"
RUN_EVENTS: Final = "run-events"
RUNS: Final = "runs"
AUDIT: Final = "audit-log"
DEFINITIONS: Final = "definitions"
RUN_COMMANDS_PREFIX: Final = "run-commands."

_TEAM: Final = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
_WEEK: Final = timedelta(days=7)
_MONTH: Final = timedelta(days=30)
_REBUILD: Final = timedelta(days=45)
"""What state is made from again: the windows of a month, and the horizon, with some days to spare (rule R2)."""
_SLACK: Final = 64 * 1024


def declared_topics(partitions: int) -> tuple[Topic, ...]:
    """The topics of an installation whose keyed topics have `partitions` partitions."""
    delete, compact = Cleanup.DELETE, Cleanup.COMPACT
    return (
        Topic(ASSET_EVENTS, "asset name", partitions, delete, _WEEK, fixed=False),
        Topic(REJECTED, "as received", 1, delete, _MONTH, fixed=False),
        Topic(ACCEPTED, "asset name", partitions, delete, _REBUILD, fixed=True),
        Topic(CONTRIBUTIONS, "job + downstream key", partitions, delete, _REBUILD, fixed=True),
        Topic(
            RUN_REQUESTS,
            "job",
            partitions,
            delete,
            _REBUILD,
            fixed=True,
            max_message_bytes=MAX_INTERNAL_BYTES + _SLACK,
        ),
        Topic(RUN_EVENTS, "job", partitions, delete, _REBUILD, fixed=True),
        Topic(
            RUNS,
            "run id or job",
            partitions,
            compact,
            None,
            fixed=True,
            max_message_bytes=MAX_INTERNAL_BYTES + _SLACK,
        ),
        Topic(AUDIT, "job or asset", partitions, delete, _MONTH, fixed=False),
        Topic(DEFINITIONS, "job or asset id", 1, compact, _REBUILD, fixed=True),
    )


def team_events_topic(team: str, partitions: int) -> Topic:
    """`asset-events.<team>`, to which only the producers of a team may write; raises DefinitionError for a bad name."""
    name = f"{ASSET_EVENTS}.{team}"
    if not _TEAM.fullmatch(team) or name == REJECTED:
        raise DefinitionError(
            f"team {team!r} cannot have a topic: use 1 to 200 letters, digits, '_' or '-', and not 'rejected'"
        )
    return Topic(name, "asset name", partitions, Cleanup.DELETE, _WEEK, fixed=False)


def run_commands_topic(job: str, partitions: int, name: str | None = None) -> Topic:
    """The topic on which the workers of `job` receive their commands, `run-commands.<job>` unless the job names one."""
    return Topic(
        name or RUN_COMMANDS_PREFIX + job,
        "partition key",
        partitions,
        Cleanup.DELETE,
        _WEEK,
        fixed=False,
        max_message_bytes=MAX_INTERNAL_BYTES + _SLACK,
        is_jobs_own=True,
    )
