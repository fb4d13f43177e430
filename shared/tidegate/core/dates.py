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
    decoded: set[datetime] = set()
    carried: set[datetime] = set()
    for date in contributed:
        if date.is_failed:
            return ResolvedDate(None)
        if date.at is not None:
            (decoded if date.decoded else carried).add(date.at)
    dates = tuple(sorted(decoded or carried))
    return ResolvedDate(dates[0]) if len(dates) == 1 else ResolvedDate(None, dates)
