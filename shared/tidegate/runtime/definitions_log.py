"""`definitions` as one look at it finds it, and writing to it: what `tidegate apply` and `topics create` need.

Services follow the log instead (tidegate.runtime.definitions_view). Bodies stay plain data here, so that a definition
that this version cannot read does not stand in the way of the others.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from pydantic import ValidationError

from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.topics import DEFINITIONS
from tidegate.runtime.definitions_view import NotInstalledError
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.producer import acknowledged_producer, send_all

_PARTITION = TopicPartition(DEFINITIONS, 0)


@dataclass(frozen=True, slots=True)
class Stored:
    """A definition as it stands on the log."""

    record: DefinitionRecord
    revision: int
    """Its offset."""


class DefinitionsLog:
    """The newest record of every definition, by record key."""

    def __init__(self, bootstrap: str, consumer: AIOKafkaConsumer) -> None:
        self._bootstrap, self._consumer = bootstrap, consumer
        self._stored: dict[str, Stored] = {}

    @property
    def installation(self) -> Installation | None:
        found = self._stored.get(INSTALLATION_KEY)
        return Installation.model_validate(found.record.body) if found else None

    def installed(self) -> Installation:
        """The installation; raises NotInstalledError where there is none."""
        if (found := self.installation) is None:
            raise NotInstalledError.no_record()
        return found

    def of_kind(self, kind: str) -> Mapping[str, Stored]:
        """Every definition of one kind, by id."""
        return {each.record.id: each for each in self._stored.values() if each.record.kind == kind}

    def get(self, kind: str, id: str) -> Stored | None:
        """One definition."""
        return self._stored.get(f"{kind}:{id}")

    async def read(self) -> None:
        """Take in everything up to the present end."""
        end = (await self._consumer.end_offsets([_PARTITION]))[_PARTITION]
        while await self._consumer.position(_PARTITION) < end:
            for record in (await self._consumer.getmany(_PARTITION, timeout_ms=100)).get(_PARTITION, ()):
                key = (record.key or b"").decode(errors="replace")
                try:
                    if record.value is None:
                        self._stored.pop(key, None)
                    else:
                        self._stored[key] = Stored(DefinitionRecord.from_bytes(record.value), record.offset)
                except ValidationError:
                    # Services log it and treat the definition as gone, so `apply` publishes it anew.
                    self._stored.pop(key, None)

    async def publish(self, records: Sequence[DefinitionRecord], deleted: Sequence[str] = ()) -> None:
        """Write the deletions (record keys), then the records, and read up to the last of them."""
        outgoing = [Outgoing(DEFINITIONS, 0, key.encode(), None) for key in deleted]
        outgoing += [Outgoing(DEFINITIONS, 0, each.record_key.encode(), each.to_bytes()) for each in records]
        async with acknowledged_producer(self._bootstrap, "tidegate-definitions") as producer:
            await send_all(producer, outgoing)
        await self.read()


@asynccontextmanager
async def definitions_log(bootstrap: str) -> AsyncIterator[DefinitionsLog]:
    """The log, read to its end. Raises NotInstalledError where the topic does not exist."""
    async with log_consumer(bootstrap, "tidegate-definitions") as consumer:
        # Listed first, since asking for a topic by name creates it on some brokers.
        if DEFINITIONS not in await consumer.topics():
            raise NotInstalledError.no_topic()
        consumer.assign([_PARTITION])
        await consumer.seek_to_beginning(_PARTITION)
        log = DefinitionsLog(bootstrap, consumer)
        await log.read()
        yield log
