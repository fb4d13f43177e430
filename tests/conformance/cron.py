"""Answers to the vectors of timetables."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dateutil.relativedelta import relativedelta

from tests.conformance.harness import Answer, Ask, Vector
from tidegate.core import timetables
from tidegate.core.timetables import (
    DagRunInfo,
    DataInterval,
    TimeRestriction,
    Timetable,
    next_run,
    partitions_between,
    resolve_partition_date,
    summary_of,
)


def _span(data: object) -> Any:
    if not isinstance(data, Mapping):
        return data
    kind = {"timedelta": timedelta, "relativedelta": relativedelta}[data["kind"]]
    return kind(**{name: value for name, value in data.items() if name != "kind"})


def _timetable(subject: Mapping[str, Any]) -> Timetable:
    fields = {name: _span(value) for name, value in subject.items() if name != "type"}
    kind = getattr(timetables, subject["type"])
    if "event_dates" in fields:
        fields["event_dates"] = [datetime.fromisoformat(at) for at in fields["event_dates"]]
    if "crons" in fields:
        return kind(*fields.pop("crons"), **fields)  # type: ignore[no-any-return]
    if "cron" in fields:
        return kind(fields.pop("cron"), **fields)  # type: ignore[no-any-return]
    return kind(**fields)  # type: ignore[no-any-return]


def _at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _interval(interval: DataInterval | None) -> list[str | None] | None:
    return None if interval is None else [_text(interval.start), _text(interval.end)]


def _run(run: DagRunInfo | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "run_after": _text(run.run_after),
        "data_interval": _interval(run.data_interval),
        "partition_key": run.partition_key,
        "partition_date": _text(run.partition_date),
    }


def _last(data: Mapping[str, Any] | None) -> DagRunInfo | None:
    if data is None:
        return None
    interval = [datetime.fromisoformat(at) for at in data.get("data_interval") or ()]
    return DagRunInfo(
        datetime.fromisoformat(data["run_after"]),
        DataInterval(*interval) if interval else None,
        _at(data.get("partition_date")),
        data.get("partition_key"),
    )


def sequence(vector: Vector) -> Answer:
    given = vector["input"]
    timetable = _timetable(vector["subject"])
    last = _last(given["last"])
    runs: list[dict[str, Any] | None] = []
    for step in range(given["steps"]):
        now = given["now"][step] if isinstance(given["now"], list) else given["now"]
        restriction = TimeRestriction(
            _at(given["earliest"]), _at(given["latest"]), given["catchup"], _at(now)
        )
        last = next_run(timetable, last, restriction)
        runs.append(_run(last))
        if last is None:
            break
    return {"runs": runs}


def infer_manual_data_interval(vector: Vector) -> Answer:
    run_after = datetime.fromisoformat(vector["input"])
    return {
        "data_interval": _interval(
            _timetable(vector["subject"]).infer_manual_data_interval(run_after=run_after)
        )
    }


def backfill(vector: Vector) -> Answer:
    earliest, latest = (datetime.fromisoformat(vector["input"][name]) for name in ("earliest", "latest"))
    return {
        "runs": [_run(run) for run in partitions_between(_timetable(vector["subject"]), earliest, latest)]
    }


def resolve(vector: Vector) -> Answer:
    return {"instant": _text(resolve_partition_date(_timetable(vector["subject"]), vector["input"]))}


def construct(vector: Vector) -> Answer:
    _timetable(vector["subject"])
    return {"ok": True}


def validate(vector: Vector) -> Answer:
    _timetable(vector["subject"]).validate()
    return {"ok": True}


def attributes(vector: Vector) -> Answer:
    timetable = _timetable(vector["subject"])
    names = ("active_runs_limit", "can_be_scheduled", "partitioned", "partitioned_at_runtime", "periodic")
    return {name: getattr(timetable, name) for name in names} | {"summary": summary_of(timetable)}


def next_dagrun_info_v1(vector: Vector) -> Answer:
    given = vector["input"]
    restriction = TimeRestriction(_at(given["earliest"]), _at(given.get("latest")), given["catchup"])
    timetable = _timetable(vector["subject"])
    return {
        "run": _run(timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction))
    }


ANSWERS: dict[str, Ask] = {
    "sequence": sequence,
    "infer_manual_data_interval": infer_manual_data_interval,
    "backfill": backfill,
    "resolve_partition_date": resolve,
    "construct": construct,
    "validate": validate,
    "attributes": attributes,
    "next_dagrun_info_v1": next_dagrun_info_v1,
}
