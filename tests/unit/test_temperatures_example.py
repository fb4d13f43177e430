"""The example's files, and what must come of them."""

from pathlib import Path

import pytest

from examples.temperatures.readings import DATA, DataError, due, readings


def test_the_files_give_a_year_of_hours() -> None:
    found = readings()
    assert len(found) == 17_518
    assert len(set(found)) == 17_518
    assert {each.asset for each in found} == {"seattle_hourly", "san_francisco_hourly"}
    assert found == sorted(found, key=lambda each: each.partition_key)


def test_every_day_and_every_month_is_due() -> None:
    days, months = due(readings())
    assert len(days) == 365
    assert "2010-03-14" in days
    assert sorted(months) == [f"2010-{month:02}" for month in range(1, 13)]


def test_a_missing_hour_costs_its_day_and_its_month() -> None:
    lost = ("seattle_hourly", "2010-06-10T07:00:00")
    days, months = due(each for each in readings() if each[:2] != lost)
    assert len(days) == 364
    assert "2010-06-10" not in days
    assert len(months) == 11
    assert "2010-06" not in months


def test_order_and_repeats_change_nothing() -> None:
    found = readings()
    assert due([*reversed(found), *found]) == due(found)


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"seattle\.csv does not exist"):
        readings(tmp_path)


@pytest.mark.parametrize("row", ["2010-01-01T00:00:00,warm", "2010-01-01T00:00:00"])
def test_a_row_of_another_form_is_named(tmp_path: Path, row: str) -> None:
    (tmp_path / "seattle.csv").write_text(f"local_time,fahrenheit\n{row}\n", encoding="utf-8")
    (tmp_path / "san_francisco.csv").write_bytes((DATA / "san_francisco.csv").read_bytes())
    with pytest.raises(DataError, match=r"seattle\.csv, line 2"):
        readings(tmp_path)
