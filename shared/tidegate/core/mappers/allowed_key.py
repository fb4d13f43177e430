"""The mapper that lets named keys through."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.core.errors import InvalidPartitionKeyError
from tidegate.core.keys import expect_keys
from tidegate.core.mappers.base import PartitionMapper


@dataclass(frozen=True)
class AllowedKeyMapper(PartitionMapper):
    """Downstream key = upstream key, for the keys in `allowed_keys` and no others.

    Raises DefinitionTypeError where that is no list of texts (rule F20), DefinitionError for what is no key.
    """

    allowed_keys: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        keys = expect_keys(self.allowed_keys, "AllowedKeyMapper.allowed_keys")
        object.__setattr__(self, "allowed_keys", keys)

    def to_downstream(self, key: str) -> str:
        if key not in self.allowed_keys:
            raise InvalidPartitionKeyError(f"partition key {key!r} is not allowed: use one of {self._shown}")
        return key

    @property
    def _shown(self) -> str:
        shown = ", ".join(map(repr, self.allowed_keys[:10]))
        return shown + (f" and {len(self.allowed_keys) - 10} others" if len(self.allowed_keys) > 10 else "")
