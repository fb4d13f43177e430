"""Mappers that read a key as a time and name the calendar period that contains it."""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from tidegate.core.errors import DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.mappers.base import PartitionMapper
from tidegate.core.periods import DAY, HOUR, MONTH, Period
from tidegate.core.zones import instant, local, zone_named

DEFAULT_INPUT_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"

# rule D1: dates, and times to the microsecond with an optional offset.
_DATE: Final = r"\d{4}-\d{2}-\d{2}"
_TIME: Final = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)?"
_ISO: Final = re.compile(rf"{_DATE}(?P<time>T{_TIME}(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TemporalMapper(PartitionMapper, is_base=True):
    """Maps a key to the calendar period of `timezone` that contains it.

    A key without an offset is wall-clock time in `timezone`: a repeated hour is its first occurrence, an hour that
    was skipped is the one that follows the change. Raises DefinitionError for an unknown zone.
    """

    period: ClassVar[Period]
    default_output_format: ClassVar[str]

    timezone: str = "UTC"
    input_format: str = DEFAULT_INPUT_FORMAT
    output_format: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "timezone", _zone_name(self.timezone))
        zone_named(self.timezone)
        for name in ("input_format", "output_format"):
            if not isinstance(value := getattr(self, name), str):
                raise DefinitionTypeError(
                    f"{type(self).__name__}.{name} must be a strftime format, not {value!r}"
                )

    @property
    def zone(self) -> ZoneInfo:
        return zone_named(self.timezone)

    def to_downstream(self, key: str) -> str:
        return self.encode(self.to_partition_date(key))

    def to_partition_date(self, downstream_key: str) -> datetime:
        """The first instant of the period that the key names, in UTC."""
        at = self.decode(downstream_key)
        try:
            return self.period.floor(at, self.zone)
        except OverflowError as error:
            raise self.out_of_range(downstream_key) from error

    def decode(self, key: str) -> datetime:
        """The instant that a key names: `input_format`, the mapper's own form, or the ISO forms of D1.

        Raises InvalidPartitionKeyError.
        """
        is_iso = self._is_iso(key)
        try:
            if is_iso and self.input_format == DEFAULT_INPUT_FORMAT:  # the same as below, ten times as fast
                return instant(datetime.fromisoformat(key), self.zone)
            if key.isascii() and key == key.strip():
                for form in (self.input_format, self._output_format):
                    # re.error: a format that names a part twice can be written, but not read.
                    with suppress(ValueError, re.error):
                        return instant(datetime.strptime(key, form), self.zone)
            if is_iso:
                return instant(datetime.fromisoformat(key), self.zone)
        except ValueError as error:
            raise self._unreadable(key) from error
        except OverflowError as error:
            raise self.out_of_range(key) from error
        raise self._unreadable(key)

    def encode(self, start: datetime) -> str:
        """The key of the period that starts at an instant."""
        return self._format(start, self._output_format)

    def encode_upstream(self, at: datetime) -> str:
        """The key that a producer gives an instant, in `input_format`."""
        return self._format(at, self.input_format)

    def out_of_range(self, key: str) -> InvalidPartitionKeyError:
        return InvalidPartitionKeyError(
            f"partition key {key!r} lies at an end of the calendar, where {type(self).__name__} finds no whole period:"
            " use a year from 2 to 9998"
        )

    def _format(self, at: datetime, form: str) -> str:
        wall = local(at, self.zone)
        if wall.year < 1000:  # strftime leaves out leading zeros of a year
            form = form.replace("%Y", f"{wall.year:04}")
        return wall.strftime(form)

    @property
    def _output_format(self) -> str:
        return self.output_format or self.default_output_format

    def _is_iso(self, key: str) -> bool:
        found = _ISO.fullmatch(key)
        return found is not None and (found["time"] is not None or self.period.rank >= DAY.rank)

    def _unreadable(self, key: str) -> InvalidPartitionKeyError:
        return InvalidPartitionKeyError(
            f"partition key {key!r} is not a time that {type(self).__name__} reads: use the form {self.input_format!r}"
            f", for example {datetime(2026, 3, 10, 9).strftime(self.input_format)!r}"
        )


def _zone_name(zone: str | tzinfo) -> str:
    if isinstance(zone, str):
        return zone
    if name := getattr(zone, "key", None) or getattr(zone, "name", None):
        return str(name)
    if zone is UTC:
        return "UTC"
    raise DefinitionTypeError(f"timezone must be an IANA name or a zone that has one, not {zone!r}")


@dataclass(frozen=True, kw_only=True)
class StartOfHourMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026-03-10T09`."""

    period = HOUR
    default_output_format = "%Y-%m-%dT%H"


@dataclass(frozen=True, kw_only=True)
class StartOfDayMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026-03-10`."""

    period = DAY
    default_output_format = "%Y-%m-%d"


@dataclass(frozen=True, kw_only=True)
class StartOfMonthMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026-03`."""

    period = MONTH
    default_output_format = "%Y-%m"


MAPPER_OF_PERIOD: Final[dict[str, type[TemporalMapper]]] = {
    mapper.period.name: mapper for mapper in (StartOfHourMapper, StartOfDayMapper, StartOfMonthMapper)
}
