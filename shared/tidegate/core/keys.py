"""Partition keys: the rules that every key obeys (rule D12)."""

import re
from collections.abc import Iterable
from typing import Final

from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError

MAX_KEY_CHARACTERS: Final = 250
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Half a character, which no message can carry."""


def validate_key(key: str) -> str:
    """Return `key` if it may name a partition: 1 to 250 characters, not blank, no control characters.

    Raises InvalidPartitionKeyError that quotes the key.
    """
    if not key.strip():
        raise InvalidPartitionKeyError(
            f"partition key {key!r} is empty or blank: give at least one visible character"
        )
    if len(key) > MAX_KEY_CHARACTERS:
        raise InvalidPartitionKeyError(
            f"partition key {key[:40]!r}... has {len(key)} characters: at most {MAX_KEY_CHARACTERS} are allowed"
        )
    if found := _SURROGATE.search(key):
        raise InvalidPartitionKeyError(
            f"partition key {key!r} holds {found.group()!r} at position {found.start()}, which is half a character:"
            " give whole ones"
        )
    if found := _CONTROL.search(key):
        raise InvalidPartitionKeyError(
            f"partition key {key!r} holds the control character {found.group()!r} at position {found.start()}:"
            " remove it"
        )
    return key


def expect_keys(
    given: object,
    field: str,
    *,
    no_text: type[DefinitionError | DefinitionTypeError] = DefinitionTypeError,
) -> tuple[str, ...]:
    """The distinct keys of a list in a definition, in its order; those of a set, which has none, sorted.

    Raises DefinitionTypeError for one text and for what is no list, `no_text` for a list that holds what is no text,
    DefinitionError for text that is no key.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DefinitionTypeError(f"{field} must be a list of keys, not {given!r}: write ['us', 'eu']")
    keys = tuple(given)
    for key in keys:
        if not isinstance(key, str):
            raise no_text(f"{field} holds {key!r}, which is not text: use keys such as 'us'")
        try:
            validate_key(key)
        except InvalidPartitionKeyError as error:
            raise DefinitionError(f"{field}: {error}") from error
    return tuple(dict.fromkeys(sorted(keys) if isinstance(given, set | frozenset) else keys))
