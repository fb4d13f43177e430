"""`contributions`: the rollup's one input log; whatever changes a round is a record on it.

Contributions are packed: one record is a batch from one partition of accepted-events. Control records stand beside.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, NamedTuple, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

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
    deadlines: tuple[tuple[int, str, str] | None, ...] = ()
    """By asset (milliseconds, then, since) of its wait policy's deadline (rule R4); empty where there is none."""
    routing: str = ""
    """A digest of all that decides where events count (contracts/definitions.py): a revision with the routing of the
    one before moves no round (rule R6). Empty in records of before, which are of another routing than any."""


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
    team: str | None = None
    aliases: tuple[str, ...] = ()
    """As in accepted-events: what it takes to map the event again (rule R6)."""


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
    ends: int | None = None
    """When the window's own period ends, milliseconds since 1970, where a deadline counts from there."""
    also: tuple[int, ...] = ()
    """The other assets of the job by which the event counts for the same key, ascending (B060)."""


class ContributionBatch(Message):
    """A record of `contributions`: packed contributions."""

    kind: Literal["contributions"] = "contributions"
    v: int = 1
    source: str
    """Where the batch came from, `<topic>/<partition>`; what was mapped again comes from
    `contributions/<partition>#<shard>/again`."""
    is_remapped: bool = False
    """Whether the events waited in a round of an older definition, or were mapped by it (rule R6): of two events with
    one key the newer one then stays, whichever comes first."""
    is_replayed: bool = False
    """Whether the events are history that the job takes (rule D7). They too never take the place of newer ones."""
    jobs: tuple[JobRef, ...]
    events: tuple[MemberEvent, ...]
    entries: tuple[Contribution, ...]

    def to_bytes_with(self, entries: Iterable[str]) -> bytes:
        """As `to_bytes` of a batch that has none itself, with entries that are JSON already."""
        without = self.to_bytes()
        end = b"[]}"
        assert without.endswith(end)
        return b"%b[%b]}" % (without[: -len(end)], ",".join(entries).encode())


class DefinitionChange(Message):
    """A record of `contributions`: from here on the job has another revision (rule R6).

    The owner of the partition appends one per job and partition when its view shows the revision. Read again it is
    nothing.
    """

    kind: Literal["definition"] = "definition"
    v: int = 1
    job: str
    revision: int
    """Offset on `definitions` of what changed or deleted the job."""
    routing: str = ""
    """As in the job's contributions; empty where it was deleted."""

    @property
    def is_deleted(self) -> bool:
        """Whether it deleted the job, which is then forgotten in time."""
        return not self.routing


class RoundControl(Message):
    """A record of `contributions` about one round, named by its opening record: for another it is nothing (R4)."""

    v: int = 1
    job: str
    incarnation: str
    key: str
    opened: str
    """Where its first contribution stands on the log, "offset.ordinal"."""


class DeadlineReached(RoundControl):
    """The round has waited long enough by the clock of the partition's owner, which acts once it reads this."""

    kind: Literal["deadline"] = "deadline"
    then: Literal["fire", "fail", "drop"]


class OperatorAction(RoundControl):
    """What a person does to a round: fire it as it is, discard it, or withdraw one event from it."""

    kind: Literal["fire", "discard", "withdraw"]
    id: str
    """Random; the audit entries of one action have the same ids however often it is read."""
    by: str
    """Who it was, as people are known where it was done."""
    event_id: str | None = None
    """The event to withdraw."""


ContributionsRecord = ContributionBatch | DefinitionChange | DeadlineReached | OperatorAction

_READER: Final[TypeAdapter[ContributionsRecord]] = TypeAdapter(
    Annotated[ContributionsRecord, Field(discriminator="kind")]
)


def _plain(kind: type) -> Any:
    """The type of tuples that hold what a kind of named tuples does, all of it."""
    return tuple[tuple(get_type_hints(kind).values())]  # type: ignore[misc]


class _PlainBatch(ContributionBatch):
    """A batch as it is written today, with every value of every entry in its place.

    To fill named tuples by their arguments takes pydantic twice as long as to check plain ones.
    """

    events: list[_plain(MemberEvent)]  # type: ignore[assignment, valid-type]
    entries: list[_plain(Contribution)]  # type: ignore[assignment, valid-type]


def read_contributions_record(raw: bytes) -> ContributionsRecord:
    """The message in a record of `contributions`; raises pydantic.ValidationError."""
    try:
        plain = _PlainBatch.model_validate_json(raw)
    except ValidationError:  # anything else, or of an older version, or wrong: the models have the last word
        return _READER.validate_json(raw)
    new = tuple.__new__
    return ContributionBatch.model_construct(
        v=plain.v,
        source=plain.source,
        is_remapped=plain.is_remapped,
        is_replayed=plain.is_replayed,
        jobs=plain.jobs,
        events=tuple([new(MemberEvent, each) for each in plain.events]),
        entries=tuple([new(Contribution, each) for each in plain.entries]),
    )
