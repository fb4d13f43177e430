"""A simulation: definitions, events, pauses and clock moves in; runs, pending rounds and audit entries out."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

from tidegate.core.audit import AuditKind, kind_of_refusal
from tidegate.core.instants import to_ms
from tidegate.core.rounds import HORIZON_MS
from tidegate.core.timetables import DagRunInfo, TimeRestriction, next_run
from tidegate.core.timetables.switching import run_when_switched_on
from tidegate.definitions.asset import Asset, AssetAlias
from tidegate.definitions.job import Job
from tidegate.definitions.known import known_assets, names_by_uri, outlets_of, unknown_asset
from tidegate.simulate.event import AssetEvent, Audit, Happened, PendingRound, Run
from tidegate.simulate.job import SimulatedJob

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE: Final = "/simulate"


class Simulation:
    """Tidegate in memory. The clock stands still until it is moved; everything else happens at once and in order.

    With `run_outlets` every run succeeds at once, and updates the assets in its job's outlets with its own key and
    date, so that the jobs that wait for them follow. What a run would decide itself is not guessed: the partitions of
    a job that is partitioned at runtime, and the assets behind an alias.
    """

    def __init__(
        self,
        jobs: Iterable[Job] = (),
        *,
        now: datetime = START,
        multi_team: bool = False,
        run_outlets: bool = True,
    ) -> None:
        self.now = now
        self.happened: list[Happened] = []
        """Every run command and every audit entry so far, in order."""
        self.runs: list[Run] = []
        self.audit: list[Audit] = []
        self.notices: list[str] = []
        """What a person should know about the simulation itself."""
        self._multi_team = multi_team
        self._run_outlets = run_outlets
        self._jobs: dict[str, SimulatedJob] = {}
        self._last: dict[str, DagRunInfo] = {}
        """The last run that time gave, by job."""
        self._due: dict[str, DagRunInfo | None] = {}
        self._declared: dict[str, Asset] = {}
        self._assets: dict[str, Asset] = {}
        """Every asset that a definition names."""
        self._seen: dict[tuple[str, str], int] = {}
        self._ids = count(1)
        for job in jobs:
            self.define(job)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(each.job for each in self._jobs.values())

    def declare(self, asset: Asset) -> None:
        """Make an asset known, with its URI and what it says of teams."""
        self._declared[asset.name] = asset
        self._name_assets()

    def define(self, job: Job) -> list[Run]:
        """Add a job, or go on with another definition of it; what waits is kept."""
        there = self._jobs.get(job.id)
        if there is None:
            there = self._jobs[job.id] = SimulatedJob(job, self._note)
            runs: list[Run] = []
        else:
            runs = there.redefine(job, multi_team=self._multi_team)
        self._name_assets()
        return self._sent(runs) + self._switched_on(there)

    def remove(self, job_id: str) -> None:
        """Forget a job; rounds that are open, and runs that are held, are closed with an audit entry each."""
        removed = self._jobs.pop(job_id)
        self._due.pop(job_id, None)
        self._last.pop(job_id, None)
        self._name_assets()
        keys = [run.partition_key for run in removed.held]
        for key in (*keys, *(pending.partition_key for pending in removed.pending())):
            self._note(Audit(AuditKind.ROUND_CLOSED, "its job was deleted", job_id, partition_key=key))

    def pause(self, job_id: str, paused: bool = True) -> list[Run]:
        """Pause or resume a job; resuming lets completed rounds go, in order (rule D3), and time start runs again."""
        job = self._jobs[job_id]
        was_paused = job.paused
        runs = self._sent(job.pause(paused))
        return runs + self._switched_on(job) if was_paused is not paused else runs

    def event(
        self,
        asset: Asset | str | None = None,
        partition_key: str | None = None,
        *,
        asset_uri: str | None = None,
        partition_date: datetime | None = None,
        extra: Mapping[str, Any] | None = None,
        id: str | None = None,
        source: str = SOURCE,
        team: str | None = None,
        aliases: Iterable[AssetAlias] = (),
    ) -> list[Run]:
        """An asset was updated; without an id it is an event of its own. Returns every run that follows."""
        event = AssetEvent(
            self._find(asset, asset_uri),
            partition_key,
            id or f"event-{next(self._ids)}",
            source,
            to_ms(self.now),
            partition_date,
            dict(extra or {}),
            team,
            tuple(aliases),
        )
        return self._sent(self._take(event))

    def refuse(self, code: str, reason: str, fields: Mapping[str, Any]) -> None:
        """An event that is refused at ingest, as it was written."""
        text = {name: value for name, value in fields.items() if isinstance(value, str)}
        self._note(
            Audit(
                kind_of_refusal(code),
                reason,
                asset=text.get("asset") or text.get("asset_uri"),
                partition_key=text.get("partition_key"),
                event_id=text.get("id"),
                event_source=text.get("source"),
                details={"code": code},
            )
        )

    def move_clock(self, to: datetime) -> list[Run]:
        """Let time pass; every tick on the way starts its run, earliest first."""
        runs = self._tick(to)
        for job_id, last in self._last.items():
            if self._due.get(job_id) is None and not (job := self._jobs[job_id]).paused:
                found = self._next(job.job, last)  # one that never ends runs again when time has passed
                self._due[job_id] = found if found and found.run_after > last.run_after else None
        return runs + self._tick(to)

    def pending(self, job_id: str | None = None) -> list[PendingRound]:
        """The open rounds of a job, or of all."""
        jobs = self._jobs.values() if job_id is None else [self._jobs[job_id]]
        return [pending for job in jobs for pending in job.pending()]

    def held(self) -> list[Run]:
        """The runs of paused jobs that go out when these are resumed."""
        return [run for job in self._jobs.values() for run in job.held]

    # ---- time ----

    def _tick(self, to: datetime) -> list[Run]:
        runs: list[Run] = []
        while True:
            due = [
                (info.run_after, job_id)
                for job_id, info in self._due.items()
                if info is not None and info.run_after <= to
            ]
            if not due:
                break
            at, job_id = min(due)
            self.now = max(self.now, at)
            job, info = self._jobs[job_id], self._due[job_id]
            assert info is not None
            self._last[job_id] = info
            following = self._next(job.job, info)
            stands = following is not None and following.run_after <= info.run_after
            self._due[job_id] = None if stands and info.partition_key is None else following
            self._note_shift(job.job, info)
            runs += self._sent([job.start(info)])
        self.now = max(self.now, to)
        return runs

    def _switched_on(self, there: SimulatedJob) -> list[Run]:
        """Let time start the runs of a job that is defined or resumed (rule D10), also one that is due now.

        While it is paused, time starts none.
        """
        job, last = there.job, self._last.get(there.job.id)
        self._due[job.id] = None
        if there.paused or job.schedule is None or not job.schedule.can_be_scheduled:
            return []
        if last is None and job.start_date is None:
            self._due[job.id] = self._next(job, None)
        else:
            self._due[job.id] = run_when_switched_on(job.schedule, last, self._restriction(job), self.now)
        return self._tick(self.now)

    def _next(self, job: Job, last: DagRunInfo | None) -> DagRunInfo | None:
        if job.schedule is None or not job.schedule.can_be_scheduled:
            return None
        return next_run(job.schedule, last, self._restriction(job))

    def _restriction(self, job: Job) -> TimeRestriction:
        return TimeRestriction(job.start_date, job.end_date, job.catchup, self.now, job.id)

    def _note_shift(self, job: Job, info: DagRunInfo) -> None:
        is_shifted = getattr(job.schedule, "is_shifted", None)
        if is_shifted is None or info.partition_date is None or not is_shifted(info.partition_date):
            return
        reason = f"a clock change skipped the scheduled time: it runs for {info.partition_date.isoformat()}"
        self._note(Audit(AuditKind.TICK_SHIFTED, reason, job.id, partition_key=info.partition_key))

    # ---- events ----

    def _name_assets(self) -> None:
        self._assets = known_assets(self._declared, self.jobs)

    def _take(self, event: AssetEvent) -> list[Run]:
        """The runs that an event leads to at once, after ingest's checks."""
        identity = (event.source, event.id)
        first = self._seen.get(identity)
        if first is not None and first >= event.at - HORIZON_MS:
            reason = f"event {event.id!r} of {event.source!r} was received before"
            self._note_event(AuditKind.DUPLICATE_EVENT, reason, event)
            return []
        self._seen[identity] = event.at
        takers = [job for job in self._jobs.values() if _is_named_by(job, event)]
        if event.asset.name not in self._assets:
            reason = unknown_asset(event.asset.name, [alias.name for alias in event.aliases])
            self._note_event(AuditKind.UNKNOWN_ASSET, reason, event)
        return [run for job in takers for run in job.take(event, multi_team=self._multi_team)]

    def _find(self, asset: Asset | str | None, uri: str | None) -> Asset:
        if isinstance(asset, Asset):
            return asset
        if asset is not None and asset in self._assets:
            return self._assets[asset]
        if asset is None and uri is not None:
            wanted = Asset(uri=uri)
            named = names_by_uri(self._assets).get(wanted.uri)
            return self._assets[named[0]] if named else wanted
        return Asset(asset, uri)

    def _note_event(self, kind: AuditKind, reason: str, event: AssetEvent) -> None:
        self._note(
            Audit(
                kind,
                reason,
                asset=event.asset.name,
                partition_key=event.key,
                event_id=event.id,
                event_source=event.source,
            )
        )

    def _note(self, audit: Audit) -> None:
        self.audit.append(audit)
        self.happened.append(Happened(self.now, audit))

    # ---- runs ----

    def _sent(self, runs: list[Run]) -> list[Run]:
        """Give out runs, and whatever follows from their outlets; every run in its order."""
        sent: list[Run] = []
        waiting = deque(runs)
        while waiting:
            run = replace(waiting.popleft(), id=f"run-{len(self.runs) + 1}")
            sent.append(run)
            self.runs.append(run)
            self.happened.append(Happened(self.now, run))
            for event in self._outlet_events(run):
                waiting += self._take(event)
        return sent

    def _outlet_events(self, run: Run) -> list[AssetEvent]:
        """What a run says when it succeeds."""
        job = self._jobs[run.job].job if run.job in self._jobs else None
        outlets = outlets_of(job) if job is not None else []
        if job is None or not outlets or not self._run_outlets or _decides_keys_itself(job):
            return []
        chain = run.completed_by.chain if run.completed_by is not None else ()
        if job.id in chain:
            self.notices.append(
                f"job {job.id!r} leads to itself ({' -> '.join((*chain, job.id))}): the outlets of {run.id} are not"
                " updated again"
            )
            return []
        return [
            AssetEvent(
                outlet,
                run.partition_key,
                f"{run.id}:{outlet.name}",
                f"/tidegate/jobs/{job.id}",
                to_ms(self.now),
                run.partition_date,
                team=job.team,
                chain=(*chain, job.id),
            )
            for outlet in outlets
        ]


def _is_named_by(job: SimulatedJob, event: AssetEvent) -> bool:
    return any(leaf.same_asset(event.asset) or leaf in event.aliases for leaf in job.leaves)


def _decides_keys_itself(job: Job) -> bool:
    return job.schedule is not None and job.schedule.partitioned_at_runtime
