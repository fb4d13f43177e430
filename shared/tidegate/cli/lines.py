"""Files of lines that commands take, one JSON object each."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def open_lines(file: str) -> Iterator[IO[str]]:
    """The lines of a file, with or without a byte order mark; of standard input for "-"."""
    if file == "-":
        yield sys.stdin
    else:
        with Path(file).open(encoding="utf-8-sig") as lines:
            yield lines
