"""Latencies and their percentiles."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import ceil
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Thing = TypeVar("Thing")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed (nearest rank); nan where there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def matched(
    due: Iterable[tuple[Name, float]], came: Iterable[Thing], name_of: Callable[[Thing], Name]
) -> list[tuple[float, Thing]]:
    """What came, with the instant at which it was due: of equal names the first that came with the first that was due.

    Both in the order of time; what never came, or was never due, is left out.
    """
    waiting: dict[Name, deque[float]] = defaultdict(deque)
    for name, at in due:
        waiting[name].append(at)
    return [(queue.popleft(), each) for each in came if (queue := waiting[name_of(each)])]
