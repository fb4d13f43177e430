"""Definitions as plain data and back: `{"type": "DayWindow", ...fields that differ from the default}`.

Every mapper, window, wait policy, condition and timetable is a frozen dataclass registered under its class name, so the
plain form needs no code of its own. A class whose fields are not plain data overrides `serialize` and `deserialize`, as
in Airflow; so does one with a field that holds somebody's own JSON, which is left alone. Times and time spans in fields
travel as `{"seconds": 90.0}`, `{"relativedelta": {...}}` and `{"instant": "2026-03-10T09:00:00+00:00"}`.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, Final, Self, TypeVar

from dateutil.relativedelta import relativedelta

from tidegate.core.errors import DefinitionError, DefinitionTypeError, TidegateError, UnknownTypeError

type_registry: dict[str, type] = {}
"""What the `type` of plain data may name: classes that have `serialize` and `deserialize`."""

T = TypeVar("T")

_RELATIVE: Final = (
    *("years", "months", "days", "hours", "minutes", "seconds", "microseconds"),
    *("year", "month", "day", "hour", "minute", "second", "microsecond"),
)


def register_type(cls: type) -> None:
    """Let plain data name a class by its `type_name`, which is the class's name unless the class says otherwise.

    Raises DefinitionError where the name belongs to a type of Tidegate itself.
    """
    name = cls.__dict__.get("type_name", cls.__name__)
    cls.type_name = name  # type: ignore[attr-defined]
    there = type_registry.get(name)
    if there is not None and is_own(there) and not is_own(cls):
        raise DefinitionError(
            f"{cls.__module__}.{cls.__qualname__} has the name of a type of Tidegate, {name!r}: rename it, or give it"
            " a type_name of its own"
        )
    type_registry[name] = cls


def is_own(cls: type) -> bool:
    """Whether a class is part of Tidegate."""
    return cls.__module__.partition(".")[0] == "tidegate"


class Plain:
    """Base of every value of a definition that travels as plain data."""

    type_name: ClassVar[str]

    def __init_subclass__(cls, *, is_base: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if is_base:  # data can name only what can be built
            cls.type_name = cls.__name__
        else:
            register_type(cls)

    def serialize(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as plain data."""
        assert is_dataclass(self), f"{type(self).__name__} must be a dataclass or override serialize"
        values = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if not field.init or (field.default is not MISSING and value == field.default):
                continue
            if field.default_factory is not MISSING and value == field.default_factory():
                continue
            values[field.name] = plain(value)
        return values

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Self:
        """The value whose `serialize` gave `data`; raises DefinitionError for a field that it does not have."""
        assert is_dataclass(cls), f"{cls.__name__} must be a dataclass or override deserialize"
        check_fields(cls, data)
        try:
            return cls(**{name: from_plain(value) for name, value in data.items()})
        except TypeError as error:
            if isinstance(error, DefinitionTypeError):
                raise
            raise DefinitionTypeError(
                f"{cls.__name__} cannot be built from {data!r:.200}: {error}"
            ) from error


def plain(value: Any) -> Any:
    """`value` as JSON-ready data."""
    kind: Any = getattr(value, "plain_type", type(value))
    if (name := getattr(kind, "type_name", None)) and type_registry.get(name) is kind:
        return {"type": name, **_serialized(value)}
    if isinstance(value, Plain):
        raise DefinitionError(f"{type(value).__name__} is not registered: plain data cannot name it")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, relativedelta):
        return {"relativedelta": {name: part for name in _RELATIVE if (part := getattr(value, name))}}
    if isinstance(value, datetime):
        return {"instant": value.isoformat()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def _serialized(value: Any) -> dict[str, Any]:
    data = value.serialize()
    if not isinstance(data, dict):
        raise DefinitionTypeError(f"{type(value).__name__}.serialize must give a dict, not {data!r:.200}")
    if "type" in data:
        raise DefinitionError(
            f"{type(value).__name__} has a field 'type', which plain data has for the type's own name: rename it"
        )
    return data


def from_plain(data: Any) -> Any:
    """The value whose `plain` form is `data`.

    Raises DefinitionError for an unknown type or for data nested too deeply, and it or DefinitionTypeError where a type
    cannot be built from its data, whatever the type itself raises.
    """
    try:
        return _from_plain(data)
    except RecursionError:
        raise DefinitionError("the definition is nested too deeply, or holds itself") from None


def _from_plain(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(from_plain(item) for item in data)
    if not isinstance(data, dict):
        return data
    if "type" not in data:
        if len(data) == 1 and (read := _TIMES.get(next(iter(data)))) is not None:
            return read(next(iter(data.values())))
        return {key: from_plain(item) for key, item in data.items()}
    name = data["type"]
    if not isinstance(name, str) or name not in type_registry:
        near = get_close_matches(str(name), type_registry)
        raise UnknownTypeError(
            f"type {name!r:.200} is not known: install the plugin that brings it, or use"
            f" {', '.join(near) if near else 'one of ' + ', '.join(sorted(type_registry))}"
        )
    fields_of = {key: value for key, value in data.items() if key != "type"}
    try:
        return type_registry[name].deserialize(fields_of)  # type: ignore[attr-defined]
    except TidegateError:
        raise
    except TypeError as error:  # a `deserialize` of its own, or one that a plugin brings
        raise DefinitionTypeError(f"{name} cannot be built from {fields_of!r:.200}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise DefinitionError(f"{name} cannot be built from {fields_of!r:.200}: {what}") from error


def _duration(seconds: Any) -> timedelta:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise DefinitionTypeError(f"a duration must be a number of seconds, not {seconds!r:.200}")
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise DefinitionError(f"a duration of {seconds!r:.200} seconds is out of range: {error}") from error


def _relative(parts: Any) -> relativedelta:
    if not isinstance(parts, dict):
        raise DefinitionTypeError(f"a relativedelta must be an object of its parts, not {parts!r:.200}")
    for name, part in parts.items():
        if name not in _RELATIVE:
            raise DefinitionError(f"a relativedelta has no part {name!r:.200}: use {', '.join(_RELATIVE)}")
        if isinstance(part, bool) or not isinstance(part, int):
            raise DefinitionTypeError(f"{name} of a relativedelta must be a whole number, not {part!r:.200}")
    return relativedelta(**parts)


def _instant(text: Any) -> datetime:
    if not isinstance(text, str):
        raise DefinitionTypeError(f"an instant must be text in ISO 8601, not {text!r:.200}")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise DefinitionError(
            f"an instant must be text in ISO 8601 such as '2026-03-10T09:00:00+00:00', not {text!r:.200}"
        ) from error


_TIMES: Final[dict[str, Callable[[Any], Any]]] = {
    "seconds": _duration,
    "relativedelta": _relative,
    "instant": _instant,
}


def expect(value: Any, kind: type[T], field: str) -> T:
    """`value` if it is a `kind`; raises DefinitionTypeError that names the field otherwise."""
    if not isinstance(value, kind):
        name = kind.__name__
        wanted = getattr(kind, "described", None) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
        if isinstance(value, type) and issubclass(value, kind):
            raise DefinitionTypeError(
                f"{field} must be {wanted}, not the class {value.__name__}: write {value.__name__}(...)"
            )
        raise DefinitionTypeError(f"{field} must be {wanted}, not {value!r:.200}")
    return value


def check_fields(kind: type, data: Iterable[str]) -> None:
    """Raises DefinitionError for a field in plain data that a dataclass does not have."""
    known = sorted(field.name for field in fields(kind) if field.init)
    for name in data:
        if name not in known:
            raise DefinitionError(
                f"{kind.__name__} has no field {name!r:.200}: use {', '.join(known) or 'none'}"
            )


def expect_flag(value: object, field: str) -> bool:
    """`value` if it is true or false; raises DefinitionTypeError that names the field otherwise."""
    if not isinstance(value, bool):
        raise DefinitionTypeError(f"{field} must be true or false, not {value!r:.200}")
    return value


def expect_text(value: object, field: str) -> str:
    """`value` if it is text; raises DefinitionTypeError that names the field otherwise."""
    if not isinstance(value, str):
        raise DefinitionTypeError(f"{field} must be text, not {value!r:.200}")
    return value
