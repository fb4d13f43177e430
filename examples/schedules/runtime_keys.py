"""A job that finds out while it runs which partitions it updates; another one runs for each of them.

A simulation does not run code: the events file says what the run of `extract` would publish.
"""

from tidegate import Asset, Job, PartitionedAssetTimetable, PartitionedAtRuntime
from tidegate.sdk import Run

regional_extract = Asset("regional_extract")

extract = Job("extract", schedule=PartitionedAtRuntime(), outlets=[regional_extract])
load = Job("load", schedule=PartitionedAssetTimetable(assets=regional_extract))


def run_extract(run: Run) -> None:
    """What a worker does: `@worker.job("extract")`."""
    run.outlet_events[regional_extract].add_partitions(["us", "eu", "us"])
