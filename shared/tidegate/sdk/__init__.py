"""What users' own code imports: publishing asset events, and running jobs when their rounds fire."""

from tidegate.sdk.errors import JobFailed
from tidegate.sdk.producer import AssetEventProducer
from tidegate.sdk.run import Run
from tidegate.sdk.worker import Worker

__all__ = ["AssetEventProducer", "JobFailed", "Run", "Worker"]
