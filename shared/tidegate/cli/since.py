"""`--since`: from when on a command looks."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from tidegate.cli.output import shown
from tidegate.core.instants import to_ms

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)

DEFAULT_SINCE: Final = "7d"
"""As long as events are remembered, unless the services are told otherwise (rule D5)."""

_OPTION: Final = typer.Option(
    "--since",
    metavar="AGO|TIME",
    help="From when on: so long ago, as 90s, 15m, 1h, 7d, or a time in ISO 8601, in UTC unless it has an offset.",
)
SinceOption = Annotated[str, _OPTION]
SinceTimeOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="From when on: a time in ISO 8601, in UTC unless it has an offset; everything unless it is given.",
    ),
]


def instant_of(since: str, now: datetime | None = None) -> datetime:
    """The instant that `--since` names; raises BadParameter where it names none."""
    text = since.strip()
    try:
        if (found := _DURATION.fullmatch(text)) is not None:
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"--since {since!r} is neither a duration nor a time: use 90s, 15m, 1h or 7d for so long ago, or ISO 8601"
            " such as 2026-03-10T09:00:00+00:00"
        ) from None


def time_of(since: str) -> datetime:
    """The instant that `--since` names, for what must be the same when it is done again; raises BadParameter."""
    at = instant_of(since)
    if _DURATION.fullmatch(since.strip()):
        raise typer.BadParameter(
            f"--since {since!r} would be another time when it is done again, and count events twice: give the time,"
            f" as in --since {at.isoformat(timespec='seconds')}"
        )
    return at


def start_of(since: str) -> int:
    """That instant in ms since 1970."""
    return to_ms(instant_of(since))


def nothing_since(since: str) -> str:
    """How an empty list ends: since when there is nothing, and what to do about it."""
    return f"since {shown(instant_of(since))}: look further back with --since, as in --since 30d"
