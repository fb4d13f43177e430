"""Mappers one after the other."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.core.errors import DefinitionTypeError
from tidegate.core.mappers.base import PartitionMapper, distinct, expect_countable, expect_part
from tidegate.core.plain import check_fields, from_plain


@dataclass(frozen=True, init=False)
class ChainMapper(PartitionMapper):
    """What the first mapper gives goes into the second, and so on: `ChainMapper(StartOfHourMapper(), other)`.

    Raises DefinitionTypeError for fewer than two mappers, and for rollups among them.
    """

    mappers: tuple[PartitionMapper, ...]

    def __init__(self, *mappers: PartitionMapper, max_downstream_keys: int | None = None) -> None:
        if len(mappers) < 2:
            raise DefinitionTypeError(
                f"ChainMapper needs two mappers or more, not {len(mappers)}: use the mapper alone"
            )
        parts = tuple(expect_part(mapper, f"ChainMapper argument {n}") for n, mapper in enumerate(mappers, 1))
        object.__setattr__(self, "mappers", parts)
        object.__setattr__(self, "max_downstream_keys", max_downstream_keys)
        super().__post_init__()

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "ChainMapper":
        check_fields(cls, data)
        rest = {name: from_plain(value) for name, value in data.items() if name != "mappers"}
        return cls(*from_plain(data.get("mappers", [])), **rest)

    def to_downstream(self, key: str) -> str | tuple[str, ...]:
        """One key where every mapper gives one; otherwise the distinct keys, in order."""
        return self._through(key, lambda mapper, one: mapper.to_downstream(one))

    def downstream_keys(self, key: str) -> tuple[str, ...]:
        keys = self._through(key, lambda mapper, one: mapper.downstream_keys(one))  # each with its own limit
        return self.capped((keys,) if isinstance(keys, str) else keys)

    def _through(
        self, key: str, step: Callable[[PartitionMapper, str], str | Iterable[str]]
    ) -> str | tuple[str, ...]:
        keys: tuple[str, ...] = (key,)
        fans_out = False
        for mapper in self.mappers:
            found: dict[str, None] = {}
            for one in keys:
                given = step(mapper, one)
                fans_out = fans_out or not isinstance(given, str)
                found.update(dict.fromkeys((given,) if isinstance(given, str) else distinct(given)))
                expect_countable(len(found))
            keys = tuple(found)
        return keys if fans_out else keys[0]

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        """What the last mapper reads from the key that it gave."""
        return self.mappers[-1].to_partition_date(downstream_key)

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        """The date where every mapper carries it (rule F15)."""
        for mapper in self.mappers:
            source_partition_date = mapper.carry_partition_date(source_partition_date)
        return source_partition_date

    @property
    def children(self) -> tuple[PartitionMapper, ...]:
        return self.mappers
