"""Formats of keys: strftime in both directions, further than strptime can read."""

import re
from datetime import date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Final

from tidegate.core.errors import DefinitionError, InvalidPartitionKeyError

_DIRECTIVE: Final = re.compile(r"%(.)|\{quarter\}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_WEEKS: Final = re.compile(r"%[VUW]")
_PATTERNS: Final = {
    "Y": r"\d{4}",
    "G": r"\d{4}",
    "m": r"\d\d",
    "d": r"\d\d",
    "H": r"\d\d",
    "M": r"\d\d",
    "S": r"\d\d",
    "V": r"\d\d",
    "U": r"\d\d",
    "W": r"\d\d",
    "j": r"\d{3}",
    "f": r"\d{6}",
    "u": r"[1-7]",
    "z": r"[+-]\d{4}",
    "B": r"[^\W\d_]+",
    "b": r"[^\W\d_]+",
    "A": r"[^\W\d_]+",
    "a": r"[^\W\d_]+",
    "quarter": r"[1-4]",
}


_PLAIN: Final = {"%Y-%m-%d": 10, "%Y-%m-%dT%H": 13, "%Y-%m-%dT%H:%M": 16, "%Y-%m-%dT%H:%M:%S": 19}
PLAIN_LENGTHS: Final = frozenset(_PLAIN.values())


def plain_wall(key: str) -> datetime | None:
    """The time that a key of one of PLAIN_LENGTHS names if it is written as `isoformat` does; None for any other."""
    try:
        wall = datetime.fromisoformat(key)
    except ValueError:
        return None
    return wall if wall.isoformat().startswith(key) else None


class Form:
    """One format. With `quarter`, the placeholder `{quarter}` stands for the quarter of the year."""

    def __init__(self, text: str, quarter: bool) -> None:
        self.text = text
        self.has_offset = "%z" in text
        self.plain_length = _PLAIN.get(text, 0)
        """The length of keys that `plain_wall` reads as this form does; 0 where the form is another."""
        self._quarter = quarter
        self._fields = _fields_of(text)
        self._needs_check = bool(_WEEKS.search(text))
        self._strptime = not (quarter and "{quarter}" in text) and _strptime_reads(text)
        self._pattern = None if self._strptime else _pattern_of(text)

    def render(self, wall: datetime) -> str:
        """The key of a wall-clock time; raises InvalidPartitionKeyError for a placeholder that means nothing."""
        if self._fields is not None:  # the same as below, several times as fast
            return self._fields.format(wall)
        text = self.text
        if wall.year < 1000:  # strftime leaves out leading zeros of a year
            text = text.replace("%Y", f"{wall.year:04}")
        rendered = wall.strftime(text)
        if not self._quarter:
            return rendered
        rendered = rendered.replace("{quarter}", str((wall.month + 2) // 3))
        if "{" in rendered or "}" in rendered:
            raise InvalidPartitionKeyError(
                f"output_format {self.text!r} has a placeholder that is not known: use {{quarter}} and"
                " strftime directives"
            )
        return rendered

    def read(self, key: str) -> datetime | None:
        """The wall-clock time that a key of this form names, aware where it gives an offset; None for other keys.

        Where the form has week numbers or a quarter, they must fit the date (rule F16).
        """
        if len(key) == self.plain_length and (plain := plain_wall(key)) is not None:
            return plain  # as strptime does, ten times as fast
        if self._strptime:
            try:
                at = datetime.strptime(key, self.text)
            except (ValueError, re.error):  # re.error: a part that stands twice can be written, but not read
                return None
            return at if not self._needs_check or self.render(at).casefold() == key.casefold() else None
        found = self._pattern.fullmatch(key) if self._pattern else None
        if found is None:
            return None
        try:
            at = _time_of(found.groupdict())
            return at if self.render(at) == key else None
        except ValueError:
            return None


@lru_cache(maxsize=1024)
def form_of(text: str, *, quarter: bool = False) -> Form:
    return Form(text, quarter)


def check_placeholders(field: str, text: str, *, known: str = "") -> None:
    """Refuse a format of which no reader could tell the parts apart; raises DefinitionError.

    A placeholder with the name `known` stands for one digit.
    """
    names = [found.group(1) for found in _PLACEHOLDER.finditer(text)]
    parts = names + [found.group(1) for found in re.finditer(r"%([^%])", text)]
    if wrong := next((name for name in names if not name.isidentifier()), None):
        problem = f"the placeholder {{{wrong}}} is no name"
    elif "" in names:
        problem = "the placeholder {} has no name"
    elif repeated := next((part for part in parts if parts.count(part) > 1), None):
        problem = f"{repeated!r} stands in it twice"
    elif re.search(r"\{[^{}]*\}\{[^{}]*\}", text.replace(f"{{{known}}}", "0")):
        problem = "two placeholders stand side by side"
    else:
        return
    raise DefinitionError(
        f"{field} {text!r} cannot be read back, since {problem}: use each part once, with text between"
    )


_FIELDS: Final = {
    "%Y": "{0.year:04}",
    "%m": "{0.month:02}",
    "%d": "{0.day:02}",
    "%H": "{0.hour:02}",
    "%M": "{0.minute:02}",
    "%S": "{0.second:02}",
}


def _fields_of(text: str) -> str | None:
    """A format for `str.format` that writes what `text` does, None where it takes more than the usual directives."""
    parts = re.split(r"(%[YmdHMS])", text)
    if any("%" in part or "{" in part or "}" in part for part in parts[::2]):
        return None
    return "".join(_FIELDS.get(part, part) for part in parts)


def _strptime_reads(text: str) -> bool:
    try:
        datetime.strptime(datetime(2026, 3, 10).strftime(text), text)
    except (ValueError, re.error):
        # What lacks an offset in the sample is still readable with one.
        return "%z" in text and _strptime_reads(text.replace("%z", ""))
    return True


def _pattern_of(text: str) -> re.Pattern[str] | None:
    """The pattern of keys, None where a directive is not known, stands twice, or the parts give no date."""
    pattern, position, seen = "", 0, set()
    for found in _DIRECTIVE.finditer(text):
        pattern += re.escape(text[position : found.start()])
        position = found.end()
        name = found.group(1) or "quarter"
        if name == "%":
            pattern += "%"
        elif name in seen or name not in _PATTERNS:
            return None
        else:
            seen.add(name)
            pattern += f"(?P<{name}>{_PATTERNS[name]})"
    return re.compile(pattern + re.escape(text[position:]), re.ASCII)


def _time_of(parts: dict[str, str]) -> datetime:
    """The earliest time that the parts of a key leave open; raises ValueError where they leave the date open."""
    number = {name: int(part) for name, part in parts.items() if part.isdigit()}
    day = _date_of(number)
    at = datetime.combine(
        day, time(number.get("H", 0), number.get("M", 0), number.get("S", 0), number.get("f", 0))
    )
    if "z" not in parts:
        return at
    offset = timedelta(hours=int(parts["z"][1:3]), minutes=int(parts["z"][3:]))
    return at.replace(tzinfo=timezone(-offset if parts["z"][0] == "-" else offset))


def _date_of(number: dict[str, int]) -> date:
    if "G" in number and "V" in number:
        return date.fromisocalendar(number["G"], number["V"], number.get("u", 1))
    if "Y" not in number:
        raise ValueError("no year")
    first = date(number["Y"], 1, 1)
    if "m" in number:
        return first.replace(month=number["m"], day=number.get("d", 1))
    if "j" in number:
        return first + timedelta(days=number["j"] - 1)
    if "quarter" in number:
        return first.replace(month=3 * number["quarter"] - 2)
    if "W" in number:  # weeks from Monday; the days before the first one are week 0
        return first + timedelta(days=7 * number["W"] - first.weekday() - 7 * (first.weekday() == 0))
    if "V" in number:  # the year of the calendar with a week of the ISO year: a week may fit at both ends
        mondays = [date.fromisocalendar(year, number["V"], 1) for year in (first.year, first.year + 1)]
        (monday,) = [each for each in mondays if each.year == first.year]
        return monday
    if number.keys() & {"U", "d"}:
        raise ValueError("the week or the day alone says no date")
    return first
