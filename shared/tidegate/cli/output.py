"""How commands print tables: nothing is cut off, and nothing is wrapped where the output goes to a file or a pipe."""

import sys
from datetime import datetime
from typing import Final

import typer
from rich.console import Console
from rich.table import Table

_PIPED_WIDTH: Final = 1000


def make_console() -> Console:
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if is_terminal else _PIPED_WIDTH, soft_wrap=False)


def shown(at: datetime) -> str:
    """An instant to the second, in UTC, as it is."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def as_plain(value: object) -> str:
    """What `json.dumps` cannot write by itself, as ISO 8601."""
    assert isinstance(value, datetime)
    return value.isoformat()


def make_table(*columns: str) -> Table:
    """A table whose cells go on in the next line where they are too long."""
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def say_cut(shown: int, total: int) -> None:
    """On standard error, so that JSON stays whole: that `--limit` left some out."""
    if shown < total:
        typer.echo(f"{shown} of {total} are listed: --limit {total} lists all", err=True)
