"""Values of classes that users write without `@dataclass`."""

from typing import Any


def compare_by_state(cls: type) -> None:
    """Give a class with an `__init__` of its own equality by its whole state.

    The equality that it would inherit looks at the fields of the base alone, so that two values which differ only in
    what their own `__init__` keeps would be one. A dataclass gets its own equality from its decorator afterwards.
    """
    if "__init__" in cls.__dict__ and "__eq__" not in cls.__dict__:
        cls.__eq__ = _equal  # type: ignore[method-assign, assignment]
        cls.__hash__ = _hash  # type: ignore[method-assign, assignment]


def _equal(self: Any, other: object) -> bool:
    return type(self) is type(other) and vars(self) == vars(other)


def _hash(self: Any) -> int:
    return hash(type(self))  # what the state holds need not be hashable
