"""Spans of time in definitions: a timedelta, or a relativedelta where they follow the calendar."""

from datetime import datetime, timedelta
from typing import TypeAlias

from dateutil.relativedelta import relativedelta

from tidegate.core.errors import DefinitionError, DefinitionTypeError

Span: TypeAlias = timedelta | relativedelta

_SOME_DAY = datetime(2000, 1, 1)


def check_span(span: object, field: str, *, zero: bool) -> None:
    """Raises DefinitionTypeError for what is no span, DefinitionError for one below zero, or at zero unless `zero`."""
    if not isinstance(span, timedelta | relativedelta):
        raise DefinitionTypeError(f"{field} must be a timedelta or a relativedelta, not {span!r}")
    after = _SOME_DAY + span
    if after < _SOME_DAY or (after == _SOME_DAY and not zero):
        raise DefinitionError(f"{field} {span!r} must be {'zero or more' if zero else 'more than zero'}")


def fixed_seconds(span: Span) -> float | None:
    """Its length, None where it follows the calendar and has no one length."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if span.years or span.months:
        return None
    return float(((span.days * 24 + span.hours) * 60 + span.minutes) * 60 + span.seconds)
