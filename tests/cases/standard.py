"""The standard definitions of the cases, and short words for what comes of a simulation."""

from datetime import UTC, datetime

from tidegate import (
    Asset,
    DayWindow,
    FixedKeyMapper,
    IdentityMapper,
    Job,
    PartitionedAssetTimetable,
    PartitionMapper,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfHourMapper,
    WaitPolicy,
    WeekWindow,
)
from tidegate.core.conditions import Condition, Leaf
from tidegate.core.rounds import RerunPolicy
from tidegate.simulate import Audit, Simulation

REGIONS = ("us", "eu", "apac")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def job(
    id: str,
    assets: Condition,
    mapper: PartitionMapper | None = None,
    config: dict[Leaf, PartitionMapper] | None = None,
    *,
    rerun_policy: RerunPolicy | None = None,
    team: str | None = None,
) -> Job:
    schedule = PartitionedAssetTimetable(assets, mapper or IdentityMapper(), config or {}, rerun_policy)
    return Job(id, schedule, team=team)


def d_id() -> Job:
    return job("copy", Asset("a"))


def d_and() -> Job:
    return job("join", Asset("a") & Asset("b"))


def d_day() -> Job:
    return job("day_sum", Asset("hourly"), RollupMapper(StartOfHourMapper(), DayWindow()))


def d_week(policy: WaitPolicy | None = None, rerun_policy: RerunPolicy | None = None) -> Job:
    mapper = StartOfDayMapper()
    rollup = (
        RollupMapper(mapper, WeekWindow()) if policy is None else RollupMapper(mapper, WeekWindow(), policy)
    )
    return job("week_sum", Asset("daily"), rollup, rerun_policy=rerun_policy)


def d_seg() -> Job:
    rollup = RollupMapper(FixedKeyMapper("all_regions"), SegmentWindow(REGIONS))
    return job("all_regions", Asset("regional"), rollup)


def runs(simulation: Simulation) -> list[tuple[str, str | None]]:
    """(job, partition key) of every run, in order."""
    return [(run.job, run.partition_key) for run in simulation.runs]


def kinds(simulation: Simulation) -> list[str]:
    return [entry.kind.value for entry in simulation.audit]


def audited(simulation: Simulation, kind: str) -> list[Audit]:
    return [entry for entry in simulation.audit if entry.kind == kind]


def waiting(simulation: Simulation) -> list[tuple[str, str | None, int, int, tuple[str, ...]]]:
    """(job, partition key, m, n, missing) of every open round."""
    return [
        (
            pending.job,
            pending.partition_key,
            sum(each.arrived for each in pending.windows),
            sum(each.expected for each in pending.windows),
            tuple(name for each in pending.windows for name in each.missing),
        )
        for pending in simulation.pending()
    ]
