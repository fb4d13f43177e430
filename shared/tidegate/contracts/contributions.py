"""`contributions`: the rollup's one input log. Packed: one record is a batch from one partition of accepted-events."""

from typing import Any, NamedTuple

from tidegate.contracts.message import Message


class JobRef(NamedTuple):
    """The job that contributions are for, as it was when they were mapped."""

    id: str
    incarnation: str
    """Tells a job that was deleted and created again from the one before."""
    revision: int
    """Offset of the definition on `definitions`."""
    rollups: tuple[int, ...]
    """Indexes of the assets that wait in a rollup; where there is one, every asset is a member of the round (D23)."""
    assets: tuple[str, ...]
    """The assets as the schedule names them: by name, URI or alias; contributions give indexes into this list."""
    clauses: tuple[tuple[int, ...], ...]
    """Sets of asset indexes, each of which lets a round fire."""
    rerun_policy: str | None = None
    """`ignore`, `refire` or `new_round`; None for the default of each key (core/rounds.py)."""


class MemberEvent(NamedTuple):
    """The event behind a contribution."""

    key: str | None
    id: str
    source: str
    at: int
    date: int | None
    """The producer's own date, microseconds since 1970."""
    extra: dict[str, Any] | None
    asset: str = ""
    """Name of the asset, which the schedule may name otherwise."""


class Contribution(NamedTuple):
    """One event's effect on one (job, downstream key)."""

    offset: int
    ordinal: int
    """With `offset` the coordinates on the source partition: strictly rising within one source (rule E1)."""
    job: int
    """Index into the batch's jobs."""
    event: int
    """Index into the batch's events."""
    key: str
    """Downstream key; empty for the one round of a job without partitions."""
    asset: int
    member: int
    size: int
    needed: int
    decoded: int | None
    """The date that the asset's mapper reads from `key`, microseconds since 1970."""
    carried: int | None
    """The producer's date as the mapper carries it along."""
    is_date_failed: bool = False
    """Whether the mapper failed to read a date: the run then has none."""


class ContributionBatch(Message):
    """A record of `contributions`."""

    v: int = 1
    source: str
    """Where the batch came from, `<topic>/<partition>`."""
    jobs: tuple[JobRef, ...]
    events: tuple[MemberEvent, ...]
    entries: tuple[Contribution, ...]
