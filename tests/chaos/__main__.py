"""`python -m tests.chaos`: chaos runs by seed; exits 1 when anything was lost, doubled or not explained."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.driver import Report, Stage, run
from tests.chaos.fleet import EVERYBODY
from tests.chaos.jobs import FACTS
from tests.chaos.launch import SABOTAGES
from tests.chaos.plan import EVERY, KILLS, plan
from tests.chaos.segments import VICTIMS, segments_plan, segments_scenario
from tests.chaos.series import run_series, seeds_in


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} are not known: use {','.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="gives the events and the faults")
    which.add_argument(
        "--seeds", type=seeds_in, metavar="A-B", help="one run after the other, and their sums"
    )
    parser.add_argument(
        "--plan",
        choices=("mixed", "segments"),
        default="mixed",
        help="jobs of every kind, or rounds of many segments",
    )
    parser.add_argument("--events", type=int, default=20_000, help="of every seed")
    parser.add_argument("--rounds", type=int, default=1_000, help="of --plan segments, which has no --events")
    parser.add_argument("--segments", type=int, default=300, help="of each of these rounds")
    parser.add_argument("--rate", type=float, default=2_000.0, help="at most so many events a second")
    parser.add_argument("--kills", type=int, default=20, help="of every seed")
    parser.add_argument(
        "--faults",
        type=lambda text: _names(text, (*KILLS, *EVERY)),
        default=(),
        help=f"only these, of {','.join((*KILLS, *EVERY))}",
    )
    parser.add_argument(
        "--jobs", type=lambda text: _names(text, tuple(FACTS)), default=tuple(FACTS), help="only these jobs"
    )
    parser.add_argument(
        "--victims",
        type=lambda text: _names(text, EVERYBODY),
        default=EVERYBODY,
        help="only these services die",
    )
    parser.add_argument("--replicas", type=int, default=2, help="processes of every service")
    parser.add_argument(
        "--sabotage", choices=tuple(SABOTAGES), help="break the product: must end with exit code 1"
    )
    parser.add_argument("--folder", type=Path, help="keep data and logs of all processes there")
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("chaos-report.txt"),
        help="with --seeds: where the line of every seed is added as soon as it is known",
    )
    given = parser.parse_args()
    if given.folder is not None and given.folder.exists() and any(given.folder.iterdir()):
        parser.error(f"--folder {given.folder} holds something already: a run starts from nothing")

    def run_one(seed: int, servers: Stage, folder: Path) -> Report:
        if given.plan == "segments":
            planned = segments_plan(seed, given.rounds, given.segments, given.kills)
            scenario, victims = segments_scenario(given.rounds, given.segments), VICTIMS
        else:
            planned = plan(seed, given.events, given.kills, given.faults, jobs=given.jobs)
            scenario, victims = None, given.victims
        report = run(
            planned,
            servers,
            folder,
            jobs=given.jobs,
            replicas=given.replicas,
            sabotage=given.sabotage,
            victims=victims,
            most_per_s=given.rate,
            scenario=scenario,
            log=lambda line: print(line, flush=True),
        )
        print("\n".join(report.lines()), flush=True)
        return report

    with tempfile.TemporaryDirectory(prefix="tidegate-chaos-") as made:
        report_file = None if given.seeds is None else given.report
        is_right = run_series(given.seeds or (given.seed,), run_one, given.folder or Path(made), report_file)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
