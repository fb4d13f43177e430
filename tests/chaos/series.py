"""Chaos runs one after the other, each on servers of its own, and what they come to."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.driver import Report, Stage, stage


def seeds_in(text: str) -> tuple[int, ...]:
    """From `A-B` all seeds between the two, both included; raises ValueError."""
    first, _, last = text.partition("-")
    seeds = tuple(range(int(first), int(last or first) + 1))
    if not seeds:
        raise ValueError(f"{text!r} holds no seeds: give the lower one first")
    return seeds


@dataclass(slots=True)
class Total:
    """What several runs came to."""

    reports: list[Report] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    """Seeds of runs that came to no verdict."""

    @property
    def is_right(self) -> bool:
        return not self.failed and all(report.is_right for report in self.reports)

    def line(self) -> str:
        """What programs read."""
        every, verdicts = self.reports, [report.verdict for report in self.reports]
        figures = {
            "seeds": len(every),
            "events": sum(report.events for report in every),
            "kills": sum(report.kills.total() for report in every),
            "rollbacks": sum(report.rollbacks for report in every),
            "commands": sum(verdict.commands for verdict in verdicts),
            "lost": sum(verdict.lost for verdict in verdicts),
            "doubled": sum(verdict.doubled for verdict in verdicts),
            "unexplained": sum(verdict.unexplained for verdict in verdicts),
            "longest_stall_s": f"{max((report.longest_stall_s for report in every), default=0.0):.1f}",
        }
        found = " ".join(f"{name}={figure}" for name, figure in figures.items())
        return f"{found} failed={','.join(map(str, self.failed))}" if self.failed else found


def run_series(
    seeds: Sequence[int],
    run_one: Callable[[int, Stage, Path], Report],
    folder: Path,
    report_file: Path | None,
) -> bool:
    """Run every seed, and return whether all went right; with a file, also print and note what they came to.

    A Kafka that has seen many runs takes long to come back, which is no fault of ours: each run has a new one.
    """
    total = Total()
    for seed in seeds:
        try:
            with stage(folder / f"servers-{seed}") as servers:
                report = run_one(seed, servers, folder / f"seed-{seed}")
            total.reports.append(report)
            line = f"{report.line()} rollbacks={report.rollbacks} took_s={report.took_s:.0f}"
        except Exception as error:
            if report_file is None:
                raise
            traceback.print_exc()
            total.failed.append(seed)
            line = f"seed={seed} came to no verdict: {type(error).__name__}"
        if report_file is not None:
            with report_file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    if report_file is not None:
        print(total.line(), flush=True)
    return total.is_right
