"""Latencies and their percentiles."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeVar

Name = TypeVar("Name")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed (nearest rank); nan where there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def latencies(
    due: Iterable[tuple[Name, float]], came: Iterable[tuple[Name, float]]
) -> list[tuple[float, float]]:
    """When each thing was due and how long after that it came, of equal names the first after the first.

    Both in the order of time; what never came, or was never due, is left out.
    """
    waiting: dict[Name, deque[float]] = defaultdict(deque)
    for name, at in due:
        waiting[name].append(at)
    found = []
    for name, at in came:
        if waiting[name]:
            since = waiting[name].popleft()
            found.append((since, at - since))
    return found
