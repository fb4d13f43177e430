"""Every service's view of `definitions`: what applied at any offset of that log (rule D24, rule I3)."""

import asyncio
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from tidegate.contracts.definitions import INSTALLATION_KEY, DefinitionRecord, Installation
from tidegate.contracts.topics import DEFINITIONS
from tidegate.core.errors import DefinitionError, TidegateError
from tidegate.core.plain import from_plain
from tidegate.definitions import Asset, Job
from tidegate.definitions.known import known_assets
from tidegate.definitions.routes import JobRoutes
from tidegate.runtime.log_consumer import log_consumer
from tidegate.runtime.topic_admin import admin_client

log = structlog.get_logger()

_PARTITION = TopicPartition(DEFINITIONS, 0)
_WAIT_S = 20.0


class NotInstalledError(TidegateError, RuntimeError):
    """There is no topic `definitions`, or no record of the installation on it."""

    @classmethod
    def no_topic(cls) -> "NotInstalledError":
        return cls("this Kafka has no topic `definitions`: run `tidegate topics create`")

    @classmethod
    def no_record(cls) -> "NotInstalledError":
        return cls("topic `definitions` holds no record of an installation: run `tidegate topics create`")


def not_defined(job: str, known: Iterable[str]) -> str:
    """What is said where a person names a job that there is not; `known` are those that there are."""
    ids = list(known)
    if close := get_close_matches(job, ids, 3):
        return f"job {job!r} is not defined: did you mean {' or '.join(map(repr, close))}?"
    return f"job {job!r} is not defined (defined: {', '.join(map(repr, ids)) or 'none'})"


class DefinitionsBehindError(TidegateError, RuntimeError):
    """`definitions` does not hold what a record says was there when it was made."""


@dataclass(frozen=True, slots=True)
class DefinedJob:
    """A job as of one revision."""

    job: Job
    incarnation: str
    revision: int
    """Offset of its record."""
    routing: str = ""
    """What its rounds depend on, as a digest (rule R6)."""
    created: int = -1
    """Offset of the record that created this incarnation: events that ingest let in by older definitions did not
    reach it (rule D7, D24)."""


class DefinitionsView:
    """The history of `definitions`, kept up to date while it is open.

    A definition that cannot be read is left out; only its own job is affected.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, list[tuple[int, DefinedJob | None]]] = defaultdict(list)
        self._assets: dict[str, list[tuple[int, Asset | None]]] = defaultdict(list)
        self._installations: list[tuple[int, Installation]] = []
        self._unreadable: set[int] = set()
        self.failures: list[tuple[ConsumerRecord, Exception]] = []
        """The records that could not be read, with why, in the order of the log."""
        self._moved = asyncio.Condition()
        self._error: Exception | None = None
        self.incarnation = ""
        """Of the installation: another one means that `definitions` was created again."""
        self.next_offset = 0
        """Everything below this offset has been read."""

    def apply(self, record: ConsumerRecord) -> None:
        """Take in one record of the log."""
        key = (record.key or b"").decode(errors="replace")
        kind, _, name = key.partition(":")
        try:
            read = DefinitionRecord.from_bytes(record.value) if record.value is not None else None
            if kind == "job":
                defined = None
                if read is not None:
                    job = from_plain(read.body)
                    assert isinstance(job, Job)
                    _ = JobRoutes(job).routes  # raises whatever a timetable of the user's own raises
                    created = record.offset if read.created is None else read.created
                    defined = DefinedJob(job, read.incarnation, record.offset, read.routing, created)
                self._jobs[name].append((record.offset, defined))
            elif kind == "asset":
                asset = from_plain(read.body) if read is not None else None
                assert asset is None or isinstance(asset, Asset)
                self._assets[name].append((record.offset, asset))
            elif key == INSTALLATION_KEY and read is not None:
                self._installations.append((record.offset, Installation.model_validate(read.body)))
                self.incarnation = read.incarnation
        except Exception as error:  # whatever a definition holds, only that definition is refused
            log.error("definition_unreadable", key=key, offset=record.offset, error=str(error)[:500])
            self.failures.append((record, error))
            if kind == "job":
                self._jobs[name].append((record.offset, None))
                self._unreadable.add(record.offset)
        self.next_offset = record.offset + 1

    def jobs_at(self, offset: int) -> dict[str, DefinedJob]:
        """Every job as the records below `offset` define it, by id."""
        return _as_of(offset, self._jobs)

    def jobs(self) -> dict[str, DefinedJob]:
        """Every job as of now."""
        return self.jobs_at(self.next_offset)

    def job(self, job_id: str) -> DefinedJob | None:
        """A job as of now, None where there is none."""
        history = self._jobs.get(job_id)
        return history[-1][1] if history else None

    def defined(self, job_id: str) -> DefinedJob:
        """A job as of now. Raises DefinitionError where there is none, or none that can be read."""
        job = self.job(job_id)
        if job is None:
            raise DefinitionError(self._why_none(job_id))
        return job

    def _why_none(self, job_id: str) -> str:
        failed = [
            (record, error) for record, error in self.failures if record.key == f"job:{job_id}".encode()
        ]
        if failed and self.is_unreadable(job_id):  # its newest record is the one that failed
            record, error = failed[-1]
            where = f"{record.topic}@{record.offset}"
            return f"job {job_id!r} gets no events, since its definition ({where}) cannot be read: {error}"[
                :1000
            ]
        return not_defined(job_id, self.jobs())

    def is_unreadable(self, job_id: str) -> bool:
        """Whether the newest record of a job cannot be read here, so that `job` says None though it may be defined."""
        history = self._jobs.get(job_id, [])
        return bool(history) and history[-1][0] in self._unreadable

    def newest(self, job_id: str) -> DefinedJob | None:
        """The last definition of a job, though it may have been deleted since; None where the view holds none."""
        history = self._jobs.get(job_id, ())
        return next((defined for _, defined in reversed(history) if defined is not None), None)

    def job_at_revision(self, job_id: str, revision: int) -> DefinedJob | None:
        """The definition that the record at `revision` gave, None where the view does not hold it."""
        for offset, defined in self._jobs.get(job_id, ()):
            if offset == revision:
                return defined
        return None

    def job_from(self, job_id: str, revision: int) -> DefinedJob | None:
        """The definition that the record at `revision` gave or, where compaction took that or it cannot be read, the
        next one.

        None where it deleted the job, or none can be read.
        """
        return next(
            (defined for at, defined in self._from(job_id, revision) if at not in self._unreadable), None
        )

    def can_read(self, job_id: str, revision: int) -> bool:
        """Whether `job_from` knows what became of the job, or will once it has read as far."""
        offsets = [at for at, _ in self._from(job_id, revision)]
        return not offsets or any(at not in self._unreadable for at in offsets)

    def _from(self, job_id: str, revision: int) -> Sequence[tuple[int, DefinedJob | None]]:
        history = self._jobs.get(job_id, [])
        return history[bisect_left(history, revision, key=lambda each: each[0]) :]

    def revisions(self) -> dict[str, int]:
        """The offset of the newest record of every job, deletions included; without those that cannot be read."""
        newest = {job_id: history[-1][0] for job_id, history in self._jobs.items()}
        return {job_id: offset for job_id, offset in newest.items() if offset not in self._unreadable}

    def assets_at(self, offset: int) -> dict[str, Asset]:
        """Every asset that the records below `offset` name, by name; of several, `known_assets` says which."""
        jobs = (each.job for each in self.jobs_at(offset).values())
        return known_assets(_as_of(offset, self._assets), jobs)

    def known_assets(self) -> dict[str, Asset]:
        """Every asset that a definition names as of now, by name."""
        return self.assets_at(self.next_offset)

    @property
    def installation(self) -> Installation | None:
        """The installation as of now."""
        return self._installations[-1][1] if self._installations else None

    def is_multi_team_at(self, offset: int) -> bool:
        """Whether teams' filters are on by the records below `offset`."""
        found = [each for at, each in self._installations if at < offset]
        return bool(found) and found[-1].multi_team

    async def wait_for(self, offset: int) -> None:
        """Return when everything below `offset` has been read.

        Raises the error that ended the reading, if any, and DefinitionsBehindError where the log does not get there.
        """
        if self.next_offset >= offset:
            return
        try:
            async with asyncio.timeout(_WAIT_S), self._moved:
                await self._moved.wait_for(lambda: self.next_offset >= offset or self._error)
        except TimeoutError as error:
            raise DefinitionsBehindError(
                f"a record was made with definitions up to offset {offset}, but `definitions` ends at"
                f" {self.next_offset}: was the topic created again?"
            ) from error
        self.raise_if_broken()

    def raise_if_broken(self) -> None:
        """Pass on the error that ended the view's reading, if any: a view that stands still must end the session."""
        if self._error is not None:
            raise self._error

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        try:
            while True:
                records = await consumer.getmany(timeout_ms=500)
                async with self._moved:
                    for record in records.get(_PARTITION, ()):
                        self.apply(record)
                    # Markers and compacted records take offsets too.
                    self.next_offset = max(self.next_offset, await consumer.position(_PARTITION))
                    self._moved.notify_all()
        except Exception as error:
            async with self._moved:
                self._error = error
                self._moved.notify_all()


T = TypeVar("T")


def _as_of(offset: int, histories: Mapping[str, Sequence[tuple[int, T | None]]]) -> dict[str, T]:
    """What every history said last below `offset`, by name; without what was deleted."""
    found = {}
    for name, history in histories.items():
        place = bisect_right(history, offset - 1, key=lambda each: each[0])
        if place and (value := history[place - 1][1]) is not None:
            found[name] = value
    return dict(sorted(found.items()))


@asynccontextmanager
async def definitions_view(bootstrap: str) -> AsyncIterator[DefinitionsView]:
    """A view that has been read to the end, and follows. Raises NotInstalledError."""
    async with admin_client(bootstrap) as admin:
        # Listed, since asking for it by name could create it, with other settings.
        if DEFINITIONS not in await admin.list_topics():
            raise NotInstalledError.no_topic()
    view = DefinitionsView()
    async with log_consumer(bootstrap, "tidegate-definitions", wait_ms=100) as consumer:
        consumer.assign([_PARTITION])
        end = (await consumer.end_offsets([_PARTITION]))[_PARTITION]
        await consumer.seek_to_beginning(_PARTITION)
        follower = asyncio.create_task(view._follow(consumer))
        try:
            await view.wait_for(end)
            if view.installation is None:
                raise NotInstalledError.no_record()
            yield view
        finally:
            follower.cancel()
            await asyncio.wait((follower,))
