"""Everything that came out of a road, held against readings: every value is worked out by hand or by librdkafka."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from tests.e2e.outside import Record
from tests.e2e.readings import CITIES, MONTHS, SOURCE, Expected, Reading, expected, midnight
from tests.e2e.road import Road, written_months


def check(running: Road, readings: Collection[Reading], days: int, months: int) -> None:
    """Wait until everything is done, then hold all that came out against the readings."""
    due = expected(readings)
    assert (len(due.days), len(due.months)) == (days, months)
    running.until_commands(days + months)
    running.settle()
    commands = running.commands()
    _check_each_once(commands, due)
    by_job: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for record in commands:
        by_job[record.value["job"]][record.value["partition_key"]] = record.value
    for day, rows in due.days.items():
        _check_day(by_job["daily_temperatures"][day], day, rows)
    for month, of_month in due.months.items():
        _check_month(by_job["monthly_temperatures"][month], month, of_month)
    _check_means(written_months(running.worker.results), due)
    _check_reports(running, commands)
    assert running.outside.read("asset-events.rejected") == []


def _check_each_once(commands: Sequence[Record], due: Expected) -> None:
    by_key = Counter((record.value["job"], record.value["partition_key"]) for record in commands)
    assert by_key == Counter(
        [("daily_temperatures", day) for day in due.days]
        + [("monthly_temperatures", month) for month in due.months]
    )
    assert set(Counter(record.value["run_id"] for record in commands).values()) == {1}
    for record in commands:
        assert record.topic == f"run-commands.{record.value['job']}"
        assert record.key == record.value["partition_key"]


def _check_day(command: Mapping[str, Any], day: str, rows: Mapping[str, Sequence[Reading]]) -> None:
    _check_run(command, midnight(day), {f"{city}_hourly": len(rows[city]) for city in CITIES})
    for city in CITIES:
        events = [each for each in command["triggering_asset_events"] if each["asset"] == f"{city}_hourly"]
        members = sorted(
            (each["member"], each["partition_key"], each["extra"]["fahrenheit"]) for each in events
        )
        # in the file's order the hours are the members 0, 1, 2 ...; on the short day 02 is the third, as 04 the fourth
        assert members == [(n, each.hour, each.fahrenheit) for n, each in enumerate(rows[city])]
        assert {(each["source"], each["id"]) for each in events} == {(SOURCE, each.id) for each in rows[city]}


def _check_month(command: Mapping[str, Any], month: str, days: Sequence[str]) -> None:
    _check_run(command, midnight(f"{month}-01"), {"daily_temperatures": len(days)})
    members = sorted((each["member"], each["partition_key"]) for each in command["triggering_asset_events"])
    assert members == list(enumerate(days))
    for each in command["triggering_asset_events"]:
        assert datetime.fromisoformat(each["partition_date"]) == midnight(each["partition_key"])


def _check_run(command: Mapping[str, Any], date: datetime, sizes: Mapping[str, int]) -> None:
    assert datetime.fromisoformat(command["partition_date"]) == date
    assert datetime.fromisoformat(command["partition_date"]).utcoffset() == date.utcoffset()
    assert (command["generation"], command["attempt"], command["cause"]) == (1, 1, "assets")
    assert {each["asset"]: (each["arrived"], each["expected"]) for each in command["windows"]} == {
        asset: (size, size) for asset, size in sizes.items()
    }
    events = command["triggering_asset_events"]
    assert Counter(each["asset"] for each in events) == sizes
    assert len({(each["source"], each["id"]) for each in events}) == len(events)
    assert command["completed_by"] in {each["id"] for each in events}


def _check_means(months: Mapping[str, Any], due: Expected) -> None:
    assert months.keys() == due.months.keys()
    for month, written in months.items():
        hours, *means = MONTHS[month]
        assert [_four_decimals(written["cities"][city]["mean"]) for city in CITIES] == means, month
        assert [written["cities"][city]["hours"] for city in CITIES] == [hours, hours], month


def _four_decimals(mean: float) -> str:
    """Rounded as people do: Seattle's mean of September is 60.21125 exactly, which is no binary number."""
    return str(Decimal(repr(mean)).quantize(Decimal("0.0001"), ROUND_HALF_UP))


def _check_reports(running: Road, commands: Collection[Record]) -> None:
    """Every run ended well, once, and is on record so."""
    ids = {record.value["run_id"] for record in commands}
    reports = Counter(
        (each.value["run_id"], each.value["state"]) for each in running.outside.read("run-events")
    )
    assert {key: count for key, count in reports.items() if key[1] == "succeeded"} == {
        (run_id, "succeeded"): 1 for run_id in ids
    }
    assert {state for _, state in reports} == {"running", "succeeded"}
    latest = {record.key: record.value["state"] for record in running.outside.read("runs")}
    assert latest == dict.fromkeys(ids, "succeeded")
