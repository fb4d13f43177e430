"""Windows, one idea a file; a new one is a new file here and a line below."""

from tidegate.core.windows.base import PeriodWindow, Window
from tidegate.core.windows.day import DayWindow
from tidegate.core.windows.month import MonthWindow

__all__ = ["DayWindow", "MonthWindow", "PeriodWindow", "Window"]
