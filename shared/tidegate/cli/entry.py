"""The `tidegate` command where the library alone is installed: says what is missing instead of failing on it."""

import sys


def main() -> None:
    try:
        from tidegate.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tidegate":
            raise
        sys.exit(f"error: the command line needs {error.name!r}: install tidegate[all]")
    run()
