"""`tidegate explain`: why a run has not started, and what became of an event."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import typer

from tidegate.cli.options import (
    DEFAULT_KAFKA,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS,
    EventOption,
    JsonOption,
    KafkaOption,
    NamespaceOption,
    OptionalJobArgument,
    OptionalKeyArgument,
    RedisOption,
    round_key,
)
from tidegate.cli.output import as_plain, shown
from tidegate.cli.since import DEFAULT_SINCE, SinceOption, start_of
from tidegate.contracts.audit import AuditEntry
from tidegate.core.instants import from_ms
from tidegate.runtime.dead_letters import Kept
from tidegate.runtime.event_report import EventReport, JobReport
from tidegate.runtime.explaining import NothingToExplainError, report_on_round, reports_on_event
from tidegate.runtime.fates import COMPLETED, INCLUDED, WAITING, Fate, Ignored
from tidegate.runtime.redis import connect_redis
from tidegate.runtime.round_report import AssetProgress, RoundReport

_SHOWN: Final = 12
"""Lines of one kind; --json has all."""


def explain(
    job: OptionalJobArgument = None,
    key: OptionalKeyArgument = None,
    event: EventOption = None,
    since: SinceOption = DEFAULT_SINCE,
    as_json: JsonOption = False,
    kafka: KafkaOption = DEFAULT_KAFKA,
    redis: RedisOption = DEFAULT_REDIS,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Say why JOB has not run for KEY, or, with --event, what became of an event, for every job."""
    if (job is None) == (event is None):
        raise typer.BadParameter("name a JOB, with a KEY, or an event with --event ID")
    start = start_of(since)
    try:
        if job is not None:
            report = asyncio.run(_round(kafka, redis, namespace, job, round_key(key), start))
            said: Any = asdict(report)
            lines = list(_round_lines(report))
        else:
            assert event is not None
            reports, letters, entries = asyncio.run(_event(kafka, redis, namespace, event, start))
            said = {
                "events": [asdict(each) for each in reports],
                "dead_letters": [{"place": each.place} | each.letter.model_dump() for each in letters],
                "audit": [each.model_dump(mode="json", exclude_none=True) for each in entries],
            }
            lines = list(_event_lines(event, reports, letters, entries))
    except NothingToExplainError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(json.dumps(said, default=as_plain, indent=2) if as_json else "\n".join(lines))


async def _round(
    kafka: str, redis_url: str, namespace: str, job: str, key: str | None, since: int
) -> RoundReport:
    async with connect_redis(redis_url) as redis:
        return await report_on_round(kafka, redis, namespace, job, key, since)


async def _event(
    kafka: str, redis_url: str, namespace: str, event_id: str, since: int
) -> tuple[list[EventReport], list[Kept], list[AuditEntry]]:
    async with connect_redis(redis_url) as redis:
        return await reports_on_event(kafka, redis, namespace, event_id, since)


def _round_lines(report: RoundReport) -> Iterator[str]:
    yield f"{report.job} {'-' if report.key is None else report.key}: {report.verdict}"
    yield f"  definition   revision {report.revision}" + (
        f"; the open round began under revision {report.opened_by_revision}"
        if report.opened_by_revision not in (None, report.revision)
        else ""
    )
    if report.opened_at is not None:
        yield f"  open         since {shown(report.opened_at)}"
    for asset in report.assets:
        needs = "" if asset.needed == asset.expected else f", {asset.needed} needed"
        yield f"  {asset.asset}: {asset.arrived} of {asset.expected} in{needs}; waits by {asset.policy}"
        yield from _missing(asset, report.read_since)
    if report.deadline is not None:
        then, at = report.deadline
        yield f"  deadline     {shown(at)}, then {then}"
    elif report.opened_at is not None:
        yield "  deadline     none: it waits for as long as it takes"
    for each in report.held:
        yield f"  held back    {each}"
    for run in report.runs:
        how = f"{run.cause}{', partial' if run.is_partial else ''}"
        since = f" since {shown(run.updated_at)}" if run.updated_at is not None else ""
        yield f"  run          {run.run_id}, generation {run.generation} ({how}): {run.state}{since}"
        if run.error:
            yield f"    {run.error}"
    yield from _last(
        [
            f"  event        {each.event_id}: {', '.join(map(_fate, each.fates)) or 'nothing is known'}"
            for each in report.events
        ],
        "  ",
    )
    if report.ignored_counts:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(report.ignored_counts.items()))
        yield f"  audited      {counts}"
    yield from _last(list(map(_ignored, report.ignored)), "    ")
    if report.ignored_for_all_keys:
        yield "  ignored      events that the job has no key for:"
        yield from _last(list(map(_ignored, report.ignored_for_all_keys)), "    ")
    yield f"  read from    {shown(report.read_since)} on; --since looks further back"


def _event_lines(
    event_id: str, reports: Sequence[EventReport], letters: Sequence[Kept], entries: Sequence[AuditEntry]
) -> Iterator[str]:
    for report in reports:
        yield from _report_lines(report)
    for letter in letters:
        yield f"{event_id}: refused at {letter.origin}, {shown(from_ms(letter.letter.at))}"
        yield f"  {letter.letter.code}: {letter.letter.reason}"
        yield f"  kept as dead letter {letter.place}: `tidegate redrive --dead-letter {letter.place}` sends it again"
    if not reports and not letters:
        yield f"{event_id}: accepted before the time that was read; the audit log says of it"
    if not reports:
        for entry in entries:
            yield f"  {entry.kind.value}{f' ({entry.job})' if entry.job else ''}: {entry.message}"


def _report_lines(report: EventReport) -> Iterator[str]:
    key = "no key" if report.partition_key is None else f"key {report.partition_key}"
    yield f"{report.event_id} of {report.source}: asset {report.asset}, {key}"
    yield f"  accepted     {shown(report.received_at)}, at {report.position}"
    for note in report.notes:
        yield f"  {note.kind}: {note.message}"
    for job in report.jobs:
        if job.why_not is None:
            yield f"  reached      {job.job}: {_became(job)}"
    yield from _first(
        [f"  not for      {job.job}: {job.why_not}" for job in report.jobs if job.why_not is not None], "  "
    )
    if not any(job.why_not is None for job in report.jobs):
        yield "  it reached no job"


def _became(job: JobReport) -> str:
    if not job.fates:
        keys = ", ".join("-" if key is None else key for key in job.keys)
        return f"on its way to {keys}, or already in a run from before the time that was read"
    return ", ".join(map(_fate, job.fates))


def _fate(fate: Fate) -> str:
    if fate.how == WAITING:
        return f"waits in the open round of {'-' if fate.key is None else fate.key}"
    if fate.how in (INCLUDED, COMPLETED):
        return f"{fate.how}{' in' if fate.how == INCLUDED else ''} run {fate.run_id}"
    return f"{fate.how} ({fate.why})"


def _missing(asset: AssetProgress, read_since: datetime) -> Iterator[str]:
    """Members that are not in: each that was seen before, and the others together."""
    seen = [(each.name, each.last_seen) for each in asset.missing if each.last_seen is not None]
    yield from _first(
        [
            f"    missing {name}, last seen {shown(last.at)}: event {last.event_id} at {last.position}"
            for name, last in seen
        ],
        "    ",
    )
    if unseen := [each.name for each in asset.missing if each.last_seen is None]:
        more = f" and {len(unseen) - _SHOWN} more" if len(unseen) > _SHOWN else ""
        yield f"    missing, not seen since {shown(read_since)}: {', '.join(unseen[:_SHOWN])}{more}"


def _ignored(each: Ignored) -> str:
    return f"    {shown(each.at)} {each.kind}: {each.message}"


def _first(lines: Sequence[str], indent: str) -> Iterator[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"{indent}and {len(lines) - _SHOWN} more, see --json"


def _last(lines: Sequence[str], indent: str) -> Iterator[str]:
    if len(lines) > _SHOWN:
        yield f"{indent}{len(lines) - _SHOWN} before these, see --json"
    yield from lines[-_SHOWN:]
