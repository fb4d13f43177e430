"""Small faults in timetables, assets, teams, dates and rounds, each of which the runner must notice."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from tests.conformance.faults import Fault, everywhere, put
from tidegate.core import access, cron, dates, rounds, zones
from tidegate.core.timetables import (
    ContinuousTimetable,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    DeltaDataIntervalTimetable,
    EventsTimetable,
    MultipleCronTriggerTimetable,
    PartitionedAssetTimetable,
    TimeRestriction,
    first_tick,
)
from tidegate.definitions import asset, uris
from tidegate.sdk import outlets
from tidegate.sdk.events import encode_event
from tidegate.simulate.job import SimulatedJob

FAULTS: Final[list[tuple[str, Fault]]] = []
"""Every fault with the topic that must notice it."""


def fault(name: str, topic: str = "cron") -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(seed: Callable[[], None]) -> Callable[[], None]:
        FAULTS.append((topic, Fault(name, seed)))
        return seed

    return register


# ---- ticks ----


@fault("every hour is a wildcard")
def _() -> None:
    put(cron.Cron, "_is_wildcard", property(lambda self: True))


@fault("no hour is a wildcard")
def _() -> None:
    put(cron.Cron, "_is_wildcard", property(lambda self: False))


@fault("a repeated time is the second one")
def _() -> None:
    first = zones.real_instant
    everywhere(first, lambda wall, zone, *, last=False: first(wall, zone, last=True))


@fault("a skipped time keeps its distance to the gap")
def _() -> None:
    def shifted(wall: datetime, zone: ZoneInfo, *, last: bool = False) -> datetime:
        return zones.instant(wall, zone)

    everywhere(zones.real_instant, shifted)


@fault("ticks are in UTC")
def _() -> None:
    put(cron.Cron, "_zone", property(lambda self: zones.zone_named("UTC")))


@fault("an expression that never ticks is accepted")
def _() -> None:
    def lenient(self: Any) -> None:
        return None

    put(cron.Cron, "__post_init__", lenient)


@fault("weekly is Monday")
def _() -> None:
    put(cron, "PRESETS", {**cron.PRESETS, "@weekly": "0 0 * * 1", "@daily": "0 1 * * *"})
    cron._parsed.cache_clear()
    put(cron.Crons, "at_or_before", lambda self, at: self.previous(at))


@fault("the tick of the start date itself is left out")
def _() -> None:
    put(cron.Cron, "at_or_after", lambda self, at: self.next(at))


@fault("the tick of now itself is left out")
def _() -> None:
    put(cron.Cron, "at_or_before", lambda self, at: self.previous(at))


# ---- timetables ----


@fault("end dates are exclusive")
def _() -> None:
    put(TimeRestriction, "is_past_end", lambda self, at: self.latest is not None and at >= self.latest)


@fault("catchup is always on")
def _() -> None:
    given = first_tick.next_tick
    everywhere(
        given,
        lambda ticks, last, restriction, now: given(ticks, last, restriction._replace(catchup=True), now),
    )


@fault("a first run never takes the tick that has passed")
def _() -> None:
    put(first_tick, "_first", lambda ticks, now, immediately: ticks.at_or_after(now))


@fault("a first run always takes the tick that has passed")
def _() -> None:
    put(first_tick, "_first", lambda ticks, now, immediately: ticks.at_or_before(now))


@fault("the buffer of a first run is an hour")
def _() -> None:
    put(first_tick, "_SHORTEST_BUFFER", timedelta(hours=1))


@fault("offsets go the other way")
def _() -> None:
    moved = CronPartitionTimetable._moved
    put(CronPartitionTimetable, "_moved", lambda self, tick, steps: moved(self, tick, -steps))


@fault("a repeated hour has the key of the first one")
def _() -> None:
    put(
        CronPartitionTimetable,
        "key_of",
        lambda self, at: zones.local(at, self._zone).strftime(self.key_format),
    )


@fault("keys are written in UTC")
def _() -> None:
    put(CronPartitionTimetable, "key_of", lambda self, at: at.astimezone(UTC).strftime(self.key_format))


@fault("backfills begin after their first partition")
def _() -> None:
    between = cron.Crons.between
    put(cron.Crons, "between", lambda self, a, b: (at for at in between(self, a, b) if at > a))


@fault("intervals of other schedules are covered twice")
def _() -> None:
    put(CronDataIntervalTimetable, "_start_after", lambda self, last: self._tick_at_or_before(last.last_end))


@fault("the latest complete interval is one too early")
def _() -> None:
    complete = CronDataIntervalTimetable._latest_complete
    put(
        CronDataIntervalTimetable,
        "_latest_complete",
        lambda self, now: self._tick_before(complete(self, now)),
    )


@fault("deltas begin at the moment of asking")
def _() -> None:
    put(DeltaDataIntervalTimetable, "_on_grid", lambda self, at: at)


@fault("several crons make up for every tick")
def _() -> None:
    ask = MultipleCronTriggerTimetable.next_dagrun_info_v2

    def eager(self: Any, *, last_dagrun_info: Any, restriction: Any) -> Any:
        return ask(self, last_dagrun_info=last_dagrun_info, restriction=restriction._replace(catchup=True))

    put(MultipleCronTriggerTimetable, "next_dagrun_info_v2", eager)


@fault("events are run again")
def _() -> None:
    ask = EventsTimetable.next_dagrun_info_v2
    put(
        EventsTimetable,
        "next_dagrun_info_v2",
        lambda self, *, last_dagrun_info, restriction: ask(
            self, last_dagrun_info=None, restriction=restriction
        ),
    )


@fault("events are restricted always")
def _() -> None:
    def restricted(self: Any, *, run_after: datetime) -> Any:
        always = replace(self, restrict_to_events=True)
        return infer(always, run_after=run_after)

    infer = EventsTimetable.infer_manual_data_interval
    put(EventsTimetable, "infer_manual_data_interval", restricted)


@fault("continuous runs may overlap")
def _() -> None:
    put(ContinuousTimetable, "active_runs_limit", None)


# ---- assets, teams, keys ----


@fault("a URI's host is lower-cased", "asset_uri")
def _() -> None:
    normal = uris.normal_uri
    everywhere(normal, lambda uri: normal(uri).lower())


@fault("a URI's query keeps its order", "asset_uri")
def _() -> None:
    put(uris, "urlencode", lambda pairs: urlencode(pairs[::-1]))


@fault("a URI without a bucket is accepted", "asset_uri")
def _() -> None:
    put(uris, "_NEEDS_A_HOST", frozenset())


@fault("passwords stay in names", "asset_uri")
def _() -> None:
    everywhere(uris.without_credentials, lambda text: text)


@fault("reserved names are accepted", "asset_uri")
def _() -> None:
    put(asset, "_RESERVED", frozenset())


@fault("any team takes any event", "access_control")
def _() -> None:
    put(access, "refusal", lambda **given: None)


@fault("consumer_teams are forgotten", "access_control")
def _() -> None:
    ask = access.refusal
    put(access, "refusal", lambda **given: ask(**{**given, "producer": None}))


@fault("requests count as pipelines", "access_control")
def _() -> None:
    ask = access.refusal
    put(access, "refusal", lambda **given: ask(**{**given, "from_api": False}))


@fault("blank keys are accepted", "runtime_keys")
def _() -> None:
    put(outlets, "validate_key", lambda key: key)


@fault("every emitted key has the run's date", "partition_date_resolution")
def _() -> None:
    def dated(*arguments: Any, **given: Any) -> bytes:
        return encode_event(*arguments, **{**given, "partition_date": datetime(2026, 3, 10, tzinfo=UTC)})

    put(outlets, "encode_event", dated)


# ---- dates and rounds ----


@fault("a missing date is a conflict", "partition_date_resolution")
def _() -> None:
    resolve = dates.resolve_partition_date

    def strict(contributed: Any) -> Any:
        every = tuple(contributed)
        return dates.ResolvedDate(None) if any(date.at is None for date in every) else resolve(every)

    everywhere(resolve, strict)


@fault("the oldest of several dates wins", "partition_date_resolution")
def _() -> None:
    resolve = dates.resolve_partition_date

    def oldest(contributed: Any) -> Any:
        found = resolve(contributed)
        return dates.ResolvedDate(found.conflict[0]) if found.conflict else found

    everywhere(resolve, oldest)


@fault("carried dates come first", "partition_date_resolution")
def _() -> None:
    resolve = dates.resolve_partition_date
    everywhere(
        resolve,
        lambda given: resolve(date._replace(decoded=not date.decoded) for date in given),
    )


@fault("typed keys are not looked at", "partition_date_resolution")
def _() -> None:
    put(PartitionedAssetTimetable, "resolve_partition_date", lambda self, key: None)


@fault("a dated round begins again", "scenarios")
def _() -> None:
    put(rounds.Rules, "rerun_policy_for", lambda self, *, dated: rounds.RerunPolicy.NEW_ROUND)


@fault("a round without a date never begins again", "scenarios")
def _() -> None:
    put(rounds.Rules, "rerun_policy_for", lambda self, *, dated: rounds.RerunPolicy.IGNORE)


@fault("one clause is as good as all", "scenarios")
def _() -> None:
    put(rounds, "_is_satisfied", lambda state, index: bool(state.members))


@fault("runs of paused jobs are lost", "scenarios")
def _() -> None:
    put(SimulatedJob, "_released", lambda self, runs: [] if self.paused else runs)


@fault("progress is dropped with the definition", "scenarios")
def _() -> None:
    put(SimulatedJob, "_waiting_events", lambda self: [])
