"""Mappers side by side: every part of a compound key has its own."""

from dataclasses import dataclass
from datetime import datetime
from itertools import product
from math import prod
from typing import Any

from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.mappers.base import PartitionMapper, distinct, expect_countable, expect_part
from tidegate.core.plain import check_fields, from_plain


@dataclass(frozen=True, init=False)
class ProductMapper(PartitionMapper):
    """`us|2026-03-10T09:00:00` -> `us|2026-03-10` with `ProductMapper(IdentityMapper(), StartOfDayMapper())`.

    `date_from` is the index of the part that gives the partition date; without it a compound key has none (rule
    F07). Raises DefinitionTypeError for fewer than two mappers and for rollups among them, DefinitionError for an empty
    delimiter or an index that no part has.
    """

    mappers: tuple[PartitionMapper, ...]
    delimiter: str = "|"
    date_from: int | None = None

    def __init__(
        self,
        *mappers: PartitionMapper,
        delimiter: str = "|",
        date_from: int | None = None,
        max_downstream_keys: int | None = None,
    ) -> None:
        if len(mappers) < 2:
            raise DefinitionTypeError(
                f"ProductMapper needs two mappers or more, not {len(mappers)}: use the mapper alone"
            )
        if not isinstance(delimiter, str):
            raise DefinitionTypeError(f"ProductMapper.delimiter must be text, not {delimiter!r}")
        if not delimiter:
            raise DefinitionError(
                "ProductMapper.delimiter is empty, so that nothing tells the parts apart: use '|'"
            )
        if date_from is not None and (isinstance(date_from, bool) or not isinstance(date_from, int)):
            raise DefinitionTypeError(
                f"ProductMapper.date_from must be the index of a part, not {date_from!r}"
            )
        if date_from is not None and not 0 <= date_from < len(mappers):
            raise DefinitionError(
                f"ProductMapper.date_from {date_from} names no part: use 0 to {len(mappers) - 1}"
            )
        parts = tuple(
            expect_part(mapper, f"ProductMapper argument {n}") for n, mapper in enumerate(mappers, 1)
        )
        object.__setattr__(self, "mappers", parts)
        object.__setattr__(self, "delimiter", delimiter)
        object.__setattr__(self, "date_from", date_from)
        object.__setattr__(self, "max_downstream_keys", max_downstream_keys)
        super().__post_init__()

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "ProductMapper":
        check_fields(cls, data)
        rest = {name: from_plain(value) for name, value in data.items() if name != "mappers"}
        return cls(*from_plain(data.get("mappers", [])), **rest)

    def to_downstream(self, key: str) -> str | tuple[str, ...]:
        """One key where every part gives one; otherwise every combination, the last part changing fastest."""
        given = [
            mapper.to_downstream(part) for mapper, part in zip(self.mappers, self._split(key), strict=True)
        ]
        if all(isinstance(one, str) for one in given):
            return self.delimiter.join(map(str, given))
        choices = [(one,) if isinstance(one, str) else distinct(one) for one in given]
        expect_countable(prod(map(len, choices)))
        return tuple(dict.fromkeys(self.delimiter.join(parts) for parts in product(*choices)))

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        if self.date_from is None:
            return None
        return self.mappers[self.date_from].to_partition_date(self._split(downstream_key)[self.date_from])

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        """The date where every part carries it, and carries the same (rule F15)."""
        carried = {mapper.carry_partition_date(source_partition_date) for mapper in self.mappers}
        return carried.pop() if len(carried) == 1 else None

    @property
    def children(self) -> tuple[PartitionMapper, ...]:
        return self.mappers

    def _split(self, key: str) -> list[str]:
        parts = key.split(self.delimiter)
        if len(parts) != len(self.mappers):
            raise InvalidPartitionKeyError(
                f"partition key {key!r} has {len(parts)} parts between {self.delimiter!r}, not {len(self.mappers)}:"
                " give one for every mapper"
            )
        return parts
