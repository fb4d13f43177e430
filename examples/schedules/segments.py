"""A run for three regions: when all are in, when any two are, when all but one are."""

from tidegate import (
    Asset,
    FixedKeyMapper,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    WaitForAll,
    WaitPolicy,
)


def regions(policy: WaitPolicy) -> PartitionedAssetTimetable:
    return PartitionedAssetTimetable(
        assets=Asset("regional_sales"),
        default_partition_mapper=RollupMapper(
            upstream_mapper=FixedKeyMapper("all_regions"),
            window=SegmentWindow(["us", "eu", "apac"]),
            wait_policy=policy,
        ),
    )


all_regions = Job("all_regions", schedule=regions(WaitForAll()))
any_two_regions = Job("any_two_regions", schedule=regions(MinimumCount(2)))
all_but_one_region = Job("all_but_one_region", schedule=regions(MinimumCount(-1)))
