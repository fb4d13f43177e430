"""What a schedule is, as far as every job needs it."""

from abc import ABC

from tidegate.core.plain import Plain


class Timetable(Plain, ABC, is_base=True):
    """When and on what a job runs."""
