"""Definitions as plain data and back."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.mappers import (
    IdentityMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
)
from tidegate.core.plain import Plain, from_plain, is_own, plain, type_registry
from tidegate.core.policies import WaitForAll
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.core.windows import DayWindow, MonthWindow
from tidegate.definitions import Asset, Job

formats = st.sampled_from(["%Y-%m-%dT%H:%M:%S", "%Y%m%d%H", "%Y-%m-%dT%H%z"])
zones = st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
temporal = st.builds(
    lambda kind, zone, form: kind(timezone=zone, input_format=form),
    st.sampled_from([StartOfHourMapper, StartOfDayMapper, StartOfMonthMapper]),
    zones,
    formats,
)
rollups = st.builds(
    lambda zone, form: RollupMapper(StartOfDayMapper(timezone=zone, input_format=form), DayWindow()),
    zones,
    formats,
)
mappers = st.one_of(st.builds(IdentityMapper), temporal, rollups)
assets = st.builds(Asset, st.sampled_from("abc"), st.sampled_from([None, "s3://bucket/x"]), extra=st.just({}))
schedules = st.builds(
    lambda one, other, mapper, own: PartitionedAssetTimetable(one & other, mapper, {one: own}),
    assets,
    assets,
    mappers,
    mappers,
)


@given(
    mappers | schedules | st.builds(lambda schedule: Job("j", schedule, outlets=[Asset("out")]), schedules)
)
def test_a_definition_survives_json_and_comes_back_equal(value: Plain) -> None:
    text = json.dumps(plain(value))
    again = from_plain(json.loads(text))
    assert again == value
    assert json.dumps(plain(again)) == text


@given(mappers)
def test_equal_definitions_have_equal_hashes(mapper: Plain) -> None:
    assert hash(from_plain(plain(mapper))) == hash(mapper)


def test_only_what_differs_from_the_default_is_written() -> None:
    assert plain(StartOfDayMapper()) == {"type": "StartOfDayMapper"}
    assert plain(RollupMapper(StartOfDayMapper(timezone="Asia/Tokyo"), DayWindow())) == {
        "type": "RollupMapper",
        "upstream_mapper": {"type": "StartOfDayMapper", "timezone": "Asia/Tokyo"},
        "window": {"type": "DayWindow"},
    }


def test_a_default_policy_need_not_be_written_down() -> None:
    mapper, window = {"type": "StartOfMonthMapper"}, {"type": "MonthWindow"}
    data = {"type": "RollupMapper", "upstream_mapper": mapper, "window": window}
    assert from_plain(data) == RollupMapper(StartOfMonthMapper(), MonthWindow(), WaitForAll())


def test_a_duration_and_nested_plain_values_come_back() -> None:
    value: dict[str, Any] = {"wait": timedelta(minutes=90), "nested": {"list": [1, "x", None]}}
    assert from_plain(json.loads(json.dumps(plain(value)))) == {
        "wait": timedelta(minutes=90),
        "nested": {"list": (1, "x", None)},
    }


def test_an_unknown_type_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(DefinitionError, match=r"'StartOfDecadeMapper' is not known.*StartOfDayMapper"):
        from_plain({"type": "StartOfDecadeMapper"})


def test_a_class_in_the_place_of_a_value_is_refused_with_how_to_write_it() -> None:
    wrong: Any = DayWindow
    with pytest.raises(
        DefinitionTypeError, match=r"must be a Window, not the class DayWindow: write DayWindow\(\.\.\.\)"
    ):
        RollupMapper(StartOfDayMapper(), wrong)


def test_an_unknown_field_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(DefinitionError, match=r"StartOfDayMapper has no field 'time_zone'.*timezone"):
        from_plain({"type": "StartOfDayMapper", "time_zone": "UTC"})
    with pytest.raises(DefinitionError, match="use none"):
        from_plain({"type": "NullTimetable", "direction": "forward"})


def test_a_missing_field_is_a_type_error_that_names_the_class() -> None:
    with pytest.raises(DefinitionTypeError, match="RollupMapper cannot be built"):
        from_plain({"type": "RollupMapper", "window": {"type": "DayWindow"}})


def test_a_wrong_value_keeps_the_error_of_its_class() -> None:
    with pytest.raises(DefinitionError, match="Mars"):
        from_plain({"type": "StartOfDayMapper", "timezone": "Mars"})
    with pytest.raises(DefinitionTypeError, match="input_format"):
        from_plain({"type": "StartOfDayMapper", "input_format": 5})


@pytest.mark.parametrize("type_name", [["x"], {"a": 1}, 5, None])
def test_a_type_that_is_no_text_is_refused(type_name: object) -> None:
    with pytest.raises(DefinitionError, match="is not known"):
        from_plain({"type": type_name})


@pytest.mark.parametrize("seconds", ["x", None, [1]])
def test_a_duration_that_is_no_number_is_refused(seconds: object) -> None:
    with pytest.raises((DefinitionError, DefinitionTypeError)):
        from_plain({"seconds": seconds})


def test_everything_that_data_can_name_can_be_told_apart_by_its_name() -> None:
    assert all(getattr(kind, "type_name", None) == name for name, kind in type_registry.items())
    assert not [name for name, kind in type_registry.items() if name.startswith("_") and is_own(kind)]


@pytest.mark.parametrize(
    "name",
    [
        "PartitionMapper",
        "TemporalMapper",
        "WaitPolicy",
        "Window",
        "CalendarWindow",
        "PeriodWindow",
        "Leaf",
        "Timetable",
        "BuiltInTimetable",
        "UntimedTimetable",
    ],
)
def test_a_base_class_cannot_be_named_in_data(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not known"):
        from_plain({"type": name})


@pytest.mark.parametrize(
    "extra", [{"type": "parquet"}, {"seconds": 5}, {"list": [1, [2]], "nested": {"type": 5}}]
)
def test_the_extra_of_an_asset_is_somebodys_own_json_and_left_alone(extra: dict[str, Any]) -> None:
    again = from_plain(json.loads(json.dumps(plain(Job("j", outlets=[Asset("a", extra=extra)])))))
    assert again.outlets[0].extra == extra
