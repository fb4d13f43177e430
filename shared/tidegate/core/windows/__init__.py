"""Windows, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.windows.base import CalendarWindow, PeriodWindow, Window, WindowDirection
from tidegate.core.windows.day import DayWindow
from tidegate.core.windows.hour import HourWindow
from tidegate.core.windows.month import MonthWindow
from tidegate.core.windows.quarter import QuarterWindow
from tidegate.core.windows.rolling import RollingWindow
from tidegate.core.windows.segment import SegmentWindow
from tidegate.core.windows.week import WeekWindow
from tidegate.core.windows.year import YearWindow

__all__ = [
    "CalendarWindow",
    "DayWindow",
    "HourWindow",
    "MonthWindow",
    "PeriodWindow",
    "QuarterWindow",
    "RollingWindow",
    "SegmentWindow",
    "WeekWindow",
    "Window",
    "WindowDirection",
    "YearWindow",
]
