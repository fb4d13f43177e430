"""Assets: what producers update and schedules wait for."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.core.conditions import Leaf
from tidegate.core.errors import DefinitionError, DefinitionTypeError

MAX_NAME_CHARACTERS: Final = 1500
_RESERVED: Final = frozenset({"self", "context", "outlet_events"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Asset(Leaf):
    """A logical grouping of data, identified by (name, uri); `extra` and `group` never affect identity (F39).

    `uri` defaults to the name. Raises DefinitionError for an empty, reserved or over-long name.
    """

    name: str
    uri: str = ""
    group: str = field(default="asset", compare=False)
    extra: dict[str, Any] = field(default_factory=dict, compare=False, hash=False, metadata={"is_data": True})

    def __post_init__(self) -> None:
        for name in ("name", "uri"):
            if not isinstance(value := getattr(self, name), str):
                raise DefinitionTypeError(f"Asset.{name} must be text, not {value!r}")
        if not self.name.strip() or len(self.name) > MAX_NAME_CHARACTERS or _CONTROL.search(self.name):
            raise DefinitionError(
                f"Asset.name {self.name[:40]!r} must have 1 to {MAX_NAME_CHARACTERS} visible characters"
            )
        if self.name in _RESERVED:
            raise DefinitionError(f"Asset.name {self.name!r} is reserved: choose another")
        object.__setattr__(self, "uri", self.uri or self.name)

    def serialize(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name}
        if self.uri != self.name:
            data["uri"] = self.uri
        if self.group != "asset":
            data["group"] = self.group
        if self.extra:
            data["extra"] = self.extra
        return data
