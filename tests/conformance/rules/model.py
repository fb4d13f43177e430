"""A second, slow way to Tidegate's answers: it says what a vector must give, and which decisions make it so.

Nothing here comes from the library. Periods are found by walking along the clock, and keys of forms that strptime does
not read are found by writing keys until one matches.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import product
from typing import Any, Final
from zoneinfo import ZoneInfo

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
QUARTER_HOUR: Final = timedelta(minutes=15)
RANKS: Final = {"Minute": 0, "Hour": 1, "Day": 2, "Week": 3, "Month": 4, "Quarter": 5, "Year": 6}
MEMBER_OF: Final = {
    "Hour": "Minute",
    "Day": "Hour",
    "Week": "Day",
    "Month": "Day",
    "Quarter": "Month",
    "Year": "Month",
}
FORMS: Final = {
    "Minute": "%Y-%m-%dT%H:%M",
    "Hour": "%Y-%m-%dT%H",
    "Day": "%Y-%m-%d",
    "Week": "%Y-%m-%d (W%V)",
    "Month": "%Y-%m",
    "Quarter": "%Y-Q{quarter}",
    "Year": "%Y",
}
DEFAULT_INPUT: Final = "%Y-%m-%dT%H:%M:%S"
MOST_MEMBERS: Final = {"Hour": 120, "Day": 28, "Week": 7, "Month": 31, "Quarter": 3, "Year": 12}
FINER: Final = {"Day": "Hour", "Week": "Day", "Month": "Day", "Quarter": "Month", "Year": "Month"}
ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(T([01]\d|2[0-3])(:[0-5]\d(:[0-5]\d(\.\d{1,6})?)?)?(Z|[+-]([01]\d|2[0-3]):?[0-5]\d)?)?",
    re.ASCII,
)

Subject = Mapping[str, Any]


class Refused(Exception):
    """The answer is an error of this name."""

    def __init__(self, name: str = "ValueError") -> None:
        super().__init__(name)
        self.name = name


# ---- the clock of a zone ----


def wall(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone))


@lru_cache(maxsize=4096)
def start_of_date(day: date, zone: str) -> datetime:
    """The first instant with this local date or a later one."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=16)
    while wall(at, zone).date() < day:
        at += QUARTER_HOUR
    while wall(at - MINUTE, zone).date() >= day:
        at -= MINUTE
    while (
        wall(at - SECOND, zone).date() >= day
    ):  # before standard time, clocks differ from UTC by odd seconds
        at -= SECOND
    return at


def first_date(kind: str, day: date) -> date:
    match kind:
        case "Day":
            return day
        case "Week":
            while day.weekday() != 0:
                day -= timedelta(days=1)
            return day
        case "Month":
            return date(day.year, day.month, 1)
        case "Quarter":
            return date(day.year, {1: 1, 2: 4, 3: 7, 4: 10}[(day.month + 2) // 3], 1)
    return date(day.year, 1, 1)


def date_after(kind: str, first: date) -> date:
    day = first + timedelta(days=1)
    while first_date(kind, day) == first:
        day += timedelta(days=1)
    return day


def floor(kind: str, at: datetime, zone: str) -> datetime:
    """The start of the period that contains an instant (rule D20)."""
    if kind in ("Minute", "Hour"):
        at -= timedelta(seconds=wall(at, zone).second, microseconds=at.microsecond)
        while kind == "Hour" and wall(at, zone).minute != 0:
            at -= MINUTE
        return at
    today = wall(at, zone).date()
    near = [today, today - timedelta(days=1)]
    if today < date.max:
        near.append(today + timedelta(days=1))
    starts = (start_of_date(first_date(kind, day), zone) for day in near)
    return max(start for start in starts if start <= at)


def following(kind: str, start: datetime, zone: str) -> datetime:
    if kind in ("Minute", "Hour"):
        at = start + MINUTE
        while floor(kind, at, zone) == start:
            at += MINUTE
        return at
    first = first_date(kind, wall(start, zone).date())
    while start_of_date(first, zone) <= start:
        first = date_after(kind, first)
    return start_of_date(first, zone)


def starts_between(kind: str, start: datetime, end: datetime, zone: str) -> Iterator[datetime]:
    """Every period start in [start, end)."""
    if kind in ("Minute", "Hour"):
        at = start
        while at < end:
            if kind == "Minute" or wall(at, zone).minute == 0:
                yield at
            at += MINUTE
        return
    day = wall(start, zone).date()
    given: datetime | None = None
    while (at := start_of_date(day, zone)) < end:
        if at >= start and at != given and first_date(kind, wall(at, zone).date()) == wall(at, zone).date():
            yield at
            given = at
        day += timedelta(days=1)


def instant(clock: datetime, zone: str) -> datetime:
    """The first instant that a wall clock shows; one that was skipped counts on from before the change."""
    if clock.tzinfo:
        return clock.astimezone(UTC)
    return clock.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)


def exists(clock: datetime, zone: str) -> bool:
    return wall(instant(clock, zone), zone).replace(tzinfo=None, fold=0) == clock.replace(fold=0)


def is_repeated(clock: datetime, zone: str) -> bool:
    there = clock.replace(tzinfo=ZoneInfo(zone))
    return there.replace(fold=0).utcoffset() != there.replace(fold=1).utcoffset() and exists(clock, zone)


def changes(start: datetime, end: datetime, zone: str) -> bool:
    """Whether the offset from UTC changes in a stretch of time."""
    step = max(timedelta(minutes=30), (end - start) / 2000)
    first = wall(start, zone).utcoffset()
    at = start
    while at < end + step:
        if wall(at, zone).utcoffset() != first:
            return True
        at += step
    return False


# ---- keys ----


def write(clock: datetime, form: str, kind: str) -> str:
    if clock.year < 1000:
        form = form.replace("%Y", f"{clock.year:04}")
    key = clock.strftime(form)
    if kind == "Quarter":
        key = key.replace("{quarter}", str((clock.month + 2) // 3))
        if "{" in key or "}" in key:
            raise Refused
    return key


def by_strptime(key: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(key, form)
    except (ValueError, re.error):
        return None


def reads_itself(form: str) -> bool:
    """Whether strptime reads what strftime writes."""
    sample = datetime(2026, 5, 18, 9, tzinfo=UTC)
    return by_strptime(sample.strftime(form), form) is not None


def has_week(form: str) -> bool:
    return any(directive in form for directive in ("%V", "%U", "%W"))


@lru_cache(maxsize=4096)
def by_writing(key: str, form: str, kind: str) -> datetime | None:
    """The day whose key this is, found by writing keys; None where there is none, or several periods have it."""
    found = re.search(r"\d{4}", key)
    if not found or not 2 <= int(found.group()) <= 9998:
        return None
    year = int(found.group())
    days = [date(year - 1, 12, 20) + timedelta(days=n) for n in range(385)]
    starts = [
        day for day in days if first_date(kind, day) == day and write(_midnight(day), form, kind) == key
    ]
    matching = starts or [day for day in days if write(_midnight(day), form, kind) == key]
    return _midnight(matching[0]) if len({first_date(kind, day) for day in matching}) == 1 else None


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


class Model:
    """Answers for one vector, with the decisions that they rest on."""

    def __init__(self) -> None:
        self.touched: dict[str, None] = {}

    def touch(self, decision: str) -> None:
        self.touched[decision] = None

    # ---- construction ----

    def check(self, subject: Subject) -> None:
        """Raises Refused where a configuration is refused when it is declared."""
        kind = subject["type"]
        cap = subject.get("max_downstream_keys")
        if cap is not None and (not isinstance(cap, int) or cap < 1):
            raise Refused
        if kind.startswith("StartOf"):
            self._check_temporal(subject)
        elif kind == "AllowedKeyMapper":
            if isinstance(subject["allowed_keys"], str):
                self.touch("F20")
                raise Refused("TypeError")
            for key in subject["allowed_keys"]:
                self._check_key(key)
        elif kind == "FixedKeyMapper":
            if not isinstance(subject["downstream_key"], str):
                raise Refused
            self._check_key(subject["downstream_key"])
        elif kind in ("ChainMapper", "ProductMapper"):
            for part in subject["mappers"]:  # they are there before the whole
                self.check(part)
            if len(subject["mappers"]) < 2:
                raise Refused("TypeError")
            if kind == "ProductMapper" and subject.get("delimiter") == "":
                self.touch("D19")
                raise Refused
            self._check_parts(subject["mappers"])
        elif kind == "FanOutMapper":
            self._check_fan_out(subject)
        elif kind == "RollupMapper":
            self._check_rollup(subject)

    def _check_key(self, key: str) -> None:
        if not key:
            self.touch("D12")
            raise Refused
        if not key.strip() or len(key) > 250 or re.search(r"[\x00-\x1f\x7f-\x9f]", key):
            self.touch("D12")
            raise Refused

    def _check_temporal(self, subject: Subject) -> None:
        try:
            ZoneInfo(subject.get("timezone", "UTC"))
        except (KeyError, ValueError, OSError):
            raise Refused from None
        form, kind = subject.get("output_format") or "", period_of(subject)
        if kind in ("Week", "Quarter"):
            names = re.findall(r"\{([^{}]*)\}", form)
            parts = names + re.findall(r"%([^%])", form)
            rest = form.replace("{quarter}", "4") if kind == "Quarter" else form
            if len(set(parts)) < len(parts) or not all(map(str.isidentifier, names)) or "}{" in rest:
                raise Refused

    def _check_parts(self, parts: Sequence[Subject]) -> None:
        for part in parts:
            self.check(part)
        for part in parts:
            if part["type"] == "RollupMapper":
                self.touch("F11")
                raise Refused("TypeError")

    def check_window(self, window: Subject) -> None:
        if window["type"] != "SegmentWindow":
            if window.get("direction", "forward") not in ("forward", "backward"):
                raise Refused
            return
        segments = window["segments"]
        if isinstance(segments, str):
            self.touch("D19")
            raise Refused("TypeError")
        if segments is None:
            raise Refused("TypeError")
        if not segments or not all(isinstance(one, str) for one in segments):
            raise Refused
        for one in segments:
            self._check_key(one)

    def check_policy(self, policy: Subject) -> None:
        if policy["type"] != "MinimumCount":
            return
        n = policy["n"]
        if isinstance(n, bool) or not isinstance(n, int):
            self.touch("F30")
            raise Refused("TypeError")
        if n == 0:
            raise Refused

    def _check_pair(self, subject: Subject) -> None:
        """The mapper must read keys as what the window works with."""
        mapper, window = subject["upstream_mapper"], subject["window"]
        if mapper["type"].startswith("StartOf") == (window["type"] == "SegmentWindow"):
            raise Refused("TypeError")

    def _check_fan_out(self, subject: Subject) -> None:
        for part in (subject["upstream_mapper"], subject.get("downstream_mapper")):
            if part:
                self.check(part)
        self._check_parts([subject["upstream_mapper"]])
        self.check_window(subject["window"])
        if not subject["upstream_mapper"]["type"].startswith("StartOf"):
            self.touch("F14")
        self._check_pair(subject)
        if subject.get("downstream_mapper"):
            self._check_parts([subject["downstream_mapper"]])
        elif period_of(subject["window"]) not in FINER:
            raise Refused

    def _check_rollup(self, subject: Subject) -> None:
        mapper, window = subject["upstream_mapper"], subject["window"]
        self._check_parts([mapper])
        self.check_window(window)
        policy = subject.get("wait_policy", {"type": "WaitForAll"})
        self.check_policy(policy)
        self._check_pair(subject)
        if window["type"] == "SegmentWindow":
            segments = list(dict.fromkeys(window["segments"]))
            least = needed(policy, len(segments))
            together: dict[str, int] = {}
            for segment in segments:
                try:
                    keys = Model().downstream(mapper, segment)
                except Refused:
                    continue
                for key in [keys] if isinstance(keys, str) else keys:
                    together[key] = together.get(key, 0) + 1
            if max(together.values(), default=0) < least:
                self.touch("D19")
                raise Refused
            return
        if period_of(mapper) not in (period_of(window), MEMBER_OF[period_of(window)]):
            self.touch("F01")
            raise Refused
        if policy["type"] == "MinimumCount" and policy["n"] > MOST_MEMBERS[period_of(window)]:
            self.touch("D19")
            raise Refused

    # ---- reading and writing keys of temporal mappers ----

    def read(self, subject: Subject, key: str, *, downstream: bool = False) -> datetime:
        """The instant that a temporal mapper reads from an upstream key, or from one of its own (D1)."""
        zone, kind = subject.get("timezone", "UTC"), period_of(subject)
        own = own_form(subject)
        given = subject.get("input_format", DEFAULT_INPUT)
        first, second = (own, given) if downstream else (given, own)
        if key != key.strip() or not key.isascii():
            if (
                by_strptime(key, first) is not None
                or by_strptime(key.strip(), first) is not None
                or downstream
            ):
                self.touch("F29" if key != key.strip() else "D1")
            raise Refused
        clock = self._read_form(key, first, kind)
        airflow_reads = self._airflow_reads_own(kind, own) if downstream else reads_itself(given)
        if clock is not None and not airflow_reads:
            self.touch("D1")
        if clock is None:
            clock = self._read_form(key, second, kind)
            if clock is None and kind == "Hour" and "%z" not in own:
                clock = by_strptime(key, own + "%z")
            if clock is None:
                found = ISO.fullmatch(key)
                if found and (found.group(2) or RANKS[kind] >= RANKS["Day"]):
                    try:
                        clock = datetime.fromisoformat(key)
                    except ValueError:
                        raise Refused from None
            if clock is not None:
                self.touch("F21" if key.isascii() and re.fullmatch(r"\d{4}-\d\d-\d\d", key) else "D1")
        if clock is None:
            raise Refused
        if not clock.tzinfo and is_repeated(clock, zone) and downstream:
            self.touch("F35")
        return instant(clock, zone)

    def _read_form(self, key: str, form: str, kind: str) -> datetime | None:
        readable = reads_itself(form) and not (kind == "Quarter" and "{quarter}" in form)
        if readable:
            clock = by_strptime(key, form)
            if clock is not None and has_week(form) and write(clock, form, "") != key:
                self.touch("F16")  # a week that the year does not have
                return None
            return clock
        if "%H" in form or "%z" in form:
            return None
        clock = by_writing(key, form, kind)
        if clock is None and "%V" in form and self._fits_but_for_week(key, form):
            self.touch("F16")
        return clock

    @staticmethod
    def _fits_but_for_week(key: str, form: str) -> bool:
        before, _, after = form.partition("%V")
        return any(
            by_strptime(key[:n] + key[n + 2 :], before + after) is not None
            for n in range(len(key) - 1)
            if key[n : n + 2].isdigit()
        )

    @staticmethod
    def _airflow_reads_own(kind: str, form: str) -> bool:
        if kind == "Quarter":
            return "{quarter}" in form
        parts = set(re.findall(r"%(.)", form))
        return kind != "Week" or set("Ymd") <= parts <= set("YmdV")

    def period_start(self, subject: Subject, at: datetime) -> datetime:
        zone, kind = subject.get("timezone", "UTC"), period_of(subject)
        try:
            start = floor(kind, at, zone)
        except (OverflowError, ValueError):
            raise Refused from None
        if kind == "Hour" and wall(start, zone).hour != wall(at, zone).hour:
            self.touch("D20")
        return start

    def name(self, subject: Subject, clock: datetime) -> str:
        """The key that a mapper gives an aware wall clock."""
        kind, form = period_of(subject), own_form(subject)
        if clock.fold and kind == "Hour" and "%z" not in form:
            self.touch("F08")
            form += "%z"
        return write(clock, form, kind)

    # ---- to_downstream ----

    def downstream(self, subject: Subject, key: str) -> str | list[str]:
        kind = subject["type"]
        if kind == "IdentityMapper":
            return key
        if kind == "FixedKeyMapper":
            return str(subject["downstream_key"])
        if kind == "AllowedKeyMapper":
            if key not in subject["allowed_keys"]:
                raise Refused
            return key
        if kind == "ChainMapper":
            keys: str | list[str] = key
            for mapper in subject["mappers"]:
                if isinstance(keys, str):
                    keys = self.downstream(mapper, keys)
                else:
                    keys = self._distinct(
                        [one for each in keys for one in listed(self.downstream(mapper, each))]
                    )
            return keys
        if kind == "ProductMapper":
            return self._product(subject, key)
        if kind == "FanOutMapper":
            return self._fan_out(subject, key)
        if kind == "RollupMapper":
            return self._rolled(subject, key)[0]
        zone = subject.get("timezone", "UTC")
        return self.name(subject, wall(self.period_start(subject, self.read(subject, key)), zone))

    def _product(self, subject: Subject, key: str) -> str | list[str]:
        delimiter = subject.get("delimiter", "|")
        parts = key.split(delimiter)
        if len(parts) != len(subject["mappers"]):
            raise Refused
        given = [
            self.downstream(mapper, part) for mapper, part in zip(subject["mappers"], parts, strict=True)
        ]
        combined = [delimiter.join(each) for each in product(*map(listed, given))]
        return combined[0] if all(isinstance(one, str) for one in given) else self._distinct(combined)

    def _distinct(self, keys: list[str]) -> list[str]:
        found: list[str] = []
        for key in keys:
            if key not in found:
                found.append(key)
        if len(found) < len(keys):
            self.touch("F12")
        return found

    def _fan_out(self, subject: Subject, key: str) -> list[str]:
        mapper, window = subject["upstream_mapper"], subject["window"]
        if not mapper["type"].startswith("StartOf"):
            return self._distinct(
                [
                    one
                    for _ in listed(self.downstream(mapper, key))
                    for one in dict.fromkeys(window["segments"])
                ]
            )
        zone = mapper.get("timezone", "UTC")
        anchor = self.period_start(mapper, self.read(mapper, key))
        namer = downstream_mapper(subject)
        keys = []
        for at in self._fanned(window, period_of(mapper), anchor, zone):
            clock = wall(at, zone)
            if namer["type"].startswith("StartOf"):
                if "%z" in own_form(namer) and "%z" not in own_form(mapper):
                    self.touch("D20")  # a member is an instant, so its key has the offset that it asks for
                keys.append(self.name(namer, clock))
            else:
                keys.append(
                    clock.replace(tzinfo=None).isoformat() + (clock.strftime("%z") if clock.fold else "")
                )
        return self._distinct(keys)

    def _fanned(self, window: Subject, period: str, anchor: datetime, zone: str) -> list[datetime]:
        backward = window.get("direction") == "backward"
        if period == period_of(window):
            members = self.members(window, anchor, zone)
            span = sorted((members[0], members[-1]))
            if MEMBER_OF[period] in ("Minute", "Hour") and changes(
                span[0] - 4 * QUARTER_HOUR, span[1] + 4 * QUARTER_HOUR, zone
            ):
                self.touch("D20")
            return members
        clocks = steps(window, wall(anchor, zone).replace(tzinfo=None, fold=0), backward=backward)
        if not all(exists(clock, zone) for clock in clocks):
            self.touch("D20")
        return [instant(clock, zone) for clock in clocks if exists(clock, zone)]

    @staticmethod
    def members(window: Subject, anchor: datetime, zone: str) -> list[datetime]:
        """The real members of a calendar window."""
        kind = period_of(window)
        try:
            if window.get("direction") != "backward":
                return list(starts_between(MEMBER_OF[kind], anchor, following(kind, anchor, zone), zone))
            before = floor(kind, anchor - MINUTE, zone)
            return list(starts_between(MEMBER_OF[kind], before + MINUTE, anchor + MINUTE, zone))
        except (OverflowError, ValueError):
            raise Refused from None

    # ---- rollups ----

    def _rolled(self, subject: Subject, key: str) -> tuple[str | list[str], int, bool]:
        """Downstream key, number of members, whether the key is one of them."""
        mapper, window = subject["upstream_mapper"], subject["window"]
        if window["type"] == "SegmentWindow":
            segments = list(dict.fromkeys(window["segments"]))
            return self.downstream(mapper, key), len(segments), key in segments
        zone, kind = mapper.get("timezone", "UTC"), period_of(window)
        if period_of(mapper) != kind:
            self.touch("F01")
        at = self.read(mapper, key)
        member = floor(MEMBER_OF[kind], at, zone)
        if member != at:
            self.touch("F04")
        if self._merges(subject):
            member = instant(wall(member, zone).replace(tzinfo=None), zone)
        anchor = floor(kind, member, zone)
        if window.get("direction") == "backward":
            self.touch("F02")
            anchor = anchor if anchor == member else following(kind, anchor, zone)
        members = self._rollup_members(subject, anchor)
        return self.name(self._namer(subject), wall(anchor, zone)), len(members), member in members

    def covers(self, subject: Subject, key: str) -> dict[str, Any]:
        downstream, size, counts = self._rolled(subject, key)
        return {"downstream": downstream, "window_size": size, "counts": counts}

    def upstream(self, subject: Subject, key: str) -> list[str]:
        mapper, window = subject["upstream_mapper"], subject["window"]
        if window["type"] == "SegmentWindow":
            return list(dict.fromkeys(window["segments"]))
        zone, namer = mapper.get("timezone", "UTC"), self._namer(subject)
        if period_of(mapper) != period_of(window):
            self.touch("F01")
        anchor = self.date(namer, key)
        assert anchor is not None
        members = self._rollup_members(subject, anchor)
        form = mapper.get("input_format", DEFAULT_INPUT)
        keys = [write(wall(at, zone), form, "") for at in members]
        if len(set(keys)) < len(keys):
            finer = {"type": f"StartOf{MEMBER_OF[period_of(window)]}Mapper", "timezone": zone}
            keys = [self.name(finer, wall(at, zone)) for at in members]
        return keys

    def _rollup_members(self, subject: Subject, anchor: datetime) -> list[datetime]:
        zone = subject["upstream_mapper"].get("timezone", "UTC")
        members = self.members(subject["window"], anchor, zone)
        if changes(members[0] - 4 * QUARTER_HOUR, members[-1] + 4 * QUARTER_HOUR, zone):
            self.touch("F03")
        if not self._merges(subject):
            return members
        seen: set[datetime] = set()
        kept = []
        for at in members:
            clock = wall(at, zone).replace(tzinfo=None, fold=0)
            if clock not in seen:
                kept.append(at)
            seen.add(clock)
        return kept

    @staticmethod
    def _merges(subject: Subject) -> bool:
        finest = MEMBER_OF[period_of(subject["window"])] in ("Minute", "Hour")
        return finest and "%z" not in subject["upstream_mapper"].get("input_format", DEFAULT_INPUT)

    @staticmethod
    def _namer(subject: Subject) -> Subject:
        mapper, kind = subject["upstream_mapper"], period_of(subject["window"])
        if period_of(mapper) == kind:
            return dict(mapper)
        kept = {name: mapper[name] for name in ("timezone", "input_format") if name in mapper}
        return {"type": f"StartOf{kind}Mapper", **kept}

    # ---- dates ----

    def date(self, subject: Subject, key: str) -> datetime | None:
        kind = subject["type"]
        if kind.startswith("StartOf"):
            at = self.read(subject, key, downstream=True)
            start = self.period_start(subject, at)
            if start != at:
                self.touch("F16")
            return start
        if kind == "ChainMapper":
            return self.date(subject["mappers"][-1], key)
        if kind == "ProductMapper":
            self.touch("F07")
            return None
        if kind == "FanOutMapper":
            zone = subject["upstream_mapper"].get("timezone", "UTC")
            if not subject.get("downstream_mapper") and zone != "UTC":
                self.touch("F13")
            return self.date(downstream_mapper(subject), key)
        if kind == "RollupMapper":
            mapper, window = subject["upstream_mapper"], subject["window"]
            if window["type"] == "SegmentWindow":
                return self.date(mapper, key)
            if period_of(mapper) != period_of(window):
                self.touch("F01")
            return self.date(self._namer(subject), key)
        return None

    def carry(self, subject: Subject, carried: datetime | None) -> datetime | None:
        kind = subject["type"]
        if kind == "IdentityMapper":
            return carried
        if kind in ("ChainMapper", "ProductMapper"):
            self.touch("F15")
            every = [self.carry(mapper, carried) for mapper in subject["mappers"]]
            return carried if all(one is not None for one in every) else None
        if kind == "RollupMapper":
            self.touch("F15")
            return self.carry(subject["upstream_mapper"], carried)
        return None


def listed(keys: str | list[str]) -> list[str]:
    return [keys] if isinstance(keys, str) else keys


def period_of(subject: Subject) -> str:
    """`Day` of a StartOfDayMapper or a DayWindow."""
    return str(subject["type"]).removeprefix("StartOf").removesuffix("Mapper").removesuffix("Window")


def own_form(subject: Subject) -> str:
    return subject.get("output_format") or FORMS[period_of(subject)]


def downstream_mapper(subject: Subject) -> Subject:
    """The mapper that names the members of a fan-out."""
    given = subject.get("downstream_mapper")
    if given:
        return dict(given)
    zone = subject["upstream_mapper"].get("timezone", "UTC")
    return {"type": f"StartOf{FINER[period_of(subject['window'])]}Mapper", "timezone": zone}


def needed(policy: Subject, size: int) -> int:
    """How many members of a window a policy asks for (rule F10)."""
    if policy["type"] == "WaitForAll":
        return size
    return int(policy["n"]) if policy["n"] > 0 else max(1, size + policy["n"])


def steps(window: Subject, anchor: datetime, *, backward: bool) -> list[datetime]:
    """The members of an anchor in wall-clock steps, as Airflow's windows give them."""
    kind = period_of(window)
    counts = {"Hour": 60, "Day": 24, "Week": 7, "Quarter": 3, "Year": 12}
    try:
        if kind in ("Month", "Quarter", "Year") and anchor.day != 1:
            raise Refused
        if kind == "Month":
            other = months_later(anchor, -1 if backward else 1)
            count = abs((other - anchor).days)
        else:
            count = counts[kind]
        numbers = range(1 - count, 1) if backward else range(count)
        if kind in ("Quarter", "Year"):
            return [months_later(anchor, n) for n in numbers]
        step = {"Hour": timedelta(minutes=1), "Day": timedelta(hours=1)}.get(kind, timedelta(days=1))
        return [anchor + n * step for n in numbers]
    except (OverflowError, ValueError):
        raise Refused from None


def months_later(at: datetime, months: int) -> datetime:
    year, month = at.year, at.month + months
    while month > 12:
        year, month = year + 1, month - 12
    while month < 1:
        year, month = year - 1, month + 12
    return at.replace(year=year, month=month)
