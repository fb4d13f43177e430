"""A week's model is applied to seven days: to those that begin with its Monday, or to those that end with it."""

from tidegate import (
    Asset,
    FanOutMapper,
    Job,
    PartitionedAssetTimetable,
    StartOfWeekMapper,
    WeekWindow,
    Window,
)

weekly_model = Asset("weekly_model")

apply_forward = Job(
    "apply_forward",
    schedule=PartitionedAssetTimetable(
        assets=weekly_model,
        default_partition_mapper=FanOutMapper(upstream_mapper=StartOfWeekMapper(), window=WeekWindow()),
    ),
)

apply_backward = Job(
    "apply_backward",
    schedule=PartitionedAssetTimetable(
        assets=weekly_model,
        default_partition_mapper=FanOutMapper(
            upstream_mapper=StartOfWeekMapper(), window=WeekWindow(direction=Window.Direction.BACKWARD)
        ),
    ),
)
