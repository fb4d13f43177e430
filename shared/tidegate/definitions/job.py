"""Jobs: what consumers declare (Airflow's DAG, as far as scheduling goes; rule D26, D29)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import Plain, expect
from tidegate.core.timetables.base import Timetable
from tidegate.definitions.asset import Asset

MAX_ID_CHARACTERS: Final = 200
_ID: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class Job(Plain):
    """Something that runs when its schedule says so.

    `run_commands_topic` replaces the default `run-commands.<id>`. Assets in `outlets` are updated by every run that
    succeeds; naming an asset in `inlets` makes it known. Raises DefinitionError for an id outside letters, digits,
    `.`, `_`, `-`, or over 200 characters.
    """

    id: str
    schedule: Timetable | None = None
    inlets: Sequence[Asset] = ()
    outlets: Sequence[Asset] = ()
    team: str | None = None
    run_commands_topic: str | None = None
    description: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise DefinitionTypeError(f"Job.id must be text, not {self.id!r}")
        if not _ID.fullmatch(self.id) or len(self.id) > MAX_ID_CHARACTERS:
            raise DefinitionError(
                f"Job.id {self.id[:60]!r} must have 1 to {MAX_ID_CHARACTERS} letters, digits, '.', '_' or '-'"
            )
        if self.schedule is not None:
            expect(self.schedule, Timetable, "Job.schedule")
        if self.team is not None:
            raise DefinitionError(f"Job.team {self.team!r} has no effect yet: leave it out")
        for name in ("inlets", "outlets"):
            object.__setattr__(
                self, name, tuple(expect(one, Asset, f"Job.{name}") for one in getattr(self, name))
            )
        if self.run_commands_topic is not None and not _TOPIC.fullmatch(self.run_commands_topic):
            raise DefinitionError(
                f"Job.run_commands_topic {self.run_commands_topic!r} is no topic name:"
                " use letters, digits, '.', '_', '-'"
            )

    def serialize(self) -> dict[str, Any]:
        data = super().serialize()
        if self.description:
            data["description"] = self.description
        return data
