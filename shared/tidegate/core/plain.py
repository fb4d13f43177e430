"""Definitions as plain data and back: `{"type": "DayWindow", ...fields that differ from the default}`.

Every mapper, window, wait policy, condition and timetable is a frozen dataclass registered under its class name, so
the plain form needs no code of its own. A class whose fields are not plain data overrides `serialize` and
`deserialize`, as in Airflow. A field with `metadata={"is_data": True}` holds somebody's own JSON and is left alone.
"""

from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, Self, TypeVar

from tidegate.core.errors import DefinitionError, DefinitionTypeError

type_registry: dict[str, type["Plain"]] = {}

T = TypeVar("T", bound="Plain")


class Plain:
    """Base of every value of a definition that travels as plain data."""

    type_name: ClassVar[str]

    def __init_subclass__(cls, *, is_base: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.type_name = cls.__name__
        if not is_base:  # data can name only what can be built
            type_registry[cls.type_name] = cls

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
            values[field.name] = value if field.metadata.get("is_data") else plain(value)
        return values

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Self:
        """The value whose `serialize` gave `data`; raises DefinitionError for a field that it does not have."""
        assert is_dataclass(cls), f"{cls.__name__} must be a dataclass or override deserialize"
        known = {field.name: field for field in fields(cls) if field.init}
        for name in data:
            if name not in known:
                raise DefinitionError(
                    f"{cls.__name__} has no field {name!r}: use {', '.join(sorted(known)) or 'none'}"
                )
        try:
            return cls(
                **{
                    name: value if known[name].metadata.get("is_data") else from_plain(value)
                    for name, value in data.items()
                }
            )
        except TypeError as error:
            if isinstance(error, DefinitionTypeError):
                raise
            raise DefinitionTypeError(f"{cls.__name__} cannot be built from {data!r}: {error}") from error


def plain(value: Any) -> Any:
    """`value` as JSON-ready data."""
    if isinstance(value, Plain):
        return {"type": value.type_name, **value.serialize()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def from_plain(data: Any) -> Any:
    """The value whose `plain` form is `data`; raises DefinitionError for an unknown type."""
    if isinstance(data, list):
        return tuple(from_plain(item) for item in data)
    if not isinstance(data, dict):
        return data
    if "type" not in data:
        if data.keys() == {"seconds"}:
            if not isinstance(seconds := data["seconds"], int | float):
                raise DefinitionTypeError(f"a duration must be a number of seconds, not {seconds!r}")
            return timedelta(seconds=seconds)
        return {key: from_plain(item) for key, item in data.items()}
    name = data["type"]
    if not isinstance(name, str) or name not in type_registry:
        raise DefinitionError(f"type {name!r} is not known: use one of {', '.join(sorted(type_registry))}")
    return type_registry[name].deserialize({key: value for key, value in data.items() if key != "type"})


def expect(value: Any, kind: type[T], field: str) -> T:
    """`value` if it is a `kind`; raises DefinitionTypeError that names the field otherwise."""
    if not isinstance(value, kind):
        raise DefinitionTypeError(f"{field} must be a {kind.__name__}, not {value!r}")
    return value
