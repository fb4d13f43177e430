"""`python -m bench NAME`: run one measurement."""

import argparse

from bench import core


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Tidegate on this machine.")
    names = parser.add_subparsers(dest="name", required=True)
    core.add_to(names.add_parser("core", help="keys to windows in one process: microseconds a key"))
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
