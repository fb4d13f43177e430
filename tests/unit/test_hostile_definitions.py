"""Whatever stands in a field of a definition: it is refused as what it is, or kept and written back."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tidegate.core.access import AssetAccessControl
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.mappers import FanOutMapper, FixedKeyMapper, IdentityMapper, RollupMapper, StartOfDayMapper
from tidegate.core.plain import from_plain, is_own, plain, type_registry
from tidegate.core.timetables import CronPartitionTimetable, EventsTimetable, PartitionedAssetTimetable
from tidegate.core.windows import RollingWindow, Window
from tidegate.definitions import Asset, Job, load_definitions

ASSET = {"type": "Asset", "name": "a"}
HOUR, DAY = {"type": "StartOfHourMapper"}, {"type": "StartOfDayMapper"}
DAILY = {"type": "CronTriggerTimetable", "cron": "@daily"}
NEEDED: dict[str, dict[str, Any]] = {
    "AllowedKeyMapper": {"allowed_keys": ["a"]},
    "Asset": {"name": "a"},
    "AssetAlias": {"name": "a"},
    "AssetAll": {"conditions": [ASSET]},
    "AssetAny": {"conditions": [ASSET]},
    "AssetNameRef": {"name": "a"},
    "AssetOrTimeSchedule": {"timetable": DAILY, "assets": ASSET},
    "AssetTriggeredTimetable": {"assets": ASSET},
    "AssetUriRef": {"uri": "x-a://a"},
    "ChainMapper": {"mappers": [HOUR, DAY]},
    "CronDataIntervalTimetable": {"cron": "@daily"},
    "CronPartitionTimetable": {"crons": ["@daily"]},
    "CronTriggerTimetable": {"cron": "@daily"},
    "Deadline": {"after": {"seconds": 60}},
    "DeltaDataIntervalTimetable": {"delta": {"seconds": 60}},
    "DeltaTriggerTimetable": {"delta": {"seconds": 60}},
    "EventsTimetable": {"event_dates": [{"instant": "2026-03-10T00:00:00Z"}]},
    "FanOutMapper": {"upstream_mapper": DAY, "window": {"type": "DayWindow"}},
    "FixedKeyMapper": {"downstream_key": "all"},
    "Job": {"id": "j", "schedule": DAILY},
    "MinimumCount": {"n": 2},
    "MultipleCronTriggerTimetable": {"crons": ["@daily"]},
    "PartitionedAssetTimetable": {"assets": ASSET},
    "ProductMapper": {"mappers": [{"type": "IdentityMapper"}, DAY]},
    "RollingWindow": {"size": 3},
    "RollupMapper": {"upstream_mapper": DAY, "window": {"type": "DayWindow"}},
    "SegmentWindow": {"segments": ["us"]},
}
HOSTILE: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 1.5, float("nan"), float("inf")),
    *("", " ", "x", "\x00", "x" * 10_000, "é", "%", "%Y" * 3000, "{", "{0.__class__}", "0 0 * * *"),
    *([], [1], ["a"], [None], [[]], {}, {"a": 1}),
    *({"type": "Nope"}, {"type": 5}, {"type": ["a"]}, {"type": "DayWindow"}, DAY, ASSET),
    *({"seconds": float("nan")}, {"seconds": 1e300}, {"seconds": "x"}, {"seconds": True}, {"seconds": -5}),
    *({"relativedelta": 5}, {"relativedelta": {"months": "x"}}, {"relativedelta": {"foo": 1}}),
    *({"instant": 5}, {"instant": "x"}, {"instant": "2026-01-01"}, {"instant": "9999-12-31T23:59:59-10:00"}),
)


def wrong() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, cls in sorted(type_registry.items()):
        if is_own(cls) and name != "AssetDefinition":
            own = [field.name for field in fields(cls) if field.init] if is_dataclass(cls) else []
            for field_name in dict.fromkeys((*own, *NEEDED.get(name, {}))):
                for value in HOSTILE:
                    yield field_name, {"type": name, **NEEDED.get(name, {}), field_name: value}


def test_a_field_is_refused_as_a_definition_is_or_written_back_as_json() -> None:
    kept = refused = 0
    for field_name, data in wrong():
        try:
            value = from_plain(data)
        except (DefinitionError, DefinitionTypeError):
            refused += 1
            continue
        kept += 1
        written = json.dumps(plain(value), allow_nan=False)
        assert from_plain(json.loads(written)) == value, (data["type"], field_name)
        assert hash(from_plain(json.loads(written))) == hash(value)
    assert kept > 200
    assert refused > 3000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"team": 5}, r"Job\.team must be text, not 5"),
        ({"description": ["x"]}, r"Job\.description must be text, not \['x'\]"),
        ({"catchup": "no"}, r"Job\.catchup must be true or false, not 'no'"),
        ({"inlets": None}, r"Job\.inlets must be a list of assets, not None"),
        ({"outlets": Asset("a")}, r"Job\.outlets must be a list of assets, not Asset"),
        ({"run_commands_topic": 7}, r"Job\.run_commands_topic must be text, not 7"),
    ],
)
def test_a_job_names_the_field_of_a_wrong_type(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionTypeError, match=message):
        Job("j", **arguments)


def test_a_blank_team_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Job\.team ' ' is blank"):
        Job("j", team=" ")


def test_a_date_beyond_the_calendar_is_refused() -> None:
    beyond = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-10)))
    with pytest.raises(
        DefinitionError, match=r"Job\.end_date 9999-12-31 23:00:00-10:00 lies beyond the calendar"
    ):
        Job("j", end_date=beyond)


def test_other_types_name_the_field_of_a_wrong_type() -> None:
    at = datetime(2026, 3, 10, tzinfo=UTC)
    with pytest.raises(
        DefinitionTypeError, match=r"EventsTimetable\.event_dates must be a list of datetimes, not 5"
    ):
        EventsTimetable(5)  # type: ignore[arg-type]
    with pytest.raises(
        DefinitionTypeError, match=r"EventsTimetable\.presorted must be true or false, not 'x'"
    ):
        EventsTimetable([at], presorted="x")  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="partition_mapper_config must be a dict, not 5"):
        PartitionedAssetTimetable(Asset("a"), partition_mapper_config=5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"RollingWindow\.unit \[\] is not known"):
        RollingWindow(3, [])  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match=r"output_format must be a strftime format, not \[\]"):
        StartOfDayMapper(output_format=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", [{"x": float("nan")}, {"x": {1}}, {"x": datetime(2026, 3, 10)}])
def test_an_extra_that_is_no_json_is_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"Asset\.extra must be a dict of JSON data: "):
        Asset("a", extra=extra)


def test_teams_given_only_once_are_kept() -> None:
    assert AssetAccessControl(producer_teams=(team for team in ["a", "b"])).producer_teams == ("a", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize("offset", [10_001, -10_001, 10**30])
def test_an_offset_that_would_never_be_counted_is_refused(offset: int) -> None:
    with pytest.raises(DefinitionError, match="run_offset"):
        CronPartitionTimetable("@daily", run_offset=offset)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"seconds": float("nan")}, DefinitionError, "a duration of nan seconds"),
        ({"seconds": 1e300}, DefinitionError, r"a duration of 1e\+300 seconds"),
        ({"seconds": True}, DefinitionTypeError, "a number of seconds, not True"),
        ({"relativedelta": 5}, DefinitionTypeError, "not 5"),
        ({"relativedelta": {"months": "x"}}, DefinitionTypeError, "months of a relativedelta .* not 'x'"),
        ({"relativedelta": {"foo": 1}}, DefinitionError, "no part 'foo'"),
        ({"instant": "x"}, DefinitionError, "not 'x'"),
        ({"instant": 5}, DefinitionTypeError, "not 5"),
    ],
)
def test_a_time_that_cannot_be_read_is_quoted(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_plain(data)


def test_a_field_that_would_hide_the_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StartOfDayMapper, "serialize", lambda self: {"type": "IdentityMapper"})
    with pytest.raises(DefinitionError, match="StartOfDayMapper has a field 'type'"):
        plain(StartOfDayMapper())
    monkeypatch.setattr(StartOfDayMapper, "serialize", lambda self: None)
    with pytest.raises(DefinitionTypeError, match=r"serialize must give a dict, not None"):
        plain(StartOfDayMapper())


@pytest.mark.parametrize("kind", ["list", "object", "AssetAll", "ChainMapper"])
def test_what_is_nested_too_deeply_is_refused(kind: str) -> None:
    data: Any = []
    for _ in range(100_000):
        data = {
            "list": [data],
            "object": {"a": data},
            "AssetAll": {"type": "AssetAll", "conditions": [data]},
            "ChainMapper": {"type": "ChainMapper", "mappers": [data]},
        }[kind]
    with pytest.raises(DefinitionError, match="nested too deeply"):
        from_plain(data)


class EndlessDay(Window):
    """Ever later times, and it never stops."""

    expected_decoded_type = datetime

    def to_upstream(self, decoded_downstream: datetime) -> Iterable[datetime]:
        return (decoded_downstream + timedelta(microseconds=n) for n in count())


class EndlessText(Window):
    def to_upstream(self, decoded_downstream: str) -> Iterable[str]:
        return (f"{decoded_downstream}-{n}" for n in count())


class EndlessAnchors(Window):
    def to_upstream(self, decoded_downstream: str) -> Iterable[str]:
        return [decoded_downstream]

    def anchors(self, member: str) -> Iterable[str]:
        return map(str, count())


ENDLESS = r"Endless\w+\.(to_upstream|anchors)\(.*\) gives more than 100,000 values, or never ends"


def test_a_window_without_an_end_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match=ENDLESS):
        RollupMapper(StartOfDayMapper(), EndlessDay())


@pytest.mark.parametrize("window", [EndlessText(), EndlessAnchors()])
def test_a_window_without_an_end_costs_an_event_and_never_the_service(window: Window) -> None:
    with pytest.raises(DefinitionError, match=ENDLESS):
        RollupMapper(FixedKeyMapper("all"), window).placements("k")


@pytest.mark.parametrize(
    ("mapper", "window"), [(StartOfDayMapper(), EndlessDay()), (IdentityMapper(), EndlessText())]
)
def test_a_fan_out_over_a_window_without_an_end_ends(mapper: Any, window: Window) -> None:
    with pytest.raises(DefinitionError, match=ENDLESS):
        FanOutMapper(mapper, window, downstream_mapper=IdentityMapper()).downstream_keys("2026-03-10")


def test_a_file_whose_aliases_stand_for_billions_is_refused_with_the_line(tmp_path: Path) -> None:
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(["a0: &a0 [ha, ha]", *lines]))
    # a0 stands for 3 values, and each line after it for nine times the one before and itself: a6 for 1,660,753.
    with pytest.raises(
        DefinitionError, match=r"line 7: not YAML: with its aliases .* more than 1,000,000 values"
    ):
        load_definitions(path)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("!!timestamp 2026-13-45", "the tag 'tag:yaml.org,2002:timestamp' is not known"),
        ("!!python/name:os.system", "the tag 'tag:yaml.org,2002:python/name:os.system' is not known"),
        ("!!bool maybe", "'maybe' is no bool"),
        ("!!int x", "'x' is no int"),
        ("9" * 5_000, "a number of 5,000 digits"),
        ("[" * 1_000 + "]" * 1_000, "brackets are nested too deeply"),
    ],
)
def test_a_value_that_json_does_not_know_is_refused_with_its_line(
    tmp_path: Path, value: str, problem: str
) -> None:
    path = tmp_path / "definitions.yaml"
    path.write_text(f"type: Asset\nname: {value}\n")
    with pytest.raises(DefinitionError, match=f"definitions.yaml, line 2: not YAML: {problem}"):
        load_definitions(path)


def test_a_message_quotes_the_ends_of_what_is_long(tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    schedule = {"type": "CronTriggerTimetable", "cron": "x" * 100_000}
    path.write_text(json.dumps({"type": "Job", "id": "j", "schedule": schedule}))
    with pytest.raises(DefinitionError, match=r"definitions\.json: cron 'xxx+ \.\.\. xxx+'") as refused:
        load_definitions(path)
    assert len(str(refused.value)) < 1_200
