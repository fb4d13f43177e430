"""The schedule of a job that runs when assets are updated, without partitions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.conditions import AssetAll, Condition
from tidegate.core.plain import expect
from tidegate.core.timetables.base import UntimedTimetable


@dataclass(frozen=True)
class AssetTriggeredTimetable(UntimedTimetable):
    """Run when `assets` is satisfied by events since the last run; a list of assets means all of them."""

    assets: Condition

    description = "Triggered by assets"
    periodic = False

    if TYPE_CHECKING:

        def __init__(self, assets: Condition | Iterable[Condition]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "assets", as_condition(self.assets, f"{type(self).__name__}.assets"))

    @property
    def summary(self) -> str:
        return "Asset"

    @property
    def asset_condition(self) -> Condition:
        return self.assets


def as_condition(assets: Condition | Iterable[Condition], field: str) -> Condition:
    """A condition as it is; a list of assets as all of them.

    Raises DefinitionError for more ways to be satisfied than a round can be judged by.
    """
    if isinstance(assets, set | frozenset):
        assets = sorted(assets, key=repr)  # a set has another order in every process
    condition = AssetAll(*assets) if isinstance(assets, list | tuple) else expect(assets, Condition, field)
    condition.alternatives()
    return condition
