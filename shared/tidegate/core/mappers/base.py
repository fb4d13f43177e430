"""What a partition mapper is: the way from an upstream key to downstream keys."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

from tidegate.core.errors import DefinitionError, DefinitionTypeError, FanOutExceededError
from tidegate.core.plain import Plain, expect
from tidegate.core.state import compare_by_state

MAX_DOWNSTREAM_KEYS: Final = 1000
"""How many downstream keys one upstream key may give at most, whatever a mapper allows."""


class Placement(NamedTuple):
    """Where one upstream key counts: a downstream key, and the member of its window that the key stands for."""

    key: str
    member: int
    """Index of the member in the window, from 0."""
    size: int
    """How many members the window has."""
    needed: int
    """How many of them its wait policy asks for; more than `size` where that can never be met."""


@dataclass(frozen=True)
class PartitionMapper(Plain, ABC, is_base=True):
    """Turns an upstream partition key into downstream keys (AIP-76). Frozen, hashable, free of I/O and of clocks.

    A mapper of your own needs `to_downstream`. To stand in a rollup with a window over other things than text, it also
    defines `decode_downstream` and `encode_upstream`, always both, and says in `expected_decoded_type` what they give.
    One with parameters is a frozen dataclass, or has `serialize` and `deserialize`.
    """

    is_rollup: ClassVar[bool] = False
    expected_decoded_type: ClassVar[type] = str
    """What `decode_downstream` gives and `encode_upstream` takes."""

    max_downstream_keys: int | None = field(default=None, kw_only=True)
    """How many downstream keys one upstream key may give; a key that would give more gives none, and an audit entry."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        decodes = cls.decode_downstream is not PartitionMapper.decode_downstream
        encodes = cls.encode_upstream is not PartitionMapper.encode_upstream
        if decodes is not encodes:
            there, missing = ("decode_downstream", "encode_upstream")[:: 1 if decodes else -1]
            raise DefinitionTypeError(
                f"{cls.__name__} defines {there} without {missing}: the two are each other's inverse, so define both or"
                " neither"
            )
        compare_by_state(cls)

    def __post_init__(self) -> None:
        cap = self.max_downstream_keys
        if cap is not None and (not isinstance(cap, int) or cap < 1):
            raise DefinitionError(
                f"{type(self).__name__}.max_downstream_keys {cap!r} must be a whole number from 1, or None for the"
                f" limit of {MAX_DOWNSTREAM_KEYS}"
            )

    @abstractmethod
    def to_downstream(self, key: str) -> str | Iterable[str]:
        """The downstream key or keys of `key`; raises InvalidPartitionKeyError for a key that it cannot map."""

    def placements(self, key: str) -> tuple[Placement, ...]:
        """Every window member that `key` counts for; a mapper that is no rollup has windows of one member.

        Raises FanOutExceededError where there are more than allowed.
        """
        return tuple(Placement(downstream, 0, 1, 1) for downstream in self.downstream_keys(key))

    def downstream_keys(self, key: str) -> tuple[str, ...]:
        """The distinct downstream keys of `key`, in order; raises FanOutExceededError for more than allowed."""
        keys = self.to_downstream(key)
        return self.capped((keys,) if isinstance(keys, str) else tuple(dict.fromkeys(keys)))

    def capped(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """`keys` if there are no more than allowed; raises FanOutExceededError."""
        for cap, source in (
            (self.max_downstream_keys, "max_downstream_keys"),
            (MAX_DOWNSTREAM_KEYS, "global"),
        ):
            if cap is not None and len(keys) > cap:
                raise FanOutExceededError(cap=cap, source=source, wanted=len(keys))
        return keys

    def decode_downstream(self, downstream_key: str) -> Any:
        """The anchor of the window that a downstream key names, in the form that windows work with."""
        return downstream_key

    def encode_upstream(self, decoded: Any) -> str:
        """The upstream key of a window's member, inverse of `decode_downstream`."""
        return str(decoded)

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        """The UTC instant that a downstream key stands for, None where keys carry no date."""
        return None

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        """The date that the producer's own date becomes downstream; None drops it, as a key that changes must."""
        return None

    @property
    def children(self) -> tuple["PartitionMapper", ...]:
        """The mappers that this one is composed of."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """What a person should know about this mapper when it is loaded, though it works."""
        return tuple(warning for child in self.children for warning in child.warnings())


def expect_part(value: object, field_name: str) -> PartitionMapper:
    """`value` if it is a mapper that may be part of another; raises DefinitionTypeError, also for rollups (F11)."""
    mapper = expect(value, PartitionMapper, field_name)
    if mapper.is_rollup:
        raise DefinitionTypeError(
            f"{field_name} is a {type(mapper).__name__}, which would stop waiting inside another mapper: put the rollup"
            " outermost, around the mapper that it belongs to, or let a job in between publish an asset of its own"
        )
    return mapper


def check_fields(kind: type[PartitionMapper], data: dict[str, Any]) -> None:
    """Raises DefinitionError where plain data names a field that a mapper does not have."""
    known = {each.name for each in fields(kind)}
    for name in data:
        if name not in known:
            raise DefinitionError(f"{kind.__name__} has no field {name!r}: use {', '.join(sorted(known))}")
