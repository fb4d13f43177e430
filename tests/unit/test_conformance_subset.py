"""The vectors of Apache Airflow's behaviour for the types that exist so far, beside the project's own decisions.

A vector with a `finding:` tag shows behaviour that the decisions judge; those are tested elsewhere. Of the others, a
rule named after its decision says what is expected instead; rules know nothing of the library and hold for any vector.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.plain import from_plain

FOLDER = next(
    (found for parent in Path(__file__).parents if (found := parent / "shared" / "conformance").is_dir()),
    None,
)
TYPES = {
    "IdentityMapper",
    "StartOfHourMapper",
    "StartOfDayMapper",
    "StartOfMonthMapper",
    "RollupMapper",
    "DayWindow",
    "MonthWindow",
    "WaitForAll",
}
LATER = {"max_downstream_keys", "direction"}
"""Fields that come with the rest of the family."""

FORMS = {"StartOfHourMapper": "%Y-%m-%dT%H", "StartOfDayMapper": "%Y-%m-%d", "StartOfMonthMapper": "%Y-%m"}
DEFAULT_INPUT = "%Y-%m-%dT%H:%M:%S"
Vector = Mapping[str, Any]
Rule = Callable[[Vector], Any]


def parts(subject: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(subject, dict):
        yield subject
        for value in subject.values():
            yield from parts(value)


def belongs(vector: Vector) -> bool:
    for part in parts(vector["subject"]):
        if part.get("type") not in TYPES or LATER & set(part):
            return False
    return not any(tag.startswith("finding:") for tag in vector["tags"])


def vectors() -> list[Vector]:
    found: list[Vector] = []
    for name in ("mappers", "to_partition_date", "rollup"):
        if FOLDER is not None and (file := FOLDER / f"{name}.json").is_file():
            found += filter(belongs, json.loads(file.read_text())["vectors"])
    return found


VECTORS = vectors()


# What the vector asks, put to the library


def answer(vector: Vector) -> Any:
    op, key = vector["op"], vector["input"]
    try:
        subject = from_plain(vector["subject"])
        match op:
            case "construct":
                return {"ok": True}
            case "to_downstream":
                return {"key": subject.to_downstream(key)}
            case "to_upstream":
                return {"keys": sorted(subject.to_upstream(key))}
            case "covers":
                (placed,) = subject.placements(key)
                counts = subject.to_upstream(placed.key)[placed.member] is not None
                return {"counts": counts, "downstream": placed.key, "window_size": placed.size}
            case "to_partition_date":
                return {"instant": subject.to_partition_date(key)}
            case "carry_partition_date":
                return {"instant": subject.carry_partition_date(key and datetime.fromisoformat(key))}
    except (DefinitionError, DefinitionTypeError, InvalidPartitionKeyError) as error:
        return {"error": "TypeError" if isinstance(error, TypeError) else "ValueError"}
    raise AssertionError(f"the operation {op} is new")


def expected(vector: Vector) -> Any:
    expect = dict(vector["expect"])
    if expect.pop("unordered", False):
        expect["keys"] = sorted(expect["keys"])
    if expect.get("instant"):
        expect["instant"] = datetime.fromisoformat(expect["instant"])
    if expect.get("error") != "TypeError" and "error" in expect:
        expect["error"] = "ValueError"
    return expect


# The decisions, written down without the library


def temporal(vector: Vector) -> Mapping[str, Any]:
    """The mapper that reads keys: the subject itself, or the one inside its rollup."""
    subject: Mapping[str, Any] = vector["subject"]
    return subject.get("upstream_mapper", subject)


def zone_of(vector: Vector) -> ZoneInfo:
    return ZoneInfo(temporal(vector).get("timezone", "UTC"))


def forms_of(vector: Vector) -> tuple[str, str]:
    mapper = temporal(vector)
    return mapper.get("input_format", DEFAULT_INPUT), mapper.get(
        "output_format", FORMS.get(mapper["type"], "")
    )


def fits(key: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(key, form)
    except (ValueError, re.error):
        return None


_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(T(?:[01]\d|2[0-3])(:[0-5]\d(:[0-5]\d(\.\d{1,6})?)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)


def read_by_d1(vector: Vector) -> datetime | None:
    """The instant that a key names in the input format, the mapper's own form or one of the ISO forms."""
    key, mapper = vector["input"], temporal(vector)
    if not isinstance(key, str) or mapper["type"] not in FORMS:
        return None
    at = next((read for form in forms_of(vector) if (read := fits(key, form))), None)
    found = _ISO.fullmatch(key)
    if at is None and found and (found[2] or mapper["type"] != "StartOfHourMapper"):
        try:
            at = datetime.fromisoformat(key)
        except ValueError:
            return None
    return at and (at if at.tzinfo else at.replace(tzinfo=zone_of(vector))).astimezone(UTC)


def start_of(kind: str, at: datetime, zone: ZoneInfo) -> datetime:
    """The start of the period that holds an instant, minute by minute (D20, F35)."""
    at = at.replace(second=0, microsecond=0)

    def same(earlier: datetime) -> bool:
        here, there = at.astimezone(zone), earlier.astimezone(zone)
        if kind == "StartOfDayMapper":
            return here.date() == there.date()
        return (here.year, here.month) == (there.year, there.month)

    if kind == "StartOfHourMapper":
        while at.astimezone(zone).minute:
            at -= timedelta(minutes=1)
        return at
    step = timedelta(hours=6)
    while step >= timedelta(minutes=1):
        while same(at - step):
            at -= step
        step //= 2
        step -= timedelta(seconds=step.total_seconds() % 60)
    return at


def from_instant(vector: Vector, at: datetime) -> Any:
    """What the operation gives for a key that names an instant."""
    kind, zone = temporal(vector)["type"], zone_of(vector)
    start = start_of(kind, at, zone)
    if vector["op"] == "to_partition_date":
        return {"instant": start}
    wall, form = start.astimezone(zone), forms_of(vector)[1]
    tells_apart = kind == "StartOfHourMapper" and wall.fold and "%z" not in form
    return {"key": wall.strftime(f"{form}%z" if tells_apart else form)}


def d1(vector: Vector) -> Any:
    """Keys that Airflow refuses may have the mapper's other form, or an ISO form at its granularity or finer."""
    if vector["op"] not in ("to_downstream", "to_partition_date") or "error" not in vector["expect"]:
        return None
    at = read_by_d1(vector)
    return from_instant(vector, at) if at else None


def d20_f35_f08(vector: Vector) -> Any:
    """A key names the first instant of a real period: not a time that was skipped, not the second of two."""
    key = vector["input"]
    if vector["op"] not in ("to_downstream", "to_partition_date") or temporal(vector)["type"] not in FORMS:
        return None
    wall = next(
        (read for form in forms_of(vector) if isinstance(key, str) and (read := fits(key, form))), None
    )
    if wall is None or str(zone_of(vector)) == "UTC":
        return None
    at = (wall if wall.tzinfo else wall.replace(tzinfo=zone_of(vector))).astimezone(UTC)
    day = timedelta(days=1)
    if len({(at + n * day).astimezone(zone_of(vector)).utcoffset() for n in (-1, 0, 1)}) == 1:
        return None
    return from_instant(vector, at)


def f16(vector: Vector) -> Any:
    """A key inside a period stands for the period."""
    subject, key = vector["subject"], vector["input"]
    read = fits(key, forms_of(vector)[1]) if isinstance(key, str) else None
    if vector["op"] == "to_partition_date" and read and temporal(vector)["type"] in FORMS:
        at = (read if read.tzinfo else read.replace(tzinfo=zone_of(vector))).astimezone(UTC)
        return from_instant(vector, at)
    if vector["op"] == "to_upstream" and read and subject["window"]["type"] == "MonthWindow" and read.day > 1:
        first = read.replace(day=1)
        days = [first + timedelta(days=n) for n in range(31)]
        return {"keys": [day.strftime(forms_of(vector)[0]) for day in days if day.month == read.month]}
    return None


def f16_weeks(vector: Vector) -> Any:
    """A key with a week number stands for the one day that is written so; a week that no year has stands for none."""
    key, (form, _) = vector["input"], forms_of(vector)
    if vector["op"] not in ("to_downstream", "to_partition_date") or "%V" not in form:
        return None
    if not isinstance(key, str) or _ISO.fullmatch(key) or not (year := re.search(r"[1-9]\d{3}", key)):
        return None
    first = datetime(int(year[0]) - 1, 1, 1, tzinfo=zone_of(vector))
    days = [day for n in range(3 * 366) if (day := first + timedelta(days=n)).strftime(form) == key]
    return from_instant(vector, days[0].astimezone(UTC)) if days else {"error": "ValueError"}


GRAINS = {"StartOfHourMapper": 1, "StartOfDayMapper": 2, "StartOfMonthMapper": 3}


def f01_d19(vector: Vector) -> Any:
    """A rollup of a mapper that is neither at the window's period nor at that of its members is refused."""
    subject = vector["subject"]
    if subject["type"] != "RollupMapper" or subject["upstream_mapper"]["type"] not in GRAINS:
        return None
    period = {"DayWindow": 2, "MonthWindow": 3}[subject["window"]["type"]]
    if GRAINS[subject["upstream_mapper"]["type"]] in (period, period - 1):
        return None
    return {"error": "ValueError"}


RULES: tuple[Rule, ...] = (f01_d19, f16_weeks, d1, d20_f35_f08, f16)


def decided(vector: Vector) -> tuple[Any, str]:
    """What Tidegate answers, and by which rule where it is not what the vector says."""
    for rule in RULES:
        ours = rule(vector)
        if ours is not None and ours != expected(vector):
            return ours, rule.__name__
    return expected(vector), "airflow"


@pytest.mark.skipif(FOLDER is None, reason="the conformance vectors are not here")
def test_every_vector_is_answered_as_airflow_does_or_as_a_decision_says() -> None:
    by_rule: Counter[str] = Counter()
    wrong = []
    for vector in VECTORS:
        wanted, rule = decided(vector)
        by_rule[rule] += 1
        found = answer(vector)
        if found != wanted:
            wrong.append(
                (vector["id"], vector["op"], vector["subject"], vector["input"], wanted, rule, found)
            )
    assert not wrong, "\n".join(map(str, wrong))
    assert by_rule["airflow"] > 0.9 * len(VECTORS), by_rule


@pytest.mark.skipif(FOLDER is None, reason="the conformance vectors are not here")
def test_every_operation_has_vectors_so_far() -> None:
    ops = Counter(vector["op"] for vector in VECTORS)
    assert set(ops) >= {"to_downstream", "to_upstream", "covers", "to_partition_date", "construct"}
    assert len(VECTORS) > 400
