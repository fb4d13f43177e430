"""What a measurement found: Markdown tables for people, one JSON object for programs, and the machine it ran on."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import machine

Row = Mapping[str, Any]
"""Column to what stands there: text, a number, or None for what was not measured."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that have the same columns, which say what their figures are in."""

    title: str
    rows: Sequence[Row]

    def markdown(self) -> list[str]:
        columns = list(self.rows[0]) if self.rows else []
        cells = [columns, *([_text(row[column]) for column in columns] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
            for row in cells
        ]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return [f"### {self.title}", "", *lines, ""] if self.rows else []


@dataclass(slots=True)
class Report:
    """One run of one measurement."""

    name: str
    about: str
    """What the figures include and what they do not."""
    options: Mapping[str, Any]
    machine: Mapping[str, Any] = field(default_factory=machine.describe)
    tables: list[Table] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why the figures are worth nothing, such as commands that are missing."""
    summary: Mapping[str, Any] | None = None
    """For programs, the last line of the output."""

    def lines(self) -> list[str]:
        """For people, but for the summary."""
        found = [f"## `python -m bench {self.name}`", "", self.about.strip(), ""]
        found += ["; ".join(f"{name} {value}" for name, value in self.machine.items()), ""]
        found += ["Options: " + ", ".join(f"{name} {value}" for name, value in self.options.items()), ""]
        for table in self.tables:
            found += table.markdown()
        found += [f"PROBLEM {each}" for each in self.problems]
        if self.summary is not None:
            found.append(json.dumps(self.summary))
        return found

    def to_json(self) -> str:
        data: dict[str, Any] = {
            "name": self.name,
            "about": self.about.strip(),
            "machine": self.machine,
            "options": self.options,
            "tables": {table.title: [dict(row) for row in table.rows] for table in self.tables},
            "problems": self.problems,
        }
        if self.summary is not None:
            data["summary"] = self.summary
        return json.dumps(data, indent=1, default=str)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON too")


def finish(report: Report, file: Path | None) -> None:
    """Print, write, and exit with 1 where there are problems."""
    if file is not None:
        file.write_text(report.to_json() + "\n", encoding="utf-8")
    print("\n".join(report.lines()), flush=True)
    if report.problems:
        sys.exit(1)


def note(text: str) -> None:
    """Say how far a run has come, apart from its results."""
    print(text, file=sys.stderr, flush=True)


def rounded(value: float | None, digits: int = 2) -> float | int | None:
    """For tables: whole numbers from 100 on, as nothing here is measured more finely; None for nan."""
    if value is None or isnan(value):
        return None
    return round(value) if abs(value) >= 100 else round(value, digits)


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(median(values))


def _text(value: Any) -> str:
    return "" if value is None else str(value)
