"""The example on real services in processes of their own: every right answer of a year of hourly readings.

Nothing here takes an expected value from Tidegate: days, months, members and instants are worked out by hand in
`readings.py`, the means are those of the data's README, and commands are read by librdkafka as plain JSON.
"""

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from tests.broker.conftest import Install, Installed
from tests.e2e.checks import check
from tests.e2e.readings import (
    CITIES,
    MONTHS,
    SHORT_DAY,
    Reading,
    all_readings,
    doubled,
    expected,
    midnight,
    shuffled,
)
from tests.e2e.road import feed, road, tidegate, until

SEED = 20100314
LEFT_OUT = "2010-06-10T07:00:00"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

on_real_servers = pytest.mark.parametrize("backend", ["real"], indirect=True)


@pytest.fixture
def installed(install: Install) -> Installed:
    return install(partitions=4, shards=16)


def test_the_files_are_as_their_readme_says() -> None:
    """The oracle itself: counts that the README gives, not computed by the code under test or by this folder's."""
    year = all_readings()
    assert len(year) == 17_518
    assert [each.hour[11:13] for each in year if each.city == "seattle" and each.hour.startswith(SHORT_DAY)][
        :4
    ] == [*("00", "01", "02", "04")]
    days, months = expected(year)
    assert (len(days), len(months)) == (365, 12)
    assert {day: len(rows) for day, cities in days.items() for rows in cities.values()} == {
        day: 23 if day == SHORT_DAY else 24 for day in days
    }
    hours = Counter((each.hour[:7], each.city) for each in year)
    assert all(hours[month, city] == MONTHS[month][0] for month in MONTHS for city in CITIES)
    days, months = expected(without_the_hour(year))
    assert (len(days), len(months)) == (364, 11)
    assert midnight(SHORT_DAY).isoformat() == "2010-03-14T08:00:00+00:00"
    assert midnight("2010-03-15").isoformat() == "2010-03-15T07:00:00+00:00"


def test_a_year_in_order(installed: Installed) -> None:
    with road(installed) as running:
        feed(installed.kafka, all_readings())
        check(running, all_readings(), days=365, months=12)
        assert running.audit_kinds() == {}


@on_real_servers
def test_a_year_in_any_order(installed: Installed) -> None:
    print(f"seed {SEED}")
    with road(installed) as running:
        feed(installed.kafka, shuffled(all_readings(), SEED))
        check(running, all_readings(), days=365, months=12)
        assert running.audit_kinds() == {}


@on_real_servers
def test_a_year_with_every_event_sent_twice(installed: Installed) -> None:
    print(f"seed {SEED}")
    with road(installed) as running:
        feed(installed.kafka, doubled(all_readings(), SEED))
        check(running, all_readings(), days=365, months=12)
        assert running.audit_kinds() == {"duplicate-event": 17_518}
        assert {entry["service"] for entry in running.audit().values()} == {"ingest"}


@on_real_servers
def test_a_year_with_one_hour_missing(installed: Installed) -> None:
    with road(installed) as running:
        feed(installed.kafka, without_the_hour(all_readings()))
        check(running, without_the_hour(all_readings()), days=364, months=11)
        assert missing_by_asset(installed, "daily_temperatures") == {
            LEFT_OUT[:10]: {"seattle_hourly": [LEFT_OUT], "san_francisco_hourly": []}
        }
        (days,) = missing_by_asset(installed, "monthly_temperatures")[LEFT_OUT[:7]].values()
        assert [day[:10] for day in days] == [LEFT_OUT[:10]]  # days may be named by their first hour
        # The hour comes late, and everything that waited for it follows.
        feed(installed.kafka, [each for each in all_readings() if is_left_out(each)])
        check(running, all_readings(), days=365, months=12)
        assert missing_by_asset(installed, "daily_temperatures") == {}
        assert running.audit_kinds() == {}


@pytest.mark.parametrize("hour", ["02", "23"])
def test_pending_names_the_hour_that_the_short_day_lacks(installed: Installed, hour: str) -> None:
    day = [each for each in all_readings() if each.hour.startswith(SHORT_DAY)]
    missing = Reading(f"{SHORT_DAY}T{hour}:00:00", "san_francisco", 0)
    with road(installed) as running:
        feed(installed.kafka, [each for each in day if each[:2] != missing[:2]])
        running.settle()
        (waiting,) = pending(installed, "daily_temperatures")
        # The label 02:00 names an hour that the clocks skipped; the member that it stands for is called 03:00.
        name = f"{SHORT_DAY}T{'03' if hour == '02' else hour}:00:00"
        by_asset = {each["asset"]: each for each in waiting["assets"]}
        assert waiting["key"] == SHORT_DAY
        assert (
            by_asset["san_francisco_hourly"]["arrived"],
            by_asset["san_francisco_hourly"]["expected"],
        ) == (22, 23)
        assert by_asset["san_francisco_hourly"]["missing"] == [name]
        assert by_asset["seattle_hourly"]["arrived"] == 23
        assert by_asset["seattle_hourly"]["missing"] == []
        shown = tidegate(installed, "pending", "daily_temperatures")
        assert SHORT_DAY in shown
        assert "22/23" in shown
        assert not running.commands()
        feed(installed.kafka, [each for each in day if each[:2] == missing[:2]])
        until(running.commands, "the command of the short day")
        running.settle()
        assert [record.value["partition_key"] for record in running.commands()] == [SHORT_DAY]


def is_left_out(reading: Reading) -> bool:
    return (reading.hour, reading.city) == (LEFT_OUT, "seattle")


def without_the_hour(readings: Collection[Reading]) -> list[Reading]:
    return [each for each in readings if not is_left_out(each)]


def pending(installed: Installed, job: str) -> list[dict[str, Any]]:
    """The windows of a job that are still filling, from the command line."""
    found = json.loads(tidegate(installed, "pending", job, "--json"))
    assert len(found["rounds"]) == found["total"]
    rounds: list[dict[str, Any]] = found["rounds"]
    return rounds


def missing_by_asset(installed: Installed, job: str) -> dict[str, dict[str, list[str]]]:
    return {
        each["key"]: {asset["asset"]: asset["missing"] for asset in each["assets"]}
        for each in pending(installed, job)
    }
