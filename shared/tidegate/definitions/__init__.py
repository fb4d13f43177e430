"""What producers and consumers declare, and its way to and from plain data."""

from tidegate.definitions.asset import Asset
from tidegate.definitions.job import Job
from tidegate.definitions.load import Definitions, load_definitions

__all__ = ["Asset", "Definitions", "Job", "load_definitions"]
