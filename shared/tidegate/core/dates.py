"""The partition date of a run (rule D2)."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple


class ContributedDate(NamedTuple):
    """One event's word on the date of a downstream key."""

    at: datetime | None
    decoded: bool
    """Whether a temporal mapper reads it from the key; otherwise the producer's own date, carried along."""
    is_failed: bool = False
    """Whether the mapper failed to read it: the date of the key is then not known at all."""


class ResolvedDate(NamedTuple):
    at: datetime | None
    conflict: tuple[datetime, ...] = ()
    """The dates that could not be reconciled, oldest first; empty where there was no conflict."""

    @property
    def message(self) -> str:
        """What the audit entry of a conflict says."""
        return "the run has no partition date: its events give " + ", ".join(
            at.isoformat() for at in self.conflict
        )


def resolve_partition_date(contributed: Iterable[ContributedDate]) -> ResolvedDate:
    """The one date that the contributions agree on, whatever their order.

    Dates read from the key come first: one distinct instant is the date, several are a conflict, and the carried
    ones never stand in for it, nor for one that a mapper failed to read. Without any, the carried dates decide in the
    same way; a missing one has no say.
    """
    contributed = tuple(contributed)
    if any(date.is_failed for date in contributed):
        return ResolvedDate(None)
    for decoded in (True, False):
        dates = sorted({date.at for date in contributed if date.decoded is decoded and date.at is not None})
        if len(dates) == 1:
            return ResolvedDate(dates[0])
        if dates:
            return ResolvedDate(None, tuple(dates))
    return ResolvedDate(None)
