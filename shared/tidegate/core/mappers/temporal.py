"""Mappers that read a key as a time and name the calendar period that contains it."""

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from tidegate.core.errors import DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.mappers.base import PartitionMapper
from tidegate.core.mappers.forms import PLAIN_LENGTHS, Form, check_placeholders, form_of
from tidegate.core.periods import DAY, HOUR, MONTH, QUARTER, WEEK, YEAR, Period
from tidegate.core.zones import instant, local, zone_name, zone_named

DEFAULT_INPUT_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"

# rule D1: dates, and times to the microsecond with an optional offset.
_DATE: Final = r"\d{4}-\d{2}-\d{2}"
_TIME: Final = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)?"
_ISO: Final = re.compile(rf"{_DATE}(?P<time>T{_TIME}(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?)?", re.ASCII)

_DIRECTIVE: Final = re.compile(r"%[a-zA-Z]|\{quarter\}")


@dataclass(frozen=True, kw_only=True)
class TemporalMapper(PartitionMapper, is_base=True):
    """Maps a key to the calendar period of `timezone` that contains it.

    A key without an offset is wall-clock time in `timezone`: a repeated hour is its first occurrence, an hour that
    was skipped is the one that follows the change. The key of a repeated hour's second occurrence carries its offset
    (rule F08). Raises DefinitionError for an unknown zone.
    """

    period: ClassVar[Period]
    default_output_format: ClassVar[str]
    expected_decoded_type = datetime

    timezone: str = "UTC"
    input_format: str = DEFAULT_INPUT_FORMAT
    output_format: str = ""
    """Format of downstream keys; empty for the default of the period."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "timezone", zone_name(self.timezone))
        zone_named(self.timezone)
        if self.output_format is None:  # as Airflow has it
            object.__setattr__(self, "output_format", "")
        for name in ("input_format", "output_format"):
            if not isinstance(value := getattr(self, name), str):
                raise DefinitionTypeError(
                    f"{type(self).__name__}.{name} must be a strftime format, not {value!r}"
                )

    def warnings(self) -> tuple[str, ...]:
        name = type(self).__name__
        found = []
        if not _DIRECTIVE.search(self.input_format):
            found.append(
                f"{name}.input_format {self.input_format!r} holds no directive such as %Y, so that keys are not read in"
                " it: use a form such as '%Y-%m-%d'"
            )
        if self.output_format and not _DIRECTIVE.search(self.output_format):
            found.append(
                f"{name}.output_format {self.output_format!r} holds no directive such as %Y, so that all periods have"
                f" one key: use a form such as {self.default_output_format!r}"
            )
        return (*super().warnings(), *found)

    @property
    def zone(self) -> ZoneInfo:
        return zone_named(self.timezone)

    def to_downstream(self, key: str) -> str:
        return self.encode(self.start_of(key))

    def start_of(self, key: str) -> datetime:
        """The first instant of the period that an upstream key lies in, in UTC."""
        return self._start(key, self.decode(key))

    def to_partition_date(self, downstream_key: str) -> datetime:
        """The first instant of the period that the key names, in UTC."""
        start = self._start(downstream_key, self.decode(downstream_key, is_own=True))
        if not self.output_format or self.period.rank <= WEEK.rank or self.encode(start) == downstream_key:
            return start
        # A longer period that is named by its first week may begin after that week did: 2025-W01 on 2024-12-30.
        try:
            after = self.period.next(start, self.zone)
        except (OverflowError, ValueError):
            return start
        return after if self.encode(after) == downstream_key else start

    def decode(self, key: str, *, is_own: bool = False) -> datetime:
        """The instant that a key names: `input_format`, the mapper's own form, or the ISO forms of D1.

        Of a key that two of these read, an upstream one has the first; with `is_own`, which says that the mapper itself
        named it, the own form comes before `input_format`. Raises InvalidPartitionKeyError.
        """
        is_iso = self._is_iso(key)
        try:
            if is_iso and self._reads_iso_alike:  # the same as below, ten times as fast
                return instant(datetime.fromisoformat(key), self.zone)
            if key.isascii() and key == key.strip():
                given = (form_of(self.input_format),)
                for form in (*self._own_forms, *given) if is_own else (*given, *self._own_forms):
                    if (wall := form.read(key)) is not None:
                        return instant(wall, self.zone)
            if is_iso:
                return instant(datetime.fromisoformat(key), self.zone)
        except ValueError as error:
            raise self._unreadable(key) from error
        except OverflowError as error:
            raise self.out_of_range(key) from error
        raise self._unreadable(key)

    @property
    def plain_lengths(self) -> frozenset[int]:
        """The lengths of upstream keys of which `plain_wall` gives the wall clock that `decode` reads."""
        if type(self).decode is not TemporalMapper.decode:  # a mapper of the user's reads its keys itself
            return frozenset()
        if self._reads_iso_alike:
            return PLAIN_LENGTHS if self.period.rank >= DAY.rank else PLAIN_LENGTHS - {len("YYYY-MM-DD")}
        return frozenset({form_of(self.input_format).plain_length} - {0})

    def encode(self, start: datetime) -> str:
        """The key of the period that starts at an instant."""
        return self.name(local(start, self.zone))

    def name(self, wall: datetime) -> str:
        """The key of an aware wall-clock time, also of another zone; a repeated hour has its offset with it."""
        forms = self._own_forms
        return forms[-1 if wall.fold and self.period.rank < DAY.rank else 0].render(wall)

    def decode_downstream(self, downstream_key: str) -> datetime:
        """The wall clock of `timezone` at the start of the period, without a zone, as windows in Airflow take it."""
        return local(self.to_partition_date(downstream_key), self.zone).replace(tzinfo=None, fold=0)

    def encode_upstream(self, decoded: datetime) -> str:
        """The key that a producer gives a time, in `input_format`; one without an offset is of `timezone`."""
        return form_of(self.input_format).render(local(instant(decoded, self.zone), self.zone))

    def out_of_range(self, key: str) -> InvalidPartitionKeyError:
        return InvalidPartitionKeyError(
            f"partition key {key!r} lies at an end of the calendar, where {type(self).__name__} finds no whole period:"
            " use a year from 2 to 9998"
        )

    @property
    def _own_forms(self) -> tuple[Form, ...]:
        """The form of keys, and where it has no offset, the one that tells a repeated hour apart."""
        form = self.output_format or self.default_output_format
        return _own_forms(form, self.period)

    @property
    def _reads_iso_alike(self) -> bool:
        """Whether a key in an ISO form names the same instant in whatever form it is read."""
        return self.input_format == DEFAULT_INPUT_FORMAT and (
            not self.output_format or self.output_format.startswith(self.default_output_format)
        )

    def _start(self, key: str, at: datetime) -> datetime:
        try:
            return self.period.floor(at, self.zone)
        except (OverflowError, ValueError) as error:
            raise self.out_of_range(key) from error

    def _is_iso(self, key: str) -> bool:
        found = _ISO.fullmatch(key)
        return found is not None and (found["time"] is not None or self.period.rank >= DAY.rank)

    def _unreadable(self, key: str) -> InvalidPartitionKeyError:
        return InvalidPartitionKeyError(
            f"partition key {key!r} is not a time that {type(self).__name__} reads: use the form {self.input_format!r}"
            f", for example {datetime(2026, 3, 10, 9).strftime(self.input_format)!r}"
        )


@lru_cache(maxsize=1024)
def _own_forms(text: str, period: Period) -> tuple[Form, ...]:
    form = form_of(text, quarter=period is QUARTER)
    return (form,) if form.has_offset or period.rank >= DAY.rank else (form, form_of(text + "%z"))


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
class StartOfWeekMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026-03-09 (W11)`: weeks start on Monday and have ISO numbers."""

    period = WEEK
    default_output_format = "%Y-%m-%d (W%V)"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_placeholders("StartOfWeekMapper.output_format", self.output_format)


@dataclass(frozen=True, kw_only=True)
class StartOfMonthMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026-03`."""

    period = MONTH
    default_output_format = "%Y-%m"


@dataclass(frozen=True, kw_only=True)
class StartOfQuarterMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026-Q1`; `{quarter}` in `output_format` stands for the quarter, 1 to 4."""

    period = QUARTER
    default_output_format = "%Y-Q{quarter}"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_placeholders("StartOfQuarterMapper.output_format", self.output_format, known="quarter")


@dataclass(frozen=True, kw_only=True)
class StartOfYearMapper(TemporalMapper):
    """`2026-03-10T09:37:51` -> `2026`."""

    period = YEAR
    default_output_format = "%Y"


MAPPER_OF_PERIOD: Final[dict[str, type[TemporalMapper]]] = {
    mapper.period.name: mapper
    for mapper in (
        StartOfHourMapper,
        StartOfDayMapper,
        StartOfWeekMapper,
        StartOfMonthMapper,
        StartOfQuarterMapper,
        StartOfYearMapper,
    )
}
