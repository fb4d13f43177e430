"""How full one asset's part of a round is, as people see it; services and simulations count alike."""

from collections.abc import Collection
from dataclasses import dataclass

from tidegate.definitions.routes import Route


@dataclass(frozen=True, slots=True)
class WindowCount:
    """One asset's part of a round."""

    asset: str
    """As the condition names it."""
    arrived: int
    expected: int
    needed: int
    """How many members the wait policy asks for."""
    missing: tuple[str, ...]
    """Members that are not in, by name, in window order."""


def window_count(
    asset: str, route: Route | None, key: str, arrived: Collection[int], window: tuple[int, int] | None
) -> WindowCount:
    """What is in of an asset, by the indexes of members, and what is missing from the round of a downstream key.

    `window` is the (size, needed) that the round was opened with, None where nothing of the asset is in. `route` is the
    asset's way into the job, None where no definition has it any more. Members go by number where the names are not
    those of this round: another definition opened it, or the window is never the same twice.
    """
    names = route.members(key) if route is not None else ()
    if window is None:
        size = len(names) or 1
        window = (size, route.needed(size) if route is not None else size)
    size, needed = window
    if len(names) != size:
        names = (asset,) if size == 1 else tuple(f"member {member}" for member in range(size))
    missing = tuple(name for member, name in enumerate(names) if member not in arrived)
    return WindowCount(asset, len(arrived), size, needed, missing)
