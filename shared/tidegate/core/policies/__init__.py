"""Wait policies, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.policies.base import WaitPolicy
from tidegate.core.policies.deadline import Deadline
from tidegate.core.policies.minimum_count import MinimumCount
from tidegate.core.policies.wait_for_all import WaitForAll

__all__ = ["Deadline", "MinimumCount", "WaitForAll", "WaitPolicy"]
