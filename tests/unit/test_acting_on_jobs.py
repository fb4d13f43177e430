"""What a person may ask of a job: keys for runs, held against its schedule (rule D14)."""

from datetime import UTC, datetime

import pytest

from tidegate import (
    Asset,
    ContinuousTimetable,
    CronPartitionTimetable,
    Job,
    PartitionedAssetTimetable,
    PartitionedAtRuntime,
    StartOfDayMapper,
)
from tidegate.core.errors import DefinitionError, DefinitionTypeError, InvalidPartitionKeyError
from tidegate.core.plain import from_plain, plain
from tidegate.runtime.acting_on_jobs import check_key

NOW = datetime(2026, 3, 10, 9, 20, tzinfo=UTC)
HOURLY = Job("hourly", CronPartitionTimetable("0 * * * *"))
BY_DAY = Job("by_day", PartitionedAssetTimetable(Asset("a"), StartOfDayMapper(timezone="America/New_York")))
COPY = Job("copy", PartitionedAssetTimetable(Asset("a")))
WHOLE = Job("whole", [Asset("a")])
RUNTIME = Job("runtime", PartitionedAtRuntime())


@pytest.mark.parametrize(
    ("job", "key", "is_unpartitioned", "date"),
    [
        (HOURLY, "2026-03-10T07:00:00", False, datetime(2026, 3, 10, 7, tzinfo=UTC)),
        (HOURLY, None, True, None),
        (BY_DAY, "2026-03-10", False, datetime(2026, 3, 10, 4, tzinfo=UTC)),
        (COPY, "any key", False, None),
        (WHOLE, None, False, None),
        (WHOLE, None, True, None),
        (RUNTIME, None, False, None),
        (Job("by_hand"), None, False, None),
    ],
)
def test_a_key_that_the_schedule_could_give_is_taken_with_its_date(
    job: Job, key: str | None, is_unpartitioned: bool, date: datetime | None
) -> None:
    assert check_key(job, key, NOW, is_unpartitioned=is_unpartitioned) == date


@pytest.mark.parametrize(
    ("job", "key", "is_unpartitioned", "why"),
    [
        (HOURLY, None, False, "the latest is 2026-03-10T09:00:00"),  # B037
        (COPY, None, False, "give --key, or --unpartitioned"),
        (HOURLY, "2026-03-10", False, "is not in the form"),
        (BY_DAY, "yesterday", False, "yesterday"),
        (COPY, " ", False, "empty or blank"),
        (COPY, "k", True, "exclude each other"),
        (WHOLE, "k", False, "leave partition key 'k' out"),
        (RUNTIME, "k", False, "leave partition key 'k' out"),
        (Job("by_hand"), "k", False, "leave partition key 'k' out"),
    ],
)
def test_d14_another_key_or_a_missing_one_is_refused(
    job: Job, key: str | None, is_unpartitioned: bool, why: str
) -> None:
    with pytest.raises(InvalidPartitionKeyError, match=why):
        check_key(job, key, NOW, is_unpartitioned=is_unpartitioned)


@pytest.mark.parametrize(
    ("cron", "zone", "latest"),
    [
        ("0 0 1 1 *", "UTC", "2026-01-01T00:00:00"),  # once a year
        ("0 * * * *", "Pacific/Kiritimati", "2026-03-10T23:00:00"),
        ("0 * * * *", "Pacific/Pago_Pago", "2026-03-09T22:00:00"),
    ],
)
def test_the_latest_partition_is_the_last_that_has_begun_in_any_zone(
    cron: str, zone: str, latest: str
) -> None:
    with pytest.raises(InvalidPartitionKeyError, match=f"the latest is {latest}"):
        check_key(Job("j", CronPartitionTimetable(cron, timezone=zone)), None, NOW, is_unpartitioned=False)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_no_run_start_is_refused(limit: int) -> None:
    with pytest.raises(DefinitionError, match=f"max_active_runs {limit} would let no run start"):
        Job("j", max_active_runs=limit)


@pytest.mark.parametrize("limit", [True, "2", 1.5])
def test_a_limit_that_is_no_number_is_a_type_error(limit: object) -> None:
    with pytest.raises(DefinitionTypeError, match="max_active_runs must be a whole number"):
        Job("j", max_active_runs=limit)


def test_the_limit_is_the_smaller_of_the_jobs_and_its_schedules_and_travels() -> None:
    assert Job("j").active_runs_limit is None
    assert Job("j", max_active_runs=3).active_runs_limit == 3
    assert Job("j", ContinuousTimetable(), max_active_runs=3).active_runs_limit == 1
    assert "max_active_runs" not in plain(Job("j"))
    assert from_plain(plain(Job("j", max_active_runs=3))) == Job("j", max_active_runs=3)
