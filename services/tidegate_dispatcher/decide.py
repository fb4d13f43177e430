"""What a batch of run requests, people's actions and run events changes: pure, given the states that it is about.

Every run goes through the queue of its job, where it stays while the job is paused or as many of its runs are active as
may be. The first in the queue is the one that was asked for first; of runs that were asked for at one time, the one
whose key comes first (B004).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from tidegate.contracts.audit import AuditEntry, audit_id
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import partition_of
from tidegate.contracts.runs import (
    ACTIVE,
    ENDED,
    FailRun,
    JobControl,
    JobState,
    Outlet,
    Redrive,
    Run,
    RunEvent,
    RunRequest,
    RunState,
    encoded_command,
)
from tidegate.contracts.topics import MAX_INTERNAL_BYTES, RUN_COMMANDS_PREFIX, RUN_EVENTS
from tidegate.core.audit import AuditKind
from tidegate.definitions import Asset, AssetAlias, Job

SERVICE = "dispatcher"
FIRED_AT_ONCE = 500
"""Rounds that one entry of the audit log tells of: with keys of 250 characters it stays below 1 MiB."""

FRAMING_BYTES = 2 * 1024
"""What Kafka adds to the value of one record: its key, of up to 250 characters, and the frames of record and batch."""
Place = tuple[int, str, int, int, str]
NOWHERE: Final[Place] = (-1, "", 0, 0, "")
"""Before every place of a run in its queue."""
JOBS_NAMED: Final = 20
"""How many jobs an audit entry about the cap names (B007)."""


class Requested(NamedTuple):
    """A run request with the log that its coordinates belong to."""

    source: str
    request: RunRequest
    at: int
    """Time of its record, milliseconds since 1970."""
    by: str | None = None
    """The person who asked for it."""


class Redriven(NamedTuple):
    redrive: Redrive
    at: int


class Controlled(NamedTuple):
    control: JobControl
    at: int


class Failed(NamedTuple):
    action: FailRun


Input = Requested | Redriven | Controlled | Failed | RunEvent


class Queue(NamedTuple):
    """A job's runs that have not ended."""

    is_paused: bool = False
    active: int = 0
    queued: int = 0
    first: tuple[Run, ...] = ()
    """As many of those that wait as `Wanted` asks for, in order."""


class Known(NamedTuple):
    """What is stored, as of one moment."""

    next_offset: int | None
    runs: Mapping[str, Run]
    queues: Mapping[str, Queue]
    """Of every job that was asked for."""
    at: int = 0
    """Time of the record before `next_offset`, milliseconds since 1970; 0 where it is not known."""


class Heads(NamedTuple):
    """How many of a job's waiting runs a batch may send."""

    limit: int | None
    ends: int
    """How many active runs may end in the batch."""
    is_resumed: bool


class Wanted(NamedTuple):
    """What must be known to decide on a batch."""

    run_ids: Sequence[str]
    heads: Mapping[str, Heads]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decisions depend on besides their inputs."""

    partition: int
    partitions: int
    now: int
    """Milliseconds since 1970."""
    job_of: Callable[[RunRequest], Job | None]
    """The definition that a request is dispatched by; None where the job is gone."""
    active_runs_of: Callable[[str], int | None]
    """How many runs of a job may be active at once, None for no limit."""
    cap: int
    """How many commands one transaction may send."""


class Command(NamedTuple):
    """A run command to send."""

    topic: str
    key: str
    value: bytes


@dataclass(slots=True)
class Decisions:
    """What one transaction writes."""

    commands: list[Command] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    """The new states, by run id."""
    jobs: dict[str, JobState] = field(default_factory=dict)
    audit: list[AuditEntry] = field(default_factory=list)
    looked_at: set[str] = field(default_factory=set)
    """The runs that are new, or whose turn it was."""
    left: dict[str, int] = field(default_factory=dict)
    """How many more runs of which jobs could go out by now, but for the cap or since they were not read."""
    is_capped: bool = False
    """Whether the cap was reached and some of those are left."""
    forwarded: list[Outgoing] = field(default_factory=list)
    """Reports that came to another partition than their job's."""
    fired: list[RunRequest] = field(default_factory=list)
    """The rounds whose runs are taken up here, to be told by `fired_entries`."""


def commands_topic(job_id: str, job: Job | None) -> str:
    """Where the workers of a job listen."""
    return (job.run_commands_topic if job else None) or RUN_COMMANDS_PREFIX + job_id


def wanted(
    inputs: Collection[Input], look: Iterable[str], active_runs_of: Callable[[str], int | None]
) -> Wanted:
    """What to read for a batch; `look` names jobs whose queues may move without any input."""
    run_ids = dict.fromkeys(filter(None, map(_run_id, inputs)))
    ends = Counter(_job(each) for each in inputs if isinstance(each, RunEvent | Failed))
    resumed = {each.control.job for each in inputs if isinstance(each, Controlled)}
    jobs = dict.fromkeys([*look, *map(_job, inputs)])
    return Wanted(list(run_ids), {job: Heads(active_runs_of(job), ends[job], job in resumed) for job in jobs})


def _run_id(each: Input) -> str | None:
    if isinstance(each, RunEvent):
        return each.run_id
    if isinstance(each, Failed):
        return each.action.run_id
    return None if isinstance(each, Controlled) else _request(each).run_id


def _job(each: Input) -> str:
    if isinstance(each, RunEvent):
        return each.job
    if isinstance(each, Failed):
        return each.action.job
    return each.control.job if isinstance(each, Controlled) else _request(each).job


def _request(each: Requested | Redriven) -> RunRequest:
    return each.request if isinstance(each, Requested) else each.redrive.request


def may_be_sent(inputs: Iterable[Input], known: Known) -> list[RunRequest]:
    """The requests whose commands `decide` may send."""
    new = [_request(each) for each in inputs if isinstance(each, Requested | Redriven)]
    return new + [run.request for queue in known.queues.values() for run in queue.first if run.request]


def decide(
    inputs: Iterable[Input], known: Known, surroundings: Surroundings, limits: Mapping[str, int]
) -> Decisions:
    """The decisions on `inputs` in order, and then on what waits; `known` is what `wanted` asks for.

    `limits` says how many bytes a record may have, by topic, of all topics that exist and `may_be_sent` leads to.
    """
    desk = _Desk(known, surroundings, limits)
    for each in inputs:
        desk.take(each)
    desk.dispatch()
    return desk.decisions


@dataclass(slots=True)
class _Line:
    """A job's queue as the inputs so far leave it."""

    limit: int | None
    is_paused: bool
    active: int
    queued: int
    first: list[tuple[Place, Run]]
    """A heap by place, of those that were read and those that came in."""
    known_up_to: Place | None
    """The place of the last that was read, where more wait that were not; anything up to there is in `first`."""

    @property
    def next_place(self) -> Place | None:
        """That of the run whose turn it is, None where that one was not read or none may go out."""
        if not self.ready or not self.first:
            return None
        place = self.first[0][0]
        return place if self.known_up_to is None or place <= self.known_up_to else None

    @property
    def ready(self) -> int:
        """How many runs may go out now."""
        if self.is_paused:
            return 0
        return self.queued if self.limit is None else max(0, min(self.queued, self.limit - self.active))


class _Desk:
    def __init__(self, known: Known, surroundings: Surroundings, limits: Mapping[str, int]) -> None:
        self._known, self._surroundings, self._limits = known, surroundings, limits
        self._lines: dict[str, _Line] = {}
        self.decisions = Decisions()
        for job in known.queues:
            self._line(job)

    def take(self, each: Input) -> None:
        if isinstance(each, RunEvent):
            self._report(each)
        elif isinstance(each, Controlled):
            self._control(each)
        elif isinstance(each, Redriven):
            self._redrive(each)
        elif isinstance(each, Failed):
            self._fail(each.action)
        else:
            self._ask(each)

    def dispatch(self) -> None:
        """Send what may go out, the oldest first, up to the cap.

        As many were read of each job as may go out. Where one of them cannot be sent, its place goes to the next in the
        queue: that of a job of which none is left that was read has its turn in the next transaction.
        """
        lines = [(place, job) for job, line in self._lines.items() if (place := line.next_place)]
        heapify(lines)
        sent = 0
        while lines and sent < self._surroundings.cap:
            _, job = heappop(lines)
            line = self._lines[job]
            _, run = heappop(line.first)
            self._send(run)
            sent += 1
            if place := line.next_place:
                heappush(lines, (place, job))
        self.decisions.left = {job: line.ready for job, line in self._lines.items() if line.ready}
        self.decisions.is_capped = sent >= self._surroundings.cap and bool(self.decisions.left)

    def _line(self, job: str) -> _Line:
        if job not in self._lines:
            queue = self._known.queues.get(job, Queue())
            first = [(_place(run), run) for run in queue.first]  # sorted, and so a heap
            limit = self._surroundings.active_runs_of(job)
            known_up_to = None
            if len(first) < queue.queued:
                known_up_to = first[-1][0] if first else NOWHERE
            self._lines[job] = _Line(limit, queue.is_paused, queue.active, queue.queued, first, known_up_to)
        return self._lines[job]

    def _run(self, run_id: str) -> Run | None:
        return self.decisions.runs.get(run_id) or self._known.runs.get(run_id)

    def _put(self, run: Run, before: Run | None) -> None:
        line = self._line(run.job)
        for state, change in ((before.state if before else None, -1), (run.state, 1)):
            line.active += change * (state in ACTIVE)
            line.queued += change * (state is RunState.QUEUED)
        self.decisions.runs[run.run_id] = run

    def _audit(
        self,
        kind: AuditKind,
        message: str,
        run: Run | RunRequest | FailRun,
        *made_of: object,
        **details: object,
    ) -> None:
        self.decisions.audit.append(
            AuditEntry(
                id=audit_id(kind, run.run_id, *made_of),
                kind=kind,
                service=SERVICE,
                at=self._surroundings.now,
                message=message,
                job=run.job,
                partition_key=run.partition_key,
                details={"run_id": run.run_id, **details},
            )
        )

    # Inputs

    def _ask(self, asked: Requested) -> None:
        request, run = asked.request, self._run(asked.request.run_id)
        if run is not None:
            if (run.source, run.offset) != (asked.source, request.offset):
                message = (
                    f"run {request.run_id} was requested again from {asked.source}@{request.offset}, first from"
                    f" {run.source}@{run.offset}: no second command is sent"
                )
                self._audit(AuditKind.RUN_ID_MISMATCH, message, request, asked.source, request.offset)
            return
        if asked.by is not None:
            message = f"{asked.by} started run {request.run_id} of job {request.job!r}"
            self._audit(AuditKind.RUN_TRIGGERED, message, request, by=asked.by)
        new = Run(
            run_id=request.run_id,
            job=request.job,
            incarnation=request.incarnation,
            partition_key=request.partition_key,
            partition_date=request.partition_date,
            generation=request.generation,
            state=RunState.FAILED if request.failed else RunState.QUEUED,
            source=asked.source,
            offset=request.offset,
            cause=request.cause,
            asked_at=asked.at,
            sent_at=self._surroundings.now,
            updated_at=self._surroundings.now,
            error=request.failed,
            request=None if request.failed else request,
        )
        self._put(new, None)
        self.decisions.looked_at.add(new.run_id)
        if not request.failed:  # a deadline that fails a round is audited as that
            if asked.by is None:
                self.decisions.fired.append(request)
            heappush(self._line(new.job).first, (_place(new), new))

    def _report(self, event: RunEvent) -> None:
        # A status belongs to (run, attempt); an end is final. Reports are repeated freely, so none of this is audited.
        run = self._run(event.run_id)
        if run is None:
            self._forward(event)
            return
        if event.attempt != run.attempt or run.state not in ACTIVE or event.state == run.state:
            return
        if event.state in (RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED):
            key = run.partition_key
            if key is None and event.state is RunState.SUCCEEDED:
                key = event.partition_key  # the run gave it to itself (rule D8)
            changed = {
                "state": event.state,
                "updated_at": self._surroundings.now,
                "error": event.error,
                "partition_key": key,
            }
            self._put(run.model_copy(update=changed), run)

    def _forward(self, event: RunEvent) -> None:
        """Pass on a report that came to another partition than its job's, as from a client that hashes keys otherwise.

        That is where its job's runs are, unless it names a wrong job: then nobody knows its run there either, and it
        ends there, since no report is passed on from its job's own partition (rule T5).
        """
        right = partition_of(event.job, self._surroundings.partitions)
        if right != self._surroundings.partition:
            self.decisions.forwarded.append(Outgoing(RUN_EVENTS, right, event.job.encode(), event.to_bytes()))

    def _fail(self, action: FailRun) -> None:
        run, about = self._run(action.run_id), {"by": action.by, "action": "fail"}
        if run is None or run.attempt != action.attempt or run.state not in ACTIVE:
            why = "nothing is known of it any more"
            if run is not None:
                why = f"its attempt {run.attempt} is {run.state.value}"
            message = (
                f"attempt {action.attempt} of run {action.run_id} was to be ended by {action.by}, but {why}"
            )
            self._audit(AuditKind.ACTION_WITHOUT_EFFECT, message, action, action.id, **about)
            return
        message = f"{action.by} ended run {run.run_id} as failed, which was {run.state.value}"
        self._audit(AuditKind.RUN_FAILED, message, run, action.id, **about)
        changed = {
            "state": RunState.FAILED,
            "updated_at": self._surroundings.now,
            "error": f"ended as failed by {action.by}",
        }
        self._put(run.model_copy(update=changed), run)

    def _control(self, controlled: Controlled) -> None:
        control, line = controlled.control, self._line(controlled.control.job)
        is_paused = control.kind == "pause"
        done = "paused" if is_paused else "resumed"
        kind = AuditKind.JOB_PAUSED if is_paused else AuditKind.JOB_RESUMED
        message = f"{control.by} {done} job {control.job!r}: {line.queued} of its runs wait"
        if line.is_paused == is_paused:
            kind = AuditKind.ACTION_WITHOUT_EFFECT
            now = "is paused" if is_paused else "is not paused"
            message = f"job {control.job!r} was to be {done} by {control.by}, but it {now}"
        else:
            line.is_paused = is_paused
            self.decisions.jobs[control.job] = JobState(
                job=control.job, is_paused=is_paused, by=control.by, at=controlled.at
            )
        self.decisions.audit.append(
            AuditEntry(
                id=audit_id(kind, control.id),
                kind=kind,
                service=SERVICE,
                at=controlled.at,
                message=message,
                job=control.job,
                details={"by": control.by, "action": control.kind, "id": control.id},
            )
        )

    def _redrive(self, redriven: Redriven) -> None:
        redrive, request = redriven.redrive, redriven.redrive.request
        run = self._run(request.run_id)
        about = {"by": redrive.by, "action": "redrive", "origin": redrive.origin}
        if run is None or run.state is not RunState.UNDELIVERABLE:
            why = "nothing is known of it any more" if run is None else f"it is {run.state.value}"
            message = f"run {request.run_id} was to be sent again by {redrive.by}, but {why}"
            self._audit(AuditKind.ACTION_WITHOUT_EFFECT, message, request, redrive.id, **about)
            return
        message = f"{redrive.by} has run {request.run_id} sent again, which was undeliverable: {run.error}"
        self._audit(AuditKind.RUN_REDRIVEN, message, request, redrive.id, **about)
        changed = {
            "state": RunState.QUEUED,
            "request": request,
            "asked_at": redriven.at,
            "sent_at": self._surroundings.now,
            "updated_at": self._surroundings.now,
            "error": None,
        }
        again = run.model_copy(update=changed)
        self._put(again, run)
        heappush(self._line(run.job).first, (_place(again), again))

    # Outputs

    def _send(self, run: Run) -> None:
        request, surroundings = run.request, self._surroundings
        assert request is not None, f"run {run.run_id} waits without its request"
        job = surroundings.job_of(request)
        topic = commands_topic(request.job, job)
        outlets = map(_outlet, job.outlets if job else ())
        value = encoded_command(request, run.attempt, outlets, surroundings.partition)
        problem = _undeliverable(request, topic, len(value), self._limits.get(topic))
        if problem:
            self._audit(AuditKind.DISPATCH_FAILED, problem, request, run.asked_at)
        else:
            self.decisions.commands.append(Command(topic, request.partition_key or request.job, value))
        changed = {
            "state": RunState.UNDELIVERABLE if problem else RunState.SENT,
            "sent_at": surroundings.now,
            "updated_at": surroundings.now,
            "error": problem,
            "request": None,
        }
        self._put(run.model_copy(update=changed), run)
        self.decisions.looked_at.add(run.run_id)


def fired_entries(requests: Iterable[RunRequest], now: int) -> Iterator[AuditEntry]:
    """Which rounds have fired, job by job and some hundred in an entry, since an entry for each costs too much."""
    by_job: dict[str, list[RunRequest]] = {}
    for request in requests:
        by_job.setdefault(request.job, []).append(request)
    for job, fired in by_job.items():
        for first in range(0, len(fired), FIRED_AT_ONCE):
            some = fired[first : first + FIRED_AT_ONCE]
            runs = [{"run_id": each.run_id, "partition_key": each.partition_key} for each in some]
            yield AuditEntry(
                id=audit_id(AuditKind.FIRED, *(each.run_id for each in some)),
                kind=AuditKind.FIRED,
                service=SERVICE,
                at=now,
                message=f"rounds fired: {len(some)}",
                job=job,
                details={"runs": runs},
            )


def _place(run: Run) -> Place:
    """What orders the queue of a job: the time, the key, and of one key the order in which its rounds fired."""
    ordinal = run.request.ordinal if run.request else 0
    return run.asked_at, run.partition_key or "", run.offset, ordinal, run.run_id


def _outlet(outlet: Asset | AssetAlias) -> Outlet:
    if isinstance(outlet, AssetAlias):
        return Outlet(name=outlet.name, kind="alias")
    return Outlet(name=outlet.name, uri=outlet.uri)


def _undeliverable(request: RunRequest, topic: str, size: int, limit: int | None) -> str | None:
    """Why a command can never be sent, None where it can (rule T8)."""
    if limit is None:
        return f"topic {topic!r} does not exist: run `tidegate apply` again or create it"
    largest = min(limit - FRAMING_BYTES, MAX_INTERNAL_BYTES)
    if request.oversize is not None or size > largest:
        return (
            f"the run's command has {request.oversize or size} bytes, more than the {largest} that fit into topic"
            f" {topic!r}: keep large data out of extra and put its address there, or raise max.message.bytes"
        )
    return None


def cap_reached(partition: int, run_ids: Collection[str], left: Mapping[str, int], now: int) -> AuditEntry:
    """The entry that one transaction does not take all that is ready (B007).

    `run_ids` are the runs that it looks at, `left` says how many more there are, by job.
    """
    evaluated, jobs = len(run_ids), sorted(left)
    total = evaluated + sum(left.values())
    return AuditEntry(
        id=audit_id(AuditKind.DISPATCH_CAP_REACHED, partition, min(run_ids, default=""), total),
        kind=AuditKind.DISPATCH_CAP_REACHED,
        service=SERVICE,
        at=now,
        message=(
            f"{total} runs are ready, and the dispatcher looks at {evaluated} of them at a time"
            " (TIDEGATE_DISPATCH_CAP): the others follow"
        ),
        details={
            "evaluated": evaluated,
            "total": total,
            "jobs": jobs[:JOBS_NAMED],
            "more_jobs": len(jobs[JOBS_NAMED:]),
            "partition": partition,
        },
    )


def forgettable(
    runs: Sequence[Run],
    horizon_ms: int,
    now: int,
    acknowledged: Mapping[str, int],
    active_runs_of: Callable[[str], int | None],
) -> list[str]:
    """The runs whose ids need not be remembered any more (rule T7).

    `acknowledged` gives, by log, the offset below which nobody asks for a run again. What waits or runs is kept, and so
    is what was sent where the job counts its active runs; elsewhere workers need not report at all.
    """
    return [
        run.run_id
        for run in runs
        if run.sent_at < now - horizon_ms
        and run.offset < acknowledged.get(run.source.partition("#")[0], 0)
        and (run.state in ENDED or (run.state is RunState.SENT and active_runs_of(run.job) is None))
    ]
