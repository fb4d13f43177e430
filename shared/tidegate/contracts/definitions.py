"""`definitions`: what producers and consumers declared, compacted by `<kind>:<id>`."""

from typing import Any, Literal

from tidegate.contracts.message import Message


class DefinitionRecord(Message):
    """One definition. A record without a value deletes it."""

    v: int = 1
    kind: Literal["job", "asset"]
    id: str
    incarnation: str
    """Random, given when the definition is created; kept when it changes."""
    body: dict[str, Any]
    """The plain form of the definition (tidegate.definitions)."""

    @property
    def record_key(self) -> str:
        return f"{self.kind}:{self.id}"
