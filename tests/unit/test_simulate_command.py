"""`tidegate simulate`: every example schedule with its events, and what the command says where something is wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.servers.command_line import Said, invoke, start
from tests.unit.test_sdk_run import command
from tidegate.contracts.runs import Outlet
from tidegate.sdk import Run
from tidegate.sdk.outlets import encode_outlets
from tidegate.sdk.template import render

ROOT = Path(__file__).parents[2]
SCHEDULES = ROOT / "examples" / "schedules"

Simulate = Callable[..., Said]


def simulate(*arguments: str | Path, events: str | None = None) -> Said:
    return invoke(None, "simulate", *map(str, arguments), events=events)


def process(*arguments: str | Path, events: str | None = None, path: Path = ROOT) -> Said:
    """The command as users run it."""
    paths = os.pathsep.join([str(ROOT / "shared"), str(path), os.environ.get("PYTHONPATH", "")])
    return start("simulate", *map(str, arguments), env={"PYTHONPATH": paths}, events=events)


def lines(output: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for line in output.splitlines():
        ((kind, fields),) = json.loads(line).items()
        found.append((kind, fields))
    return found


def shown(output: str) -> list[tuple[Any, ...]]:
    """Every line in short: what it is, whom it is about, and what it says."""
    found: list[tuple[Any, ...]] = []
    for kind, fields in lines(output):
        who = (fields.get("job"), fields.get("partition_key"))
        if kind in ("run", "held"):
            keys = [member["partition_key"] for member in fields.get("members", ())]
            date = (fields["partition_date"] or "none").removesuffix(":00Z")
            found.append((kind, *who, date, keys or fields["run_after"].removesuffix(":00Z")))
        elif kind == "pending":
            found.append((kind, *who, f"{fields['have']}/{fields['of']}", fields["missing"]))
        else:
            found.append((fields["kind"], *who, fields.get("event_id")))
    return found


def test_half_a_character_is_refused_and_printed_escaped(tmp_path: Path) -> None:
    definitions = tmp_path / "d.json"
    definitions.write_text('{"type": "Job", "id": "j", "schedule": {"type": "Asset", "name": "a"}}')
    result = process(definitions, "-", events='{"asset": "a", "partition_key": "\\ud800"}\n')
    assert result.exit_code == 0, result.err
    ((kind, fields),) = lines(result.out)
    assert (kind, fields["kind"], fields["partition_key"]) == ("audit", "event-refused", "\ud800")


def example(name: str) -> list[tuple[Any, ...]]:
    (definitions,) = (path for path in SCHEDULES.glob(f"{name}.*") if path.suffix != ".jsonl")
    result = simulate(definitions, SCHEDULES / f"{name}.jsonl")
    assert result.exit_code == 0, result.text
    return shown(result.out)


HOURS = [f"2026-03-10T{hour:02}:00:00" for hour in range(24)]
DAY = "2026-03-10T00:00"

EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "hourly_to_daily": [
        ("run", "daily_report", "2026-03-10", DAY, HOURS),
        ("run", "daily_report_as_documented", "2026-03-10", DAY, HOURS),
        ("pending", "daily_report", "2026-03-11", "22/24", ["2026-03-11T22:00:00", "2026-03-11T23:00:00"]),
        ("pending", "daily_report_as_documented", "2026-03-11", "22/24",
         ["2026-03-11T22:00:00", "2026-03-11T23:00:00"]),
    ],
    "join_on_the_hour": [
        ("run", "reconcile", "2026-03-10T09", "2026-03-10T09:00",
         ["2026-03-10T09:00:00", "2026-03-10T09:05:00", "2026-03-10T09:59:59"]),
        ("pending", "reconcile", "2026-03-10T10", "1/3", ["orders", "shipments"]),
    ],
    "product_key": [
        ("run", "regional_report", "us|2026-03-10", "none", ["us|2026-03-10T09:00:00"]),
        ("run", "dated_regional_report", "us|2026-03-10", DAY, ["us|2026-03-10T09:00:00"]),
        ("run", "regional_report", "eu|2026-03-10", "none", ["eu|2026-03-10"]),
        ("run", "dated_regional_report", "eu|2026-03-10", DAY, ["eu|2026-03-10"]),
        ("mapping-failed", "regional_report", "2026-03-10T09:00:00", "line-3"),
        ("mapping-failed", "dated_regional_report", "2026-03-10T09:00:00", "line-3"),
    ],
    "mapper_per_asset": [
        ("run", "compare", "2026-03-10", DAY, ["2026-03-10T17:00:00", "2026-03-10"]),
    ],
    "segments": [
        ("run", "any_two_regions", "all_regions", "none", ["us", "eu"]),
        ("run", "all_but_one_region", "all_regions", "none", ["us", "eu"]),
        ("not-a-member", "all_regions", "latam", "latam"),
        ("not-a-member", "any_two_regions", "latam", "latam"),
        ("not-a-member", "all_but_one_region", "latam", "latam"),
        ("run", "all_regions", "all_regions", "none", ["us", "eu", "apac"]),
        # a key without a date comes again: what came after a partial round is the first of the next (rule D23)
        ("pending", "any_two_regions", "all_regions", "1/3", ["us", "eu"]),
        ("pending", "all_but_one_region", "all_regions", "1/3", ["us", "eu"]),
    ],
    "weekly_fan_out": [
        *(("run", "apply_forward", f"2026-03-{day:02}", f"2026-03-{day:02}T00:00", ["2026-03-09"])
          for day in range(9, 16)),
        *(("run", "apply_backward", f"2026-03-{day:02}", f"2026-03-{day:02}T00:00", ["2026-03-09"])
          for day in range(3, 10)),
    ],
    "fan_out_cap": [
        ("partition-fan-out-exceeded", "by_month", "2026-03-01", "line-1"),
        *(("run", "by_week", f"2026-03-{day:02}", f"2026-03-{day:02}T00:00", ["2026-03-09"])
          for day in range(9, 16)),
    ],
    "runtime_keys": [("run", "load", "us", "none", ["us"]), ("run", "load", "eu", "none", ["eu"])],
    "identity_chain": [
        ("run", "clean", "batch-17", DAY, ["batch-17"]),
        ("run", "enrich", "batch-17", DAY, ["batch-17"]),
        ("run", "publish", "batch-17", DAY, ["batch-17"]),
    ],
    "template": [("run", "report", "2026-03-10", DAY, ["2026-03-10T09:00:00"])],
    "by_the_clock": [
        ("run", "hourly_import", HOURS[0], "2026-03-10T00:00", "2026-03-10T01:00"),
        ("run", "hourly_import", HOURS[1], "2026-03-10T01:00", "2026-03-10T02:00"),
        ("run", "hourly_import", HOURS[2], "2026-03-10T02:00", "2026-03-10T03:00"),
        # those of 04:00 and 05:00 passed during the pause
        ("run", "hourly_import", HOURS[5], "2026-03-10T05:00", "2026-03-10T06:00"),
        ("pending", "daily_sum", "2026-03-10", "4/24", [*HOURS[3:5], *HOURS[6:]]),
    ],
    "changing": [
        # the change completes the round of a paused job: it runs when the job is resumed, with both events
        ("run", "all_regions", "all_regions", "none", ["us", "eu"]),
        ("unknown-asset", None, "us", "us-2"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_gives_what_its_schedule_says(name: str) -> None:
    assert example(name) == EXPECTED[name]


def test_every_example_is_tried() -> None:
    assert {path.stem for path in SCHEDULES.iterdir() if path.suffix in (".py", ".yaml", ".jsonl")} == set(
        EXPECTED
    )
    table = (SCHEDULES / "README.md").read_text()
    assert all(f"| `{name}." in table for name in EXPECTED)


def test_the_cap_is_named_with_its_owner_and_what_was_wanted() -> None:
    result = simulate(SCHEDULES / "fan_out_cap.py", SCHEDULES / "fan_out_cap.jsonl")
    kind, fields = lines(result.out)[0]
    assert (kind, fields["details"]) == ("audit", {"cap": 7, "source": "max_downstream_keys", "wanted": 31})
    assert fields["message"].startswith("partition fan-out exceeded")


def test_a_partial_run_says_how_full_it_was_and_what_it_lacks() -> None:
    result = simulate(
        SCHEDULES / "segments.py", "-", events='{"asset": "regional_sales", "partition_key": "eu"}'
    )
    kinds = [(kind, fields["assets"]) for kind, fields in lines(result.out)]
    assert kinds[1] == ("pending", [
        {"asset": "regional_sales", "arrived": 1, "expected": 3, "needed": 2, "missing": ["us", "apac"]}
    ])  # fmt: skip
    result = simulate(SCHEDULES / "segments.py", SCHEDULES / "segments.jsonl")
    run = lines(result.out)[0][1]
    assert run["windows"] == [{"asset": "regional_sales", "arrived": 2, "expected": 3}]
    assert run["missing"] == ["apac"]
    assert (run["run_id"], run["completed_by"], run["generation"]) == ("run-1", "eu", 1)


def test_types_of_plugins_are_known(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "from dataclasses import dataclass\n"
        "from tidegate import PartitionMapper\n"
        "@dataclass(frozen=True)\n"
        "class FirstLetter(PartitionMapper):\n"
        "    def to_downstream(self, key):\n"
        "        return key[0]\n"
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tidegate.mappers]\nletter = theirs:FirstLetter\nnone = theirs:Missing\n"
    )
    file = tmp_path / "definitions.yaml"
    file.write_text(
        "type: Job\nid: job\nschedule: {type: PartitionedAssetTimetable, assets: {type: Asset, name: a},"
        " default_partition_mapper: {type: FirstLetter}}\n"
    )
    found = process(file, "-", events=GOOD.replace('"k"', '"xyz"'), path=tmp_path)
    assert (found.exit_code, [row[2] for row in shown(found.out)]) == (0, ["x"])
    assert found.err.count("tidegate.mappers:none = theirs:Missing") == 1, "said once, by the command line"
    assert "left out, since it failed: AttributeError" in found.err


def test_a_chain_runs_at_each_hop_with_the_event_of_the_hop_before() -> None:
    result = simulate(SCHEDULES / "identity_chain.py", SCHEDULES / "identity_chain.jsonl")
    runs = [fields for _, fields in lines(result.out)]
    assert [run["completed_by"] for run in runs] == ["line-1", "run-1:cleaned", "run-2:enriched"]
    assert runs[0]["members"] == [
        {
            "asset": "raw",
            "id": "line-1",
            "source": "/simulate",
            "partition_key": "batch-17",
            "partition_date": "2026-03-10T00:00:00Z",
            "extra": {"rows": 120},
        }
    ]
    alone = simulate(SCHEDULES / "identity_chain.py", SCHEDULES / "identity_chain.jsonl", "--no-run-outlets")
    assert [fields["job"] for _, fields in lines(alone.out)] == ["clean"]


def module(name: str) -> ModuleType:
    spec = spec_from_file_location(name, SCHEDULES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_what_a_run_adds_are_the_events_that_start_the_next_job() -> None:
    run = Run.from_command(
        command(
            job="extract", partition_key=None, partition_date=None, outlets=[Outlet(name="regional_extract")]
        )
    )
    module("runtime_keys").run_extract(run)
    published = encode_outlets(
        run.outlet_events,
        job=run.job,
        run_id=run.run_id,
        partition_key=run.partition_key,
        partition_date=run.partition_date,
        extra=run.extra,
        time=datetime(2026, 3, 10, tzinfo=UTC),
    )
    written = []
    for each in published:
        event = json.loads(each.value)
        written.append(json.dumps({"id": event["id"], "source": event["source"], **event["data"]}))
    assert len(written) == 2  # "us" was added twice
    result = simulate(SCHEDULES / "runtime_keys.py", "-", events="\n".join(written))
    assert shown(result.out) == EXPECTED["runtime_keys"]
    assert "job 'extract' decides its partition keys when it runs" in result.err


def test_a_template_is_filled_in_with_the_run_of_the_simulation() -> None:
    result = simulate(SCHEDULES / "template.py", SCHEDULES / "template.jsonl")
    ((_, run),) = lines(result.out)
    sent = command(
        job=run["job"],
        partition_key=run["partition_key"],
        partition_date=datetime.fromisoformat(run["partition_date"]),
    )
    text = render(module("template").COMMAND, Run.from_command(sent).context())
    assert text == "./report.sh --day 2026-03-10 --key 2026-03-10"


def test_output_is_the_same_every_time_and_needs_nothing_but_files() -> None:
    arguments = (SCHEDULES / "segments.py", SCHEDULES / "segments.jsonl")
    once, again = process(*arguments), process(*arguments)
    assert (once.exit_code, once.err) == (0, "")
    assert once.out == again.out
    assert shown(once.out) == EXPECTED["segments"]


# ---- what goes wrong ----


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    file = tmp_path / "definitions.py"
    file.write_text(
        "from tidegate import *\n"
        "copy = Job('copy', PartitionedAssetTimetable(Asset('a')))\n"
        "out = Job('out', PartitionedAssetTimetable(AssetAlias('alias')))\n"
    )
    return file


GOOD = '{"asset": "a", "partition_key": "k"}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "line 3: not JSON"),
        ("[1]", "line 3: must be a JSON object, not [1]"),
        (
            '{"asst": "a"}',
            "line 3: {\"asst\": \"a\"} is no step: give an event with 'asset', or one of 'now'",
        ),
        ('{"now": "2026-03-10"}', "line 3: 'now' must be a date and a time with an offset"),
        ('{"now": "2025-12-31T00:00:00Z"}', "line 3: 'now' '2025-12-31T00:00:00Z' lies before the clock"),
        ('{"now": 5}', "line 3: 'now' must be"),
        (
            '{"pause": "nobody"}',
            "line 3: 'pause' needs the id of a job, not 'nobody' (defined: 'copy', 'out')",
        ),
        ('{"delete": null}', "line 3: 'delete' needs the id of a job, not None"),
        ('{"pause": "copy", "asset": "a"}', "line 3: 'pause' stands alone on its line: take out 'asset'"),
        (
            '{"pause": "copy", "resume": "copy"}',
            "line 3: 'pause' stands alone on its line: take out 'resume'",
        ),
        ('{"define": "missing.py"}', "missing.py' does not exist"),
        ('{"define": {"type": "Job", "id": "a b"}}', "line 3: Job.id 'a b' must have"),
        ('{"define": {"type": "WeekWindow"}}', "line 3: 'define' needs the path of a file, or definitions"),
        ('{"define": {"type": "Job"}}', "line 3: Job cannot be built from {}"),
        ('{"define": {"type": "PartitionedAssetTimetable"}}', "line 3: "),
        (
            '{"define": {"type": "Job", "id": "c.d"}}\n{"define": {"type": "Job", "id": "c_d"}}',
            "line 4: Job.id",
        ),
        ('{"asset": "a", "team": 5}', "line 3: 'team' must be the name of a team, not 5"),
    ],
)
def test_a_line_that_cannot_be_followed_is_named_after_what_came_before(
    definitions: Path, line: str, reason: str
) -> None:
    result = simulate(definitions, "-", events=f"{GOOD}\n{line}\n{GOOD}")
    assert result.exit_code == 1
    assert shown(result.out) == [("run", "copy", "k", "none", ["k"])]
    assert result.err.startswith("error: line ")
    assert reason in result.err


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ('{"asset": "a", "partition_key": "  "}', "invalid-key", "'  ' is empty or blank"),
        ('{"asset": "a", "partition_key": "a\\nb"}', "invalid-key", "control character"),
        (json.dumps({"asset": "a", "partition_key": "x" * 251}), "invalid-key", "251 characters"),
        ('{"asset": "a", "partition_kye": "k"}', "unknown-field", "field 'partition_kye' is not known"),
        ('{"asset": "a", "partition_date": "2026-03-10"}', "invalid-field", "partition_date: must be a date"),
        (
            '{"asset": "a", "id": "", "partition_key": "k"}',
            "invalid-field",
            "id: must have a visible character",
        ),
        ('{"asset": "a", "extra": [1]}', "invalid-field", "extra"),
        ('{"asset": "a", "extra": {"x": NaN}}', "invalid-field", "NaN"),
        ('{"asset": 5}', "invalid-field", "asset"),
    ],
)
def test_an_event_that_ingest_would_refuse_is_audited_and_the_rest_goes_on(
    definitions: Path, line: str, code: str, named: str
) -> None:
    result = simulate(definitions, "-", events=f"{line}\n{GOOD}")
    assert (result.exit_code, result.err) == (0, "")
    (kind, refused), *rest = lines(result.out)
    assert (kind, refused["kind"], refused["details"]["code"]) == ("audit", "event-refused", code)
    assert named in refused["message"]
    assert [fields["job"] for _, fields in rest] == ["copy"]


def test_ingest_s_own_audit_entries_are_there(definitions: Path) -> None:
    events = [
        {"asset": "a", "partition_key": "k", "id": "1"},
        {"asset": "a", "partition_key": "other", "id": "1"},
        {"asset": "a", "partition_key": "k", "id": "1", "source": "/elsewhere"},
        {"asset": "nobody", "partition_key": "k", "id": "2"},
        {"aliases": ["alias"], "partition_key": "k", "id": "3"},
        {"asset": "b", "aliases": ["alias"], "partition_key": "k", "id": "4"},
        {"asset": "a", "id": "5"},
    ]
    result = simulate(definitions, "-", events="\n".join(map(json.dumps, events)))
    assert shown(result.out) == [
        ("run", "copy", "k", "none", ["k"]),
        ("duplicate-event", None, "other", "1"),
        ("run", "copy", "k", "none", ["k"]),
        ("unknown-asset", None, "k", "2"),
        ("alias-without-asset", None, "k", "3"),
        ("unknown-asset", None, "k", "4"),
        ("run", "out", "k", "none", ["k"]),
        ("no-partition-key", "copy", None, "5"),
    ]


def test_runs_of_a_job_that_stays_paused_are_held(definitions: Path) -> None:
    result = simulate(definitions, "-", events='{"pause": "copy"}\n' + GOOD)
    assert shown(result.out) == [("held", "copy", "k", "none", ["k"])]


def test_an_event_may_name_its_asset_by_the_uri_and_its_team(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(
        "from tidegate import *\n"
        "a = Asset('a', 's3://bucket/a', access_control=AssetAccessControl(['sales']))\n"
        "job = Job('job', PartitionedAssetTimetable(a), team='ops')\n"
    )
    events = (
        '{"asset_uri": "s3://bucket/a", "partition_key": "k", "team": "sales"}\n'
        '{"asset": "a", "partition_key": "x", "team": "hr"}\n'
    )
    assert shown(simulate(file, "-", "--multi-team", events=events).out) == [
        ("run", "job", "k", "none", ["k"]),
        ("cross-team", "job", "x", "line-2"),
    ]
    assert [row[2] for row in shown(simulate(file, "-", events=events).out)] == ["k", "x"]


def test_a_line_may_define_from_a_file_beside_the_events(definitions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "more.json").write_text(json.dumps({"type": "Job", "id": "more", "schedule": {
        "type": "PartitionedAssetTimetable", "assets": {"type": "Asset", "name": "a"}}}))  # fmt: skip
    (folder / "events.jsonl").write_text(f'{GOOD}{{"define": "more.json"}}\n{GOOD}')
    found = shown(simulate(definitions, folder / "events.jsonl").out)
    assert [row[1] for row in found] == ["copy", "copy", "more"]


def test_the_clock_starts_where_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text("from tidegate import *\nhourly = Job('hourly', CronPartitionTimetable('30 * * * *'))\n")
    events = '{"now": "2026-03-10T02:00:00+01:00"}\n'
    result = simulate(file, "-", "--now", "2026-03-10T00:00:00Z", events=events)
    assert shown(result.out) == [
        ("run", "hourly", "2026-03-10T00:30:00", "2026-03-10T00:30", "2026-03-10T00:30")
    ]
    refused = process(file, "-", "--now", "tomorrow", events=events)
    assert refused.exit_code == 2
    assert "--now must be a date and a time with an offset" in refused.err


def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(
        "from datetime import timedelta\n"
        "from tidegate import *\n"
        "policy = WaitForAll().or_after(timedelta(hours=1))\n"
        "day = RollupMapper(StartOfDayMapper(timezone='Europe/Berlin'), DayWindow(), policy)\n"
        "job = Job('job', PartitionedAssetTimetable(Asset('a'), day))\n"
        "loop = Job('loop', PartitionedAssetTimetable(Asset('b')), outlets=[Asset('b')])\n"
    )
    result = simulate(file, "-", events='{"asset": "b", "partition_key": "k"}')
    assert "warning: job 'job', asset 'a': keys in the form" in result.err
    assert "warning: job 'job', asset 'a': its deadline is not simulated" in result.err
    assert "warning: job 'loop' leads to itself (loop -> loop): the outlets of run-2" in result.err
    assert [row[1] for row in shown(result.out)] == ["loop", "loop"]


def test_definitions_that_are_refused_end_it(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text("from tidegate import *\njob = Job('a b')\n")
    found = process(file, "-", events=GOOD)
    assert (found.exit_code, found.out) == (2, "")
    assert f"error: {file}, line 2: Job.id 'a b' must have" in found.err
    missing = process(tmp_path / "nothing.yaml", "-", events=GOOD)
    assert missing.exit_code == 2
    assert "does not exist" in missing.err


def test_of_several_plain_definitions_only_the_wrong_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "definitions.yml"
    good = "- {type: Job, id: good, schedule: {type: PartitionedAssetTimetable, assets: {type: Asset, name: a}}}\n"
    bad = "- type: Job\n  id: bad\n  schedule: {type: TheirTimetable}\n"
    file.write_text(good + bad)
    found = process(file, "-", events=GOOD)
    assert found.exit_code == 1
    assert shown(found.out) == [("run", "good", "k", "none", ["k"])]
    assert f"refused: bad: {file}, line 2: type 'TheirTimetable' is not known" in found.err
    file.write_text(bad)
    found = process(file, "-", events=GOOD)
    assert (found.exit_code, found.out) == (2, "")
    assert "TheirTimetable" in found.err


def test_events_that_cannot_be_read_are_an_error(definitions: Path, tmp_path: Path) -> None:
    result = simulate(definitions, tmp_path / "nothing.jsonl")
    assert result.exit_code == 1
    assert "nothing.jsonl" in result.err
    (tmp_path / "latin.jsonl").write_bytes(GOOD.encode() + b'{"asset": "\xe9"}\n')
    assert simulate(definitions, tmp_path / "latin.jsonl").exit_code == 1


def _imports() -> Iterator[str]:
    code = (
        "import sys; import tidegate.simulate, tidegate.simulate.report;"
        " print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=60, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "shared")},
    )  # fmt: skip
    yield from done.stdout.split()


def test_the_simulation_itself_needs_no_client_and_no_validation() -> None:
    assert not {"pydantic", "aiokafka", "redis", "yaml", "typer"} & set(_imports())
