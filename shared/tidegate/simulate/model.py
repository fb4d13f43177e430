"""A simulation: definitions, events, pauses and clock moves in; runs, pending rounds and audit entries out."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Leaf
from tidegate.core.timetables import DagRunInfo, TimeRestriction, next_run
from tidegate.definitions.asset import Asset, AssetAlias
from tidegate.definitions.job import Job
from tidegate.simulate.event import AssetEvent, Audit
from tidegate.simulate.job import PendingRound, Run, SimulatedJob

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = "/simulate"


class Simulation:
    """Tidegate in memory. The clock stands still until it is moved; everything else happens at once and in order."""

    def __init__(self, jobs: Iterable[Job] = (), *, now: datetime = START, multi_team: bool = False) -> None:
        self.now = now
        self.runs: list[Run] = []
        """Every run command so far, in order."""
        self.audit: list[Audit] = []
        self._multi_team = multi_team
        self._jobs: dict[str, SimulatedJob] = {}
        self._due: dict[str, DagRunInfo | None] = {}
        self._assets: dict[str, Asset] = {}
        self._ids = count(1)
        for job in jobs:
            self.define(job)

    def define(self, job: Job) -> list[Run]:
        """Add a job, or go on with another definition of it; what waits is kept."""
        for one in job.outlets:
            if isinstance(one, Asset):
                self._assets.setdefault(one.name, one)
        there = self._jobs.get(job.id)
        if there is None:
            there = self._jobs[job.id] = SimulatedJob(job, self.audit.append)
            runs: list[Run] = []
        else:
            runs = there.redefine(job)
        for leaf in there.leaves:
            if isinstance(leaf, Asset):
                self._assets[leaf.name] = leaf
        self._due[job.id] = self._next(job, None)
        return self._sent(runs)

    def remove(self, job_id: str) -> None:
        """Forget a job; rounds that are open are closed with an audit entry each."""
        removed = self._jobs.pop(job_id)
        self._due.pop(job_id, None)
        for pending in removed.pending():
            self.audit.append(
                Audit(AuditKind.ROUND_CLOSED, "its job was deleted", job_id, None, pending.partition_key)
            )

    def pause(self, job_id: str, paused: bool = True) -> list[Run]:
        """Pause or resume a job; resuming lets completed rounds go, in order."""
        return self._sent(self._jobs[job_id].pause(paused))

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
        """An asset was updated; without an id it is an event of its own."""
        found = self._find(asset, asset_uri)
        event = AssetEvent(
            found,
            partition_key,
            id or f"event-{next(self._ids)}",
            source,
            int(self.now.timestamp() * 1000),
            partition_date,
            dict(extra or {}),
            team,
            tuple(aliases),
        )
        takers = [job for job in self._jobs.values() if self._is_named_by(job, event)]
        if not takers and found.name not in self._assets:
            self.audit.append(
                Audit(AuditKind.UNKNOWN_ASSET, "no definition names it", asset=found.name, event_id=event.id)
            )
        runs = []
        for job in takers:
            runs += job.take(event, multi_team=self._multi_team)
        return self._sent(runs)

    def move_clock(self, to: datetime) -> list[Run]:
        """Let time pass; every tick on the way starts its run, earliest first."""
        runs: list[Run] = []
        while True:
            due = [
                (info.run_after, job_id)
                for job_id, info in self._due.items()
                if info and info.run_after <= to
            ]
            if not due:
                break
            at, job_id = min(due)
            self.now = max(self.now, at)
            job, info = self._jobs[job_id], self._due[job_id]
            assert info is not None
            runs += job.start(info)
            following = self._next(job.job, info)
            self._due[job_id] = None if following == info else following
        self.now = max(self.now, to)
        return self._sent(runs)

    def pending(self, job_id: str | None = None) -> list[PendingRound]:
        """The open rounds of a job, or of all."""
        jobs = self._jobs.values() if job_id is None else [self._jobs[job_id]]
        return [pending for job in jobs for pending in job.pending()]

    def _next(self, job: Job, last: DagRunInfo | None) -> DagRunInfo | None:
        if job.schedule is None or not job.schedule.can_be_scheduled:
            return None
        restriction = TimeRestriction(job.start_date, job.end_date, job.catchup, self.now, job.id)
        return next_run(job.schedule, last, restriction)

    def _find(self, asset: Asset | str | None, uri: str | None) -> Asset:
        if isinstance(asset, Asset):
            return asset
        if uri is not None:
            known = next((one for one in self._assets.values() if one.uri == Asset(uri=uri).uri), None)
            return known or Asset(asset, uri)
        return self._assets.get(asset or "") or Asset(asset)

    @staticmethod
    def _is_named_by(job: SimulatedJob, event: AssetEvent) -> bool:
        leaves: tuple[Leaf, ...] = job.leaves
        return any(leaf.same_asset(event.asset) or leaf in event.aliases for leaf in leaves)

    def _sent(self, runs: list[Run]) -> list[Run]:
        self.runs += runs
        return runs
