"""Keys with a namespace before them."""

from dataclasses import dataclass

from tidegate import InvalidPartitionKeyError, PartitionMapper


@dataclass(frozen=True)
class StripNamespaceMapper(PartitionMapper):
    """`sales:2026-03-10` -> `2026-03-10`."""

    separator: str = ":"

    def to_downstream(self, key: str) -> str:
        _, found, rest = key.partition(self.separator)
        if not found or not rest:
            raise InvalidPartitionKeyError(
                f"partition key {key!r} has no namespace before {self.separator!r}"
            )
        return rest
