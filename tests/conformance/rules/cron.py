"""What docs/rules.md decides otherwise about timetables.

Ticks are found here by walking the minutes of a day: every wall-clock time that an expression matches, one after the
other, is looked up in the zone. Slow, and nothing like the library's way.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from dateutil.relativedelta import relativedelta

from tests.conformance.harness import Answer, Rule, Vector

_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_LONGEST_MONTHS: Final = {
    1: 31,
    2: 29,
    3: 31,
    4: 30,
    5: 31,
    6: 30,
    7: 31,
    8: 31,
    9: 30,
    10: 31,
    11: 30,
    12: 31,
}
_PRESETS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 1,4,7,10 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_NAMES: Final = {
    **{name: str(n) for n, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))},
    **{date(2026, n, 1).strftime("%b").lower(): str(n) for n in range(1, 13)},
}


def _values(text: str, low: int, high: int) -> frozenset[int]:
    """The numbers that one field of an expression allows; raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            start, end = low, high
        else:
            start = int(_NAMES.get(first.lower(), first))
            end = int(_NAMES.get(last.lower(), last)) if dash else (high if step else start)
        if not low <= start <= end <= high or (step and int(step) < 1):
            raise ValueError(text)
        found.update(range(start, end + 1, int(step) if step else 1))
    return frozenset(found)


@cache
def _fields(expression: str) -> tuple[frozenset[int], ...]:
    """Minutes, hours, days, months and weekdays (0 is Sunday); raises ValueError for what cannot be read."""
    parts = _PRESETS.get(expression, expression).split()
    if len(parts) == 6:
        _values(parts.pop(), 0, 59)
    if len(parts) != 5:
        raise ValueError(expression)
    values = [_values(part, *limits) for part, limits in zip(parts, _RANGES, strict=True)]
    values[4] = frozenset(day % 7 for day in values[4])
    return tuple(values)


def _is_readable(expression: str) -> bool:
    try:
        _fields(expression)
    except ValueError:
        return False
    return True


def _ever_ticks(expression: str) -> bool:
    parts = _PRESETS.get(expression, expression).split()
    _, _, days, months, _ = _fields(expression)
    if not parts[2].startswith("*") and not parts[4].startswith("*"):
        return True  # a weekday is enough
    return any(min(days) <= _LONGEST_MONTHS[month] for month in months)


def _matches(expression: str, day: date) -> bool:
    parts = _PRESETS.get(expression, expression).split()
    _, _, days, months, weekdays = _fields(expression)
    if day.month not in months:
        return False
    by_day, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
    if parts[2].startswith("*") or parts[4].startswith("*"):
        return by_day and by_weekday
    return by_day or by_weekday


def _crons(subject: Mapping[str, Any]) -> list[str]:
    if "cron" in subject:
        return [subject["cron"]]
    return list(subject.get("crons", ()))


def _at_wall(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Every instant at which the clock of a zone shows a time."""
    found = []
    for fold in (0, 1):
        at = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == wall and at not in found:
            found.append(at)
    return found


def _after_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant after the gap that a time which no clock showed lies in."""
    at = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while at.astimezone(zone).replace(tzinfo=None) < wall:
        at += _MINUTE
    return at


def _runs_every_hour(expression: str) -> bool:
    return len(_fields(expression)[1]) == 24


@cache
def _day_ticks(expression: str, day: date, zone: ZoneInfo) -> tuple[tuple[datetime, str], ...]:
    """The ticks of one local date, each with what it is: plain, shifted, or the first or second of a repeated time."""
    if not _matches(expression, day):
        return ()
    minutes, hours, *_ = _fields(expression)
    found: list[tuple[datetime, str]] = []
    for hour in sorted(hours):
        for minute in sorted(minutes):
            wall = datetime(day.year, day.month, day.day, hour, minute)
            shown = _at_wall(wall, zone)
            if not shown:
                if not _runs_every_hour(expression):
                    found.append((_after_gap(wall, zone), "shifted"))
                else:
                    found.append((_after_gap(wall, zone), "left out"))
            elif len(shown) == 1:
                found.append((shown[0], "plain"))
            else:
                found.append((shown[0], "first"))
                found.append((shown[1], "second" if _runs_every_hour(expression) else "left out"))
    return tuple(found)


class _Ticks:
    """The ticks of several expressions, found day by day."""

    def __init__(self, crons: list[str], zone: str) -> None:
        self.crons, self.zone = crons, ZoneInfo(zone)
        self.touched: set[date] = set()

    def of(self, day: date) -> list[datetime]:
        self.touched.add(day)
        ticks = {
            at for cron in self.crons for at, kind in _day_ticks(cron, day, self.zone) if kind != "left out"
        }
        return sorted(ticks)

    def _days(self, at: datetime, step: int) -> Iterator[date]:
        day = at.astimezone(self.zone).date() - step * _DAY
        for _ in range(366 * 9):
            yield day
            day += step * _DAY

    def next(self, after: datetime) -> datetime:
        return self._nearest(after, 1)

    def previous(self, before: datetime) -> datetime:
        return self._nearest(before, -1)

    def _nearest(self, at: datetime, step: int) -> datetime:
        best: list[datetime] = []
        days_more = 3
        for day in self._days(at, step):
            best += [tick for tick in self.of(day) if (tick > at if step > 0 else tick < at)]
            if best:
                days_more -= 1
                if not days_more:
                    return min(best) if step > 0 else max(best)
        raise ValueError(at)

    def at_or_after(self, at: datetime) -> datetime:
        return self.next(at - timedelta(microseconds=1))

    def at_or_before(self, at: datetime) -> datetime:
        return self.previous(at + timedelta(microseconds=1))

    def changes(self) -> set[str]:
        """What clock changes did to ticks of the days looked at."""
        return {
            kind
            for day in self.touched
            for cron in self.crons
            for _, kind in _day_ticks(cron, day, self.zone)
            if kind != "plain"
        }


def _span(data: object) -> Any:
    if not isinstance(data, Mapping):
        return data
    kind = timedelta if data["kind"] == "timedelta" else relativedelta
    return kind(**{name: value for name, value in data.items() if name != "kind"})


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _present(given: Mapping[str, Any], step: int) -> datetime | None:
    return _instant(given["now"][step] if isinstance(given["now"], list) else given["now"])


def _first(ticks: _Ticks, now: datetime, run_immediately: Any) -> datetime:
    past, coming = ticks.at_or_before(now), ticks.at_or_after(now)
    if run_immediately is True:
        return past
    if isinstance(run_immediately, Mapping):
        return past if past + _span(run_immediately) >= now else coming
    return past if now - past <= max((coming - past) / 10, timedelta(minutes=5)) else coming


def _trigger(
    ticks: _Ticks, given: Mapping[str, Any], step: int, last: datetime | None, immediately: Any
) -> datetime:
    earliest, now = _instant(given["earliest"]), _present(given, step)
    if given["catchup"]:
        if last is not None:
            return ticks.next(last)
        return ticks.at_or_after(earliest) if earliest else _first(ticks, _certain(now), immediately)
    options = [ticks.at_or_before(_certain(now))]
    if last is not None:
        options.append(ticks.next(last))
    elif earliest is None:
        options.append(_first(ticks, _certain(now), immediately))
    if earliest is not None:
        options.append(ticks.at_or_after(earliest))
    return max(options)


def _certain(at: datetime | None) -> datetime:
    assert at is not None
    return at


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _key(at: datetime, subject: Mapping[str, Any]) -> str:
    form = subject.get("key_format", "%Y-%m-%dT%H:%M:%S")
    wall = at.astimezone(ZoneInfo(subject["timezone"]))
    key = wall.strftime(form)
    is_second = at != wall.replace(fold=0).astimezone(UTC)
    return key + wall.strftime("%z") if is_second and "%z" not in form and "%H" in form else key


def _partition(at: datetime, run_after: datetime, subject: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run_after": _iso(run_after),
        "data_interval": None,
        "partition_key": _key(at, subject),
        "partition_date": _iso(at),
    }


def _plain(start: datetime, end: datetime) -> dict[str, Any]:
    interval = [_iso(start), _iso(end)]
    return {"run_after": _iso(end), "data_interval": interval, "partition_key": None, "partition_date": None}


def _interval_start(
    ticks: _Ticks, given: Mapping[str, Any], step: int, last: datetime | None, last_start: datetime | None
) -> datetime | None:
    earliest = _instant(given["earliest"])
    start = ticks.at_or_after(earliest) if earliest else None
    if not given["catchup"]:
        complete = ticks.previous(ticks.at_or_before(_certain(_present(given, step))))
        start = max(start, complete) if start else complete
    if last is not None:
        after_last = ticks.at_or_before(last)
        if last_start is not None and after_last < last_start:  # the schedule was another one
            after_last = ticks.next(after_last)
        start = max(start, after_last) if start else after_last
    return start


def _run_from(
    ticks: _Ticks, vector: Vector, step: int, last: datetime | None, last_start: datetime | None
) -> tuple[dict[str, Any], datetime] | None:
    """One run and where the next one is looked for."""
    subject, given = vector["subject"], vector["input"]
    latest = _instant(given["latest"])
    if subject["type"] == "CronDataIntervalTimetable":
        start = _interval_start(ticks, given, step, last, last_start)
        if start is None or (latest and start > latest):
            return None
        end = ticks.next(start)
        return _plain(start, end), end
    immediately = subject.get("run_immediately", False)
    if subject["type"] == "MultipleCronTriggerTimetable":
        each = [_trigger(_part(ticks, cron), given, step, last, immediately) for cron in subject["crons"]]
        each = [at for at in each if not latest or at <= latest]
        before = _span(subject.get("interval")) or timedelta(0)
        due = [at for at in each if not given["catchup"] and at - before <= _certain(_present(given, step))]
        if not each:
            return None
        at = max(due) if due else min(each)
    else:
        at = _trigger(ticks, given, step, last, immediately)
    if latest and at > latest:
        return None
    if subject["type"] == "CronPartitionTimetable":
        partition = at
        offset = subject.get("run_offset") or 0
        for _ in range(abs(offset)):
            partition = ticks.next(partition) if offset > 0 else ticks.previous(partition)
        return _partition(partition, at, subject), at
    return _plain(at - (_span(subject.get("interval")) or timedelta(0)), at), at


def _part(ticks: _Ticks, cron: str) -> _Ticks:
    part = _Ticks([cron], ticks.zone.key)
    part.touched = ticks.touched
    return part


def _sequence(vector: Vector, ticks: _Ticks) -> Answer:
    given = vector["input"]
    runs: list[Any] = []
    last = last_start = None
    if given["last"]:
        last = _instant(given["last"]["run_after"])
        interval = given["last"].get("data_interval")
        if interval and vector["subject"]["type"] != "CronPartitionTimetable":
            last_start, last = map(_instant, interval)
    for step in range(given["steps"]):
        found = _run_from(ticks, vector, step, last, last_start if step == 0 else None)
        if found is None:
            runs.append(None)
            break
        run, last = found
        runs.append(run)
    return {"runs": runs}


def _backfill(vector: Vector, ticks: _Ticks) -> Answer:
    walls = [
        datetime.fromisoformat(vector["input"][name]).replace(tzinfo=None) for name in ("earliest", "latest")
    ]
    first, last = (_at_wall(wall, ticks.zone) or [_after_gap(wall, ticks.zone)] for wall in walls)
    runs = []
    at = ticks.at_or_after(first[0])
    while at <= last[-1]:
        runs.append(_partition(at, at, vector["subject"]))
        at = ticks.next(at)
    return {"runs": runs}


def _manual(vector: Vector, ticks: _Ticks) -> Answer:
    end = ticks.at_or_before(_certain(_instant(vector["input"])))
    return {"data_interval": [_iso(ticks.previous(end)), _iso(end)]}


def _ask(vector: Vector) -> tuple[Answer, _Ticks] | None:
    """What is expected of a question about cron ticks, and the ticks that were looked at."""
    return _asked(json.dumps({name: vector[name] for name in ("op", "subject", "input")}))


@lru_cache(maxsize=8192)
def _asked(text: str) -> tuple[Answer, _Ticks] | None:
    vector = json.loads(text)
    subject = vector["subject"]
    crons = _crons(subject)
    if not crons or not all(map(_is_readable, crons)) or any(len(cron.split()) == 6 for cron in crons):
        return None
    ticks = _Ticks(crons, subject["timezone"])
    if vector["op"] == "sequence":
        answer = _sequence(vector, ticks)
    elif vector["op"] == "backfill" and subject["type"] == "CronPartitionTimetable":
        answer = _backfill(vector, ticks)
    elif vector["op"] == "infer_manual_data_interval" and subject["type"] == "CronDataIntervalTimetable":
        answer = _manual(vector, ticks)
    else:
        return None
    return answer, ticks


def _expected(vector: Vector) -> Answer:
    asked = _ask(vector)
    assert asked is not None
    return asked[0]


def _changes_by_half_an_hour(day: date, zone: ZoneInfo) -> bool:
    start, end = (
        datetime(each.year, each.month, each.day, tzinfo=zone).utcoffset() for each in (day, day + _DAY)
    )
    assert start is not None
    assert end is not None
    return timedelta(0) < abs(start - end) < timedelta(hours=1)


def _touches(vector: Vector, *kinds: str) -> bool:
    asked = _ask(vector)
    return asked is not None and bool(asked[1].changes() & set(kinds))


def _over_half_an_hour(vector: Vector) -> bool:
    """Whether a sequence passes a day on which the zone changes its clocks by less than an hour."""
    asked = _ask(vector) if vector["op"] == "sequence" else None
    return asked is not None and any(_changes_by_half_an_hour(day, asked[1].zone) for day in asked[1].touched)


def _is_offset_over_gap(vector: Vector) -> bool:
    return bool(vector["subject"].get("run_offset")) and _touches(vector, "shifted")


def _repeats_keys(vector: Vector) -> bool:
    return vector["subject"]["type"] == "CronPartitionTimetable" and _touches(vector, "second")


def _bad_cron(vector: Vector) -> bool:
    return vector["op"] in ("construct", "validate", "sequence") and any(
        not _is_readable(cron) for cron in _crons(vector["subject"])
    )


def _never_ticks(vector: Vector) -> bool:
    crons = _crons(vector["subject"])
    return all(map(_is_readable, crons)) and any(not _ever_ticks(cron) for cron in crons)


def _bad_delta(vector: Vector) -> bool:
    delta = _span(vector["subject"].get("delta"))
    return delta is not None and bool(datetime(2026, 1, 1) + delta <= datetime(2026, 1, 1))


def _refused(vector: Vector) -> Answer:
    return {"error": "ValueError"}


def _resolves(vector: Vector) -> bool:
    return bool(
        vector["op"] == "resolve_partition_date" and vector["subject"]["type"] == "CronPartitionTimetable"
    )


def _reads_offset(vector: Vector) -> bool:
    return _resolves(vector) and "%z" in vector["subject"].get("key_format", "") and bool(vector["input"])


def _names_changed_hour(vector: Vector) -> bool:
    """Whether a key in the default form names a time that was repeated or skipped."""
    key = vector["input"]
    if not _resolves(vector) or "key_format" in vector["subject"] or not isinstance(key, str):
        return False
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", key, re.ASCII):
        return False
    return len(_at_wall(datetime.fromisoformat(key), ZoneInfo(vector["subject"]["timezone"]))) != 1


def _changed_hour(vector: Vector) -> Answer:
    wall, zone = datetime.fromisoformat(vector["input"]), ZoneInfo(vector["subject"]["timezone"])
    return {"instant": _iso(next(iter(_at_wall(wall, zone)), None) or _after_gap(wall, zone))}


def _with_offset(vector: Vector) -> Answer:
    try:
        return {"instant": _iso(datetime.strptime(vector["input"], vector["subject"]["key_format"]))}
    except ValueError:
        return {"error": "InvalidPartitionKeyError"}


def _asks_older_form(vector: Vector) -> bool:
    return bool(
        vector["op"] == "next_dagrun_info_v1" and vector["subject"]["type"] == "CronPartitionTimetable"
    )


def _as_newer_form(vector: Vector) -> Answer:
    given = {"latest": None, "now": None, "last": None, "steps": 1, **vector["input"]}
    ticks = _Ticks(_crons(vector["subject"]), vector["subject"]["timezone"])
    return {"run": _sequence({**vector, "input": given}, ticks)["runs"][0]}


RULES = [
    Rule("D19", "a cron expression that cannot be read is refused when constructed", _bad_cron, _refused),
    Rule("D11", "an expression that never ticks is refused", _never_ticks, _refused),
    Rule("D19", "a delta that is not more than zero is refused when constructed", _bad_delta, _refused),
    Rule(
        "F17", "the older form of the question gives the run with its key", _asks_older_form, _as_newer_form
    ),
    Rule("F27", "a key with an offset is read back", _reads_offset, _with_offset),
    Rule(
        "F35", "a key of a repeated or skipped time is its first instant", _names_changed_hour, _changed_hour
    ),
    Rule("F26", "half-hour clock changes: always advances, on the grid", _over_half_an_hour, _expected),
    Rule("F28", "run_offset counts scheduled ticks across a gap", _is_offset_over_gap, _expected),
    Rule("F08", "the second occurrence of a repeated hour has a key of its own", _repeats_keys, _expected),
    Rule(
        "D20",
        "manual intervals end and start at real ticks",
        lambda vector: vector["op"] == "infer_manual_data_interval" and _touches(vector, "shifted", "first"),
        _expected,
    ),
    Rule(
        "D11",
        "skipped times run once after the gap, repeated ones once, wildcard hours every real hour",
        lambda vector: _touches(vector, "shifted", "first", "second", "left out"),
        _expected,
    ),
]
