"""The mapper that gives every key the same name."""

from dataclasses import dataclass

from tidegate.core.errors import DefinitionError
from tidegate.core.keys import validate_key
from tidegate.core.mappers.base import PartitionMapper


@dataclass(frozen=True)
class FixedKeyMapper(PartitionMapper):
    """Every upstream key becomes `downstream_key`. Raises DefinitionError where that is no key."""

    downstream_key: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.downstream_key, str):
            raise DefinitionError(f"FixedKeyMapper.downstream_key must be text, not {self.downstream_key!r}")
        try:
            validate_key(self.downstream_key)
        except ValueError as error:
            raise DefinitionError(f"FixedKeyMapper.downstream_key: {error}") from error

    def to_downstream(self, key: str) -> str:
        return self.downstream_key
