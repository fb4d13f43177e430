"""The whole of Tidegate in memory, for trying out definitions: the same core as the services, and no broker."""

from tidegate.simulate.event import Audit, Happened, PendingRound, Run, WindowCount
from tidegate.simulate.model import START, Simulation
from tidegate.simulate.script import EventFields, Player

__all__ = [
    "START",
    "Audit",
    "EventFields",
    "Happened",
    "PendingRound",
    "Player",
    "Run",
    "Simulation",
    "WindowCount",
]
