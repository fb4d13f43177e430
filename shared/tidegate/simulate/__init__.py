"""The whole of Tidegate in memory, for trying out definitions: the same core as the services, and no broker."""

from tidegate.simulate.event import Audit
from tidegate.simulate.job import PendingRound, Run
from tidegate.simulate.model import Simulation

__all__ = ["Audit", "PendingRound", "Run", "Simulation"]
