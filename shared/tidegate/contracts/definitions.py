"""`definitions`: what producers and consumers declared, and the installation itself; compacted by `<kind>:<id>`."""

import json
from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tidegate.contracts.message import Message


class DefinitionRecord(Message):
    """One definition. A record without a value deletes it."""

    v: int = 1
    kind: Literal["job", "asset", "installation"]
    id: str
    incarnation: str
    """Random, given when the definition is created; kept when it changes."""
    body: dict[str, Any]
    """The plain form of the definition (tidegate.definitions)."""
    created: int | None = None
    """Offset of the record that created it; None in that record itself."""

    @property
    def record_key(self) -> str:
        return f"{self.kind}:{self.id}"

    @property
    def routing(self) -> str:
        """A digest of all in a job that decides where events count and what its rounds do, 12 characters (rule R6).

        That is its schedule and its team; a job that was created again is another one.
        """
        decisive = [self.incarnation, self.body.get("schedule"), self.body.get("team")]
        text = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
        return urlsafe_b64encode(blake2b(text.encode(), digest_size=9).digest()).decode()


MAX_PARTITIONS: Final = 256
MAX_SHARDS: Final = 128


class Installation(Message):
    """The counts that state depends on, fixed for life (rule E3), and what holds for all jobs. Body of the one
    installation record."""

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = 4
    """Partitions of every keyed topic."""
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 16
    """Shards of Redis that rounds live in; independent of the partitions. The coordinates of all of them must fit into
    the metadata of one committed offset."""
    multi_team: bool = False
    """Whether teams' filters are on (D25, F22, F38). May be changed; holds from its place in the log on."""


INSTALLATION_KEY: Final = "installation:tidegate"
