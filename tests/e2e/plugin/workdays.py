"""A job by the plugin's clock."""

from datetime import UTC, datetime

from acme_partitions.timetables import WorkdayTimetable

from tidegate import Job

report = Job(
    id="report", schedule=WorkdayTimetable(), start_date=datetime(2026, 3, 6, tzinfo=UTC), catchup=True
)
