"""One process's share of the rollup: the partitions of `contributions` that it owns, and the shards they feed.

What is sent follows rule R1 to R3: a batch is folded into every shard it concerns, fired rounds wait in the
shard's outbox until their request is acknowledged, and the group's committed offset says that everything fired before
it was.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import zip_longest
from time import monotonic, time
from typing import NamedTuple

import structlog
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from pydantic import ValidationError
from redis.asyncio import Redis

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.contributions import DeadlineReached, DefinitionChange, read_contributions_record
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.packing import pack
from tidegate.contracts.placement import contributions_partition, partition_of, shard_of, shards_of_partition
from tidegate.contracts.runs import EncodedRequest, encoded_batch
from tidegate.contracts.topics import CONTRIBUTIONS, RUN_REQUESTS
from tidegate.runtime import metrics
from tidegate.runtime.consumer import BatchConsumer
from tidegate.runtime.crash_points import crash_point
from tidegate.runtime.definitions_view import DefinedJob, DefinitionsView
from tidegate.runtime.gaps import pass_accepted_gaps
from tidegate.runtime.mapping import Mapped, Plan, batch_bytes, plan
from tidegate.runtime.positions import Gap, Position, committed_positions, decide_start, source_of
from tidegate.runtime.producer import audit_records, send_all
from tidegate.runtime.settings import Settings
from tidegate.runtime.starting import note_started, of_incarnations, recreated, started_incarnations
from tidegate.runtime.state import ServiceState
from tidegate.runtime.unreadable import unreadable_record
from tidegate_rollup.acted import acted
from tidegate_rollup.again import map_again, sendable, waiting
from tidegate_rollup.inputs import Input, by_shard, chunks, inputs_of
from tidegate_rollup.outbox import SERVICE, OutboxItem, audit_entry, run_request
from tidegate_rollup.store import Applied, Batch, RoundStore

log = structlog.get_logger()

COMMIT_EVERY_S = 1.0
MOVE_IDLE_EVERY_S = 3.0
LOOK_EVERY_S = 1.0
"""For rounds whose deadlines have come."""

MOVED_AT_ONCE = 500
"""Rounds of a changed job that one step maps again, per shard."""


class _Chunk(NamedTuple):
    """What one call of the script for each of its shards folds of a partition."""

    tp: TopicPartition
    entries: list[Input]
    upto: int
    at: int


class PartitionOwner:
    """Folds, sends, acknowledges and commits for the partitions that the group gave to this process."""

    def __init__(
        self,
        settings: Settings,
        state: ServiceState,
        view: DefinitionsView,
        store: RoundStore,
        producer: AIOKafkaProducer,
        admin: AIOKafkaAdminClient,
        redis: Redis,
        group: str,
    ) -> None:
        self.consumer = BatchConsumer([CONTRIBUTIONS], group, settings, state, self._start)
        assert view.installation is not None
        self._view, self._counts, self._store, self._producer = view, view.installation, store, producer
        self._settings, self._admin, self._redis, self._group = settings, admin, redis, group
        self._believed: dict[int, int | None] = {}
        self._outbox: dict[tuple[int, int], list[OutboxItem]] = {}
        """By (partition, shard), in the order of the log."""
        self._committed: dict[int, Position] = {}
        self._times: dict[int, int] = {}
        self._revisions: dict[int, dict[str, int]] = {}
        """By partition and job the newest revision that every shard has folded, or will from what was appended."""
        self._defined_by = lru_cache(maxsize=64)(self._look_up)
        self._state = state
        self._unreadable: set[str] = set()
        """Jobs of which something waits for a definition that cannot be read here."""
        self._reached: dict[int, set[tuple[str, str, str]]] = {}
        """By partition the deadlines that were appended and are not folded yet."""
        self._committed_at = self._moved_at = self._looked_at = monotonic()

    async def step(self) -> None:
        """One batch from poll to acknowledged; every second or so also a commit and idle shards moved along."""
        polled = await self.consumer.poll()
        self._view.raise_if_broken()
        if polled:
            crash_point("rollup.read")
        began = monotonic()
        if polled:
            await self._fold(polled)
            crash_point("rollup.applied")
        if began - self._moved_at > MOVE_IDLE_EVERY_S:
            self._moved_at = began
            await self._move_idle_shards()
        await self._send()
        await self._append_changes()
        if began - self._looked_at > LOOK_EVERY_S:
            self._looked_at = began
            await self._append_deadlines()
        if began - self._committed_at > COMMIT_EVERY_S:
            await self.commit()
        if polled:
            metrics.BATCH_SECONDS.observe(monotonic() - began)

    async def commit(self) -> None:
        """Commit, per partition, the smaller of the position and the oldest offset still in an outbox (R3)."""
        self._committed_at = monotonic()
        positions: dict[TopicPartition, Position] = {}
        for tp in self.consumer.started:
            waiting = [
                each.offset
                for (p, _), outbox in self._outbox.items()
                if p == tp.partition
                for each in outbox[:1]
            ]
            offset = min([self.consumer.position(tp), *waiting])
            if offset > self._committed[tp.partition].offset:
                positions[tp] = replace(self._committed[tp.partition], offset=offset)
        if positions and await self.consumer.commit(positions):
            self._committed.update({tp.partition: position for tp, position in positions.items()})
            crash_point("rollup.committed")

    async def _start(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Gap]:
        """Ask every shard where it stands; the group's offset only says what was acknowledged."""
        self._believed, self._outbox, self._times, self._revisions, self._reached = {}, {}, {}, {}, {}
        # In this order, since another replica may still have the partitions: it commits before it folds, and folds what
        # the log holds.
        peeked = {tp: await self._store.peek(tp.partition, self._shards(tp)) for tp in partitions}
        committed = await committed_positions(self._admin, self._group, partitions)
        bounds = await self.consumer.bounds(partitions)
        places: dict[TopicPartition, int | Gap] = {}
        furthest: dict[TopicPartition, Position] = {}
        for tp, replies in peeked.items():
            for shard, reply in replies.items():
                self._believed[shard] = reply.next_offset
                self._outbox[tp.partition, shard] = reply.outbox
            known = [
                Position(reply.next_offset, reply.at)
                for reply in replies.values()
                if reply.next_offset is not None
            ]
            if known:
                furthest[tp] = max(known, key=lambda each: each.offset)
            # A shard that is new or was lost is rebuilt from the log's beginning (R2).
            lowest = min(each.offset for each in known) if known and len(known) == len(replies) else None
            if not replies and tp in committed:  # more partitions than shards: this one feeds none
                lowest = committed[tp].offset
            places[tp] = self._place(tp, tp in committed, lowest, furthest.get(tp), *bounds[tp])
        whole = {tp: position for tp, position in furthest.items() if not isinstance(places[tp], Gap)}
        for tp in await recreated(self._settings.kafka, whole):
            places[tp] = Gap(
                "the topic was created again: its last record is another one", bounds[tp][0], recreated=True
            )
        started = await started_incarnations(self._redis, self._settings, self._group, partitions)
        committed = of_incarnations(committed, started)
        gaps = {
            tp: (place, committed.get(tp, Position(bounds[tp][0], incarnation=started.get(tp, 0))))
            for tp, place in places.items()
            if isinstance(place, Gap)
        }
        passed = await pass_accepted_gaps(
            self.consumer, self._redis, self._settings, self._group, gaps, self._send_left_over
        )
        for tp, position in passed.items():
            await self._move(tp, position.offset)
            places[tp] = position.offset
        fresh = {
            tp: Position(place)
            for tp, place in places.items()
            if isinstance(place, int) and tp not in committed and tp not in passed
        }
        # Before anything is folded, so that state without a committed offset always means that one was lost (R3).
        if fresh and not await self.consumer.commit(fresh):
            self._outbox = {}  # of partitions that are not ours, and without a position
            self.consumer.restart()
            return {}
        known_now = {**fresh, **committed, **passed}
        await note_started(
            self._redis,
            self._settings,
            self._group,
            started,
            {tp: each.incarnation for tp, each in known_now.items()},
        )
        self._committed = {tp.partition: position for tp, position in known_now.items()}
        unread = {tp.partition for tp, place in places.items() if isinstance(place, Gap)}
        self._outbox = {place: outbox for place, outbox in self._outbox.items() if place[0] not in unread}
        for tp in partitions:
            folded = await self._store.revisions(self._shards(tp))
            jobs = {job for of_shard in folded.values() for job in of_shard}
            self._revisions[tp.partition] = {
                job: min(of_shard.get(job, -1) for of_shard in folded.values()) for job in jobs
            }
        return places

    async def _send_left_over(self, tp: TopicPartition, before: Position) -> bool:
        """Send all that fired before a gap, under the name of the log that it came from; whether nothing is left."""
        whole, last = self._outbox, None
        self._outbox = {place: outbox for place, outbox in whole.items() if place[0] == tp.partition}
        self._committed = {tp.partition: before}
        while (count := sum(map(len, self._outbox.values()))) and count != last:
            last = count
            await self._send()
        self._outbox = {**whole, **self._outbox}
        return not count

    def _place(
        self,
        tp: TopicPartition,
        has_committed: bool,
        lowest: int | None,
        furthest: Position | None,
        beginning: int,
        end: int,
    ) -> int | Gap:
        """Where to read from, given where the shards stand; the one furthest on tells whether it is still that log."""
        if furthest is not None and not has_committed:
            return Gap(
                f"Redis holds rounds of namespace {self._settings.namespace!r} but group {self._group!r} has no"
                " committed offset: it expired, the topic was created again, or the rounds belong to another",
                beginning,
                recreated=True,
            )
        if lowest is None and has_committed and beginning > 0:
            return Gap(
                f"rounds of partition {tp.partition} were lost from Redis, and the log that they could be rebuilt from"
                f" begins only at offset {beginning}",
                beginning,
            )
        if furthest is not None and isinstance(gap := decide_start(furthest.offset, beginning, end), Gap):
            return gap
        return decide_start(lowest, beginning, end)

    async def _move(self, tp: TopicPartition, offset: int) -> None:
        """Set every shard of a partition to `offset`, past records that a person accepted as lost."""
        idle = [(shard, self._believed[shard], ()) for shard in self._shards(tp)]
        replies = await self._store.apply(tp.partition, offset, offset, 0, idle)
        self._believed.update(
            {shard: offset for shard, reply in replies.items() if isinstance(reply, Applied)}
        )

    def _shards(self, tp: TopicPartition) -> range:
        return shards_of_partition(tp.partition, self._counts.partitions, self._counts.shards)

    async def _fold(self, polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Fold what was polled: one round trip for all partitions, or a few where a batch is too large for one."""
        read = [await self._read(tp, records) for tp, records in polled.items()]
        for some in zip_longest(*read):
            if not await self._apply([each for each in some if each is not None]):
                break  # every partition starts again

    async def _read(self, tp: TopicPartition, records: list[ConsumerRecord]) -> list[_Chunk]:
        entries: list[Input] = []
        unreadable: list[AuditEntry] = []
        ours = self._shards(tp)
        for record in records:
            await asyncio.sleep(0)  # for heartbeats: each may hold some hundred entries
            try:
                read = read_contributions_record(record.value or b"")
                entries += inputs_of(record.offset, record.timestamp, read, ours, self._counts.shards)
            except (ValidationError, IndexError) as error:
                unreadable.append(unreadable_record(SERVICE, tp, record, error))
        # Before any shard moves past them: whoever comes next reads from where the shards stand.
        await send_all(self._producer, audit_records(unreadable, self._counts.partitions))
        metrics.ENTRIES_READ.labels(tp.topic).inc(len(entries))
        self._times[tp.partition] = records[-1].timestamp
        cut = [_Chunk(tp, chunk, chunk[-1].offset + 1, chunk[-1].at) for chunk in chunks(entries)]
        if cut:
            cut[-1] = cut[-1]._replace(upto=records[-1].offset + 1, at=records[-1].timestamp)
        return cut

    async def _apply(self, cut: Sequence[_Chunk]) -> bool:
        """Fold chunks of different partitions; False where a shard stood elsewhere, which starts all again."""
        batches = []
        for tp, entries, upto, at in cut:
            shards = []
            for shard, mine in by_shard(entries).items():
                believed = self._believed[shard]
                if believed is None or believed < upto:
                    not_folded = [each for each in mine if believed is None or each.offset >= believed]
                    shards.append((shard, believed, not_folded))
            batches.append(self._batch(tp, upto, at, shards))
        return await self._call(batches)

    def _batch(
        self,
        tp: TopicPartition,
        upto: int,
        at: int,
        shards: Sequence[tuple[int, int | None, Sequence[Input]]],
    ) -> Batch:
        return Batch(tp.partition, self._committed[tp.partition].offset, upto, at, shards)

    async def _move_idle_shards(self) -> None:
        """Move shards without records to the position: a lost or rolled back one shows itself by it."""
        batches = []
        for tp in self.consumer.started:
            position = self.consumer.position(tp)
            idle: list[tuple[int, int | None, Sequence[Input]]] = [
                (shard, believed, ())
                for shard in self._shards(tp)
                if (believed := self._believed[shard]) is None or believed <= position
            ]
            batches.append(self._batch(tp, position, self._times.get(tp.partition, 0), idle))
        await self._call(batches)

    async def _call(self, batches: Sequence[Batch]) -> bool:
        folded = [(each, shard) for each in batches for shard, _, _ in each.shards]
        if not folded:
            return True
        replies = await self._store.apply_all(batches)
        moved = True
        for (partition, _, upto, *_), shard in folded:
            reply = replies[shard]
            if isinstance(reply, Applied):
                self._believed[shard] = upto
                self._outbox[partition, shard] += reply.added
                metrics.REPEATS_DROPPED.labels(CONTRIBUTIONS).inc(reply.repeats)
            else:
                metrics.STATE_MISMATCHES.inc()
                log.warning(
                    "shard_elsewhere", shard=shard, believed=self._believed[shard], found=reply.next_offset
                )
                moved = False
        if not moved:
            self.consumer.restart()
        return moved

    async def _append_changes(self) -> None:
        """Put every revision that the view shows on the partitions it is missing from (rule R6).

        A partition that feeds no shard needs none, and would never be seen to have folded one.
        """
        changes = [
            (tp.partition, DefinitionChange(job=job, revision=revision, routing=self._routing(job, revision)))
            for tp in self.consumer.started
            if self._shards(tp)
            for job, revision in self._view.revisions().items()
            if revision > self._revisions[tp.partition].get(job, -1)
        ]
        records = [Outgoing(CONTRIBUTIONS, number, None, change.to_bytes()) for number, change in changes]
        await send_all(self._producer, records)
        if records:
            crash_point("rollup.changed")
        for number, change in changes:
            self._revisions[number][change.job] = change.revision

    def _routing(self, job_id: str, revision: int) -> str:
        defined = self._view.job_from(job_id, revision)
        return "" if defined is None else defined.routing

    async def _append_deadlines(self) -> None:
        """Put the deadlines that have come on the log; they act when they are read there (rule R4)."""
        now = int(time() * 1000)
        records = []
        for tp in self.consumer.started:
            reached = set(await self._store.due(self._shards(tp), now))
            for then, name, opened in sorted(reached - self._reached.get(tp.partition, set())):
                job, incarnation, key = name.split("/", 2)
                message = DeadlineReached.model_validate(
                    {"job": job, "incarnation": incarnation, "key": key, "opened": opened, "then": then}
                )
                records.append(Outgoing(CONTRIBUTIONS, tp.partition, None, message.to_bytes()))
            self._reached[tp.partition] = reached
        await send_all(self._producer, records)
        if records:
            crash_point("rollup.reached")

    async def _send(self) -> None:
        """Send what is in the outboxes, wait for the acknowledgements, then take it out."""
        self._unreadable.clear()
        found = {
            place: list(sendable(outbox, MOVED_AT_ONCE, self._is_readable))
            for place, outbox in self._outbox.items()
        }
        sending = {place: some for place, some in found.items() if some}
        self._tell_unreadable()
        outgoing: list[Outgoing] = []
        audit: list[AuditEntry] = []
        for (partition, shard), outbox in sending.items():
            requests, noted = self._written_out(partition, outbox)
            mapped_again = await self._map_again(partition, shard, outbox)
            if mapped_again is None:
                metrics.STATE_MISMATCHES.inc()
                log.warning("shard_set_back", shard=shard, outcome="what waited there is folded again")
                self.consumer.restart()
                return
            again, closed = mapped_again
            audit += noted + closed
            source = self._source_of(partition, shard)
            encode = partial(encoded_batch, source)
            for target, some in requests.items():
                outgoing += (Outgoing(RUN_REQUESTS, target, None, raw) for raw in pack(some, encode))
                metrics.ROUNDS_FIRED.inc(len(some))
            encode_again = partial(_encode_again, f"{source}/again")
            for target, mapped in again.items():
                outgoing += (Outgoing(CONTRIBUTIONS, target, None, raw) for raw in pack(mapped, encode_again))
        await send_all(self._producer, outgoing + audit_records(audit, self._counts.partitions))
        if sending:
            crash_point("rollup.sent")
            await self._store.confirm(
                [(partition, shard, sent) for (partition, shard), sent in sending.items()]
            )
            crash_point("rollup.confirmed")
        for place, sent in sending.items():
            gone = {each.field for each in sent}
            self._outbox[place] = [each for each in self._outbox[place] if each.field not in gone]

    def _is_readable(self, job_id: str, revision: int) -> bool:
        is_readable = self._view.can_read(job_id, revision)
        if not is_readable:
            self._unreadable.add(job_id)
        return is_readable

    def _tell_unreadable(self) -> None:
        """Not ready while rounds wait for a definition that this process cannot read: nothing of them is lost (E5)."""
        if self._unreadable:
            names = ", ".join(map(repr, sorted(self._unreadable)))
            self._state.block(
                "definition",
                f"rounds of {names} wait to be mapped by a definition that cannot be read here: install its plugins, or"
                " apply one that can be read",
            )
        else:
            self._state.unblock("definition")

    def _source_of(self, partition: int, shard: int) -> str:
        tp = TopicPartition(CONTRIBUTIONS, partition)
        return f"{source_of(tp, self._committed[partition].incarnation)}#{shard}"

    def _written_out(
        self, partition: int, outbox: Sequence[OutboxItem]
    ) -> tuple[dict[int, list[EncodedRequest]], list[AuditEntry]]:
        """The run requests of an outbox by the partition of their job, and the audit entries."""
        requests: dict[int, list[EncodedRequest]] = {}
        audit: list[AuditEntry] = []
        for each in outbox:
            if each.is_audit:
                audit.append(audit_entry(each, partition))
            elif each.control is not None:
                run, entries = acted(each, partition)
                audit += entries
                if run is not None:
                    requests.setdefault(partition_of(run.job, self._counts.partitions), []).append(run)
            elif each.revision is None:
                request, conflict = run_request(each)
                audit += [conflict] if conflict else []
                requests.setdefault(partition_of(request.job, self._counts.partitions), []).append(request)
        return requests, audit

    async def _map_again(
        self, partition: int, shard: int, outbox: Sequence[OutboxItem]
    ) -> tuple[dict[int, list[tuple[int, int, Mapped]]], list[AuditEntry]] | None:
        """What waited under older definitions (R6): contributions by their partition, and what counts nowhere now.

        None where the shard has lost what waits, which is neither sent nor acknowledged then.
        """
        moved = [each for each in outbox if each.moved_round is not None]
        read = await self._store.moved(partition, shard, moved)
        if read is None:
            return None
        fields = {each.field: held for each, held in zip(moved, read, strict=True)}
        by_partition: dict[int, list[tuple[int, int, Mapped]]] = {}
        audit: list[AuditEntry] = []
        for each in outbox:
            found = waiting(each, fields.get(each.field, ())) if each.revision is not None else None
            if found is None:
                continue
            await self._view.wait_for(found.revision + 1)
            mapped, closed = map_again(found, *self._defined_by(found.job.id, found.revision), partition)
            audit += closed
            for contribution in mapped:
                target = shard_of(found.job.id, contribution[2].target.placement.key, self._counts.shards)
                number = contributions_partition(target, self._counts.partitions)
                by_partition.setdefault(number, []).append(contribution)
        return by_partition, audit

    def _look_up(self, job_id: str, revision: int) -> tuple[DefinedJob | None, Plan]:
        """A job by the revision that changed it, with its ways."""
        view, stamp = self._view, revision + 1
        defined = view.job_from(job_id, revision)
        jobs = [] if defined is None else [defined]
        return defined, plan(jobs, view.assets_at(stamp), multi_team=view.is_multi_team_at(stamp))


def _encode_again(source: str, mapped: Sequence[tuple[int, int, Mapped]]) -> bytes:
    return batch_bytes(source, mapped, is_remapped=True)
