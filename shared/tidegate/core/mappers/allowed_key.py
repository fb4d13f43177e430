"""The mapper that lets named keys through."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.keys import validate_key
from tidegate.core.mappers.base import PartitionMapper


@dataclass(frozen=True)
class AllowedKeyMapper(PartitionMapper):
    """Downstream key = upstream key, for the keys in `allowed_keys` and no others.

    Raises DefinitionTypeError where that is no list of texts (rule F20), DefinitionError for what is no key.
    """

    allowed_keys: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Iterable[str] = self.allowed_keys
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise DefinitionTypeError(
                f"AllowedKeyMapper.allowed_keys must be a list of keys, not {given!r}:"
                " write AllowedKeyMapper(['us', 'eu'])"
            )
        keys = tuple(dict.fromkeys(sorted(given) if isinstance(given, set | frozenset) else given))
        for key in keys:
            if not isinstance(key, str):
                raise DefinitionTypeError(
                    f"AllowedKeyMapper.allowed_keys holds {key!r}, which is not text: use keys"
                )
            try:
                validate_key(key)
            except ValueError as error:
                raise DefinitionError(f"AllowedKeyMapper.allowed_keys: {error}") from error
        object.__setattr__(self, "allowed_keys", keys)

    def to_downstream(self, key: str) -> str:
        if key not in self.allowed_keys:
            raise InvalidPartitionKeyError(f"partition key {key!r} is not allowed: use one of {self._shown}")
        return key

    @property
    def _shown(self) -> str:
        shown = ", ".join(map(repr, self.allowed_keys[:10]))
        return shown + (f" and {len(self.allowed_keys) - 10} others" if len(self.allowed_keys) > 10 else "")
