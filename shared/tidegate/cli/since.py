"""`--since`: how far back a command looks."""

import re
from datetime import timedelta
from time import time
from typing import Any, Final

import typer

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)


def duration(text: str | timedelta) -> timedelta:
    """The time that a text such as 90s, 15m, 1h or 7d names."""
    if isinstance(text, timedelta):  # a default
        return text
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is no duration: use a number with s, m, h or d, as in 90s, 15m or 7d"
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def start_of(since: timedelta) -> int:
    """The instant so long ago, in ms since 1970."""
    return int((time() - since.total_seconds()) * 1000)


def in_words(since: timedelta) -> str:
    """A duration as `--since` takes it, in its largest whole unit."""
    seconds = int(since.total_seconds())
    return next(
        f"{seconds // size}{unit}"
        for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
        if seconds % size == 0
    )


def since_option(default: timedelta) -> Any:
    """The option of a command that looks so far back by default."""
    shown, help_text = in_words(default), "How far back to look: 90s, 15m, 1h, 7d."
    return typer.Option("--since", parser=duration, metavar="1h", help=help_text, show_default=shown)
