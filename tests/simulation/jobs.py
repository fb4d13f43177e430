"""The jobs of schedules: for the services as definitions, for the oracle in words that share nothing with the core.

A definition says in its description which of these it is, as `name` or `name#n`: what comes behind "#" changes nothing.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from tidegate import (
    Asset,
    FixedKeyMapper,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    PartitionMapper,
    QuarterWindow,
    RollupMapper,
    SegmentWindow,
    StartOfQuarterMapper,
    WaitForAll,
    WaitPolicy,
)
from tidegate.core.rounds import RerunPolicy

KEYS: Final = ("x", "{y}")
MONTHS: Final = tuple(f"2024-{month:02}-01" for month in range(1, 7))
ALL: Final = "all"
"""The downstream key of segments."""

A, B, C, D = (Asset(name) for name in "abcd")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a definition means."""

    assets: str
    """One letter each; all are needed."""
    shape: Literal["whole", "each", "quarter", "segments"]
    """One round for all, one for every key, one for the months of a quarter, one for a list of keys."""
    segments: tuple[str, ...] = ()
    needed: int = 0
    """How many members of a window are enough."""
    policy: Literal["ignore", "refire", "new_round"] | None = None
    deadline: tuple[int, str] | None = None
    """(seconds after the first member, what happens then)."""

    @property
    def is_windowed(self) -> bool:
        return self.shape in ("quarter", "segments")

    @property
    def rerun_policy(self) -> str:
        if not self.is_windowed:
            return "new_round"
        return self.policy or ("ignore" if self.shape == "quarter" else "new_round")

    def place(self, key: str | None) -> str | None:
        """The downstream key that an event with `key` counts for, None where it counts for none."""
        if self.shape == "whole" or key is None:
            return "" if self.shape == "whole" and key is None else None
        if self.shape == "quarter":
            return f"2024-Q{(int(key[5:7]) - 1) // 3 + 1}" if key in MONTHS else None
        if self.shape == "segments":
            return ALL if key in self.segments else None
        return key

    def why_not(self, key: str | None) -> str:
        """How it is audited that an event with `key` counts for none."""
        if self.shape == "whole":
            return "partitioned-event"
        if key is None:
            return "no-partition-key"
        return "not-a-member" if self.shape == "segments" else "mapping-failed"

    def is_satisfied(self, members: "set[tuple[str, str]]") -> bool:
        """Whether a round fires that has these (asset, key of the event)."""
        if self.is_windowed:
            return len(members) >= self.needed
        return {asset for asset, _ in members} == set(self.assets)


def _quarter(policy: WaitPolicy) -> PartitionMapper:
    return RollupMapper(StartOfQuarterMapper(timezone="UTC"), QuarterWindow(), policy)


def _segments(*names: str, policy: WaitPolicy) -> PartitionMapper:
    return RollupMapper(FixedKeyMapper(ALL), SegmentWindow(names), policy)


def _after(policy: WaitPolicy, seconds: int, then: str) -> WaitPolicy:
    return policy.or_after(timedelta(seconds=seconds), then=then)


_THREE: Final = ("x", "{y}", "z")  # no event has the last of them
_ALL: Final = WaitForAll()

VARIANTS: Final[dict[str, tuple[Any, Meaning]]] = {
    "added": (PartitionedAssetTimetable(A), Meaning("a", "each")),
    "both": (PartitionedAssetTimetable(A & C), Meaning("ac", "each")),
    "both-a": (PartitionedAssetTimetable(A), Meaning("a", "each")),
    "each": (PartitionedAssetTimetable(A), Meaning("a", "each")),
    "plain": ([D], Meaning("d", "whole")),
    "quarter": (PartitionedAssetTimetable(B, _quarter(_ALL)), Meaning("b", "quarter", needed=3)),
    "quarter-month": (PartitionedAssetTimetable(B), Meaning("b", "each")),
    "again": (
        PartitionedAssetTimetable(B, _quarter(MinimumCount(2)), rerun_policy=RerunPolicy.REFIRE),
        Meaning("b", "quarter", needed=2, policy="refire"),
    ),
    "again-anew": (
        PartitionedAssetTimetable(B, _quarter(MinimumCount(2)), rerun_policy=RerunPolicy.NEW_ROUND),
        Meaning("b", "quarter", needed=2, policy="new_round"),
    ),
    "again-late": (
        PartitionedAssetTimetable(B, _quarter(_after(_ALL, 5, "fire")), rerun_policy=RerunPolicy.REFIRE),
        Meaning("b", "quarter", needed=3, policy="refire", deadline=(5, "fire")),
    ),
    "late": (
        PartitionedAssetTimetable(A, _segments(*_THREE, policy=_after(_ALL, 4, "fire"))),
        Meaning("a", "segments", _THREE, 3, deadline=(4, "fire")),
    ),
    "late-two": (
        PartitionedAssetTimetable(A, _segments(*KEYS, policy=_ALL)),
        Meaning("a", "segments", KEYS, 2),
    ),
    "late-one": (
        PartitionedAssetTimetable(A, _segments("x", "z", policy=_after(_ALL, 6, "drop"))),
        Meaning("a", "segments", ("x", "z"), 2, deadline=(6, "drop")),
    ),
    "fails": (
        PartitionedAssetTimetable(
            C, _segments(*_THREE, policy=_after(_ALL, 3, "fail")), rerun_policy=RerunPolicy.IGNORE
        ),
        Meaning("c", "segments", _THREE, 3, "ignore", (3, "fail")),
    ),
    "fails-drops": (
        PartitionedAssetTimetable(
            C, _segments(*_THREE, policy=_after(_ALL, 5, "drop")), rerun_policy=RerunPolicy.REFIRE
        ),
        Meaning("c", "segments", _THREE, 3, "refire", (5, "drop")),
    ),
}

JOBS: Final[dict[str, tuple[str, ...]]] = {
    "both": ("both", "both-a"),
    "each": ("each",),
    "plain": ("plain",),
    "quarter": ("quarter", "quarter-month"),
    "again": ("again", "again-anew", "again-late"),
    "late": ("late", "late-two", "late-one"),
    "fails": ("fails", "fails-drops"),
}
"""What each job may be, first what it is at the beginning."""

LIMITS: Final = {"each": 1}
"""How many runs of a job may be active at once."""

ADDED: Final = "added"
"""A job defined on the way; it comes before the others, so that every contribution of an event moves by one place."""


def definition(job: str, variant: str, number: int) -> Job:
    """A job as one of its variants; definitions with different numbers differ in nothing that matters."""
    limit = LIMITS.get(job)
    return Job(job, VARIANTS[variant][0], description=f"{variant}#{number}", max_active_runs=limit)


def meaning_of(description: str) -> tuple[str, Meaning]:
    """The name of the variant that a description tells of, and what it means."""
    name = description.partition("#")[0]
    return name, VARIANTS[name][1]
