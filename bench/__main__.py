"""`python -m bench NAME`: run one measurement."""

import argparse

from bench import compare, core, growth, pipeline, profile, relay, start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Tidegate on this machine.")
    names = parser.add_subparsers(dest="name", required=True)
    core.add_to(names.add_parser("core", help="keys to windows in one process: microseconds a key"))
    relay.add_to(names.add_parser("relay", help="the yardstick: a bare chain that decides nothing"))
    pipeline.add_to(
        names.add_parser("pipeline", help="the real services beside the relay: speed, cost, latency")
    )
    growth.add_to(names.add_parser("growth", help="the same with more pending members, and with more jobs"))
    profile.add_to(names.add_parser("profile", help="where the processor time of one service goes"))
    compare.add_to(names.add_parser("compare", help="relay and services in one line of JSON"))
    start.add_to(names.add_parser("start", help="how long `tidegate up` takes"))
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
