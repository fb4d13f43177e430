"""The `tidegate` command where the library alone is installed: says what is missing instead of failing on it."""

import sys

from tidegate.definitions.plugins import load_plugins


def main() -> None:
    try:
        from tidegate.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tidegate":
            raise
        sys.exit(f"error: the command line needs {error.name!r}: install tidegate[all]")
    for failure in load_plugins():
        print(
            f"warning: plugin {failure.source} is left out, since it failed: {failure.reason}",
            file=sys.stderr,
        )
    run()
