"""`python -m tidegate.runtime.held PACKAGE`: a service that is loaded, and begins after a line of standard input.

Loading takes a service most of its start; meanwhile whoever started it makes the topics.
"""

import gc
import sys
from importlib import import_module


def main() -> None:
    gc.disable()  # what importing makes is kept, and looking through it took time
    service = import_module(f"{sys.argv[1]}.main")
    gc.freeze()
    gc.enable()
    sys.stdin.readline()
    service.main()


if __name__ == "__main__":
    main()
