"""Jobs: what consumers declare (Airflow's DAG, as far as scheduling goes; rule D26, D29)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from tidegate.core.conditions import Leaf
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import Plain, expect, expect_flag, expect_text
from tidegate.core.timetables.base import Timetable, utc
from tidegate.definitions.asset import Asset, AssetAlias
from tidegate.definitions.schedules import Schedule, as_timetable

MAX_ID_CHARACTERS: Final = 200
_MADE: Final[ContextVar[list["Job"] | None]] = ContextVar("_MADE", default=None)
_ID: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class Job(Plain):
    """Something that runs when its schedule says so.

    `schedule` is a timetable or one of Airflow's short forms for one. `run_commands_topic` replaces the default
    `run-commands.<id>`. Assets in `outlets` are updated by every run that succeeds, aliases there stand for what a run
    adds to them; naming an asset in `inlets` makes it known. Start and end date bound the runs that time gives, both
    inclusive; without `catchup` only the latest of those that were missed is run. No more than `max_active_runs` are
    active at once, which needs workers that report how a run ended; the others wait in order. A job that is created
    starts with the events that come then; `replay_from`, "beginning" or the time when the broker received them, has it
    take stored ones too, once (rule D7). Raises DefinitionError for an id outside letters, digits, `.`, `_`, `-`, or
    over 200 characters, and for a limit below 1.
    """

    id: str
    schedule: Timetable | None = None
    inlets: Sequence[Leaf] = ()
    outlets: Sequence[Asset | AssetAlias] = ()
    team: str | None = None
    run_commands_topic: str | None = None
    description: str = field(default="", compare=False)
    start_date: datetime | None = None
    end_date: datetime | None = None
    catchup: bool = False
    replay_from: Literal["beginning"] | datetime | None = None
    max_active_runs: int | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,
            schedule: Schedule = None,
            inlets: Sequence[Leaf] = (),
            outlets: Sequence[Asset | AssetAlias] = (),
            team: str | None = None,
            run_commands_topic: str | None = None,
            description: str = "",
            start_date: datetime | None = None,
            end_date: datetime | None = None,
            catchup: bool = False,
            replay_from: Literal["beginning"] | datetime | None = None,
            max_active_runs: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise DefinitionTypeError(f"Job.id must be text, not {self.id!r}")
        if not _ID.fullmatch(self.id) or len(self.id) > MAX_ID_CHARACTERS:
            raise DefinitionError(
                f"Job.id {self.id[:60]!r} must have 1 to {MAX_ID_CHARACTERS} letters, digits, '.', '_' or '-'"
            )
        object.__setattr__(self, "schedule", as_timetable(self.schedule))
        if self.schedule is not None:
            self.schedule.validate()
        inlets = tuple(expect(one, Leaf, "Job.inlets") for one in _listed(self.inlets, "Job.inlets"))
        object.__setattr__(self, "inlets", inlets)
        outlets = tuple(_outlet(one) for one in _listed(self.outlets, "Job.outlets"))
        object.__setattr__(self, "outlets", outlets)
        if self.team is not None and not expect_text(self.team, "Job.team").strip():
            raise DefinitionError(f"Job.team {self.team!r} is blank: leave it out for a job without a team")
        expect_text(self.description, "Job.description")
        expect_flag(self.catchup, "Job.catchup")
        limit = self.max_active_runs
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise DefinitionTypeError(
                f"Job.max_active_runs must be a whole number or None, not {limit!r:.200}"
            )
        if limit is not None and limit < 1:
            raise DefinitionError(
                f"Job.max_active_runs {limit} would let no run start: use 1 or more, leave it out for no limit, or"
                " pause the job"
            )
        for name in ("start_date", "end_date", "replay_from"):
            at = getattr(self, name)
            if name == "replay_from" and at == "beginning":
                continue
            if at is not None and not isinstance(at, datetime):
                other = '"beginning" or ' if name == "replay_from" else ""
                raise DefinitionTypeError(
                    f"Job.{name} must be {other}an aware datetime (as plain data"
                    f" {{'instant': '2026-03-10T00:00:00+00:00'}}), not {at!r:.200}"
                )
            if at is not None:
                object.__setattr__(self, name, utc(at, f"Job.{name}"))
        topic = self.run_commands_topic
        if topic is not None and not _TOPIC.fullmatch(expect_text(topic, "Job.run_commands_topic")):
            raise DefinitionError(
                f"Job.run_commands_topic {topic!r:.300} is no topic name: use letters, digits, '.', '_'"
                " and '-'"
            )
        if (made := _MADE.get()) is not None:
            made.append(self)

    @property
    def active_runs_limit(self) -> int | None:
        """How many runs may be active at once: the smaller of what the job and its schedule say; None for no limit."""
        limits = (self.max_active_runs, getattr(self.schedule, "active_runs_limit", None))
        return min((each for each in limits if each is not None), default=None)

    def serialize(self) -> dict[str, Any]:
        data = super().serialize()
        if self.description:
            data["description"] = self.description
        return data


@contextmanager
def jobs_made() -> Iterator[list[Job]]:
    """Every job that the block makes, in order, whether or not it keeps them."""
    made: list[Job] = []
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)


def _listed(value: object, field_name: str) -> Iterable[object]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DefinitionTypeError(f"{field_name} must be a list of assets, not {value!r:.200}")
    return value


def _outlet(value: object) -> Asset | AssetAlias:
    if isinstance(value, Asset | AssetAlias):
        return value
    raise DefinitionTypeError(f"Job.outlets must hold assets and aliases, not {value!r:.200}")
