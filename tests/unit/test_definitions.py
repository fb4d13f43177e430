"""Assets, jobs and schedules as people declare them, and files that hold them."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.conditions import AssetAll, AssetAny
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.mappers import FixedKeyMapper, IdentityMapper, RollupMapper, StartOfDayMapper
from tidegate.core.plain import plain
from tidegate.core.policies import MinimumCount
from tidegate.core.timetables import PartitionedAssetTimetable
from tidegate.core.timetables.partitioned_asset import MAX_ASSETS
from tidegate.core.windows import DayWindow, SegmentWindow
from tidegate.definitions import Asset, Definitions, Job, load_definitions
from tidegate.definitions.load import check_together
from tidegate.definitions.routes import JobRoutes

ROLLUP = RollupMapper(StartOfDayMapper(), DayWindow())


# Assets


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), st.sampled_from(["asset", "model"]))
def test_extra_and_group_never_affect_identity(extra: dict[str, int], group: str) -> None:
    assert Asset("a", extra=extra, group=group) == Asset("a")
    assert hash(Asset("a", extra=extra, group=group)) == hash(Asset("a"))


def test_an_asset_is_its_name_and_uri() -> None:
    assert Asset("a") == Asset("a", "a")
    assert Asset("a").uri == "a"
    assert len({Asset("a"), Asset("a", "s3://b/k"), Asset("b"), Asset("b", "s3://b/k")}) == 4


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x00", "x" * 1501])
def test_an_empty_unprintable_or_endless_name_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"Asset\.name"):
        Asset(name)


@pytest.mark.parametrize("name", ["self", "context", "outlet_events"])
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="reserved"):
        Asset(name)


def test_a_name_that_is_no_text_is_refused_and_a_uri_is_made_text() -> None:
    with pytest.raises(DefinitionError, match=r"Asset\.name"):
        Asset(5)  # type: ignore[arg-type]
    assert Asset("a", 5) == Asset("a", "5")  # type: ignore[arg-type]
    assert Asset("a", None) == Asset("a")


def test_the_plain_form_of_an_asset_keeps_everything_that_was_given() -> None:
    asset = Asset("a", "s3://bucket/k", group="model", extra={"owner": "x"})
    data = plain(asset)
    assert data == {
        "type": "Asset",
        "name": "a",
        "uri": "s3://bucket/k",
        "group": "model",
        "extra": {"owner": "x"},
    }
    assert plain(Asset("a")) == {"type": "Asset", "name": "a"}


# Jobs


@given(st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True))
def test_an_id_of_the_alphabet_is_kept(job_id: str) -> None:
    assert Job(job_id).id == job_id


@pytest.mark.parametrize("job_id", ["", "a b", "a/b", "ä", "a\n", "x" * 201, "{a}"])
def test_an_id_outside_the_alphabet_is_refused(job_id: str) -> None:
    with pytest.raises(DefinitionError, match=r"Job\.id"):
        Job(job_id)


def test_what_is_no_text_schedule_or_asset_is_a_type_error() -> None:
    with pytest.raises(DefinitionTypeError, match=r"Job\.id"):
        Job(None)  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match=r"Job\.schedule"):
        Job("j", 5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match=r"Job\.outlets"):
        Job("j", outlets=["a"])  # type: ignore[list-item]


@pytest.mark.parametrize("topic", ["", "a b", "x" * 250, "ä", "a/b"])
def test_a_topic_name_that_kafka_refuses_is_refused(topic: str) -> None:
    with pytest.raises(DefinitionError, match=r"Job\.run_commands_topic"):
        Job("j", run_commands_topic=topic)


def test_inlets_and_outlets_are_kept_as_they_were() -> None:
    job = Job("j", inlets=[Asset("a")], outlets=[Asset("b"), Asset("c")])
    assert (job.inlets, job.outlets) == ((Asset("a"),), (Asset("b"), Asset("c")))


# Schedules


def test_a_configured_asset_uses_its_own_mapper_and_every_other_the_default() -> None:
    a, b = Asset("a"), Asset("b")
    schedule = PartitionedAssetTimetable(a & b, ROLLUP, {b: IdentityMapper()})
    assert schedule.mapper_for(a) == ROLLUP
    assert schedule.mapper_for(b) == IdentityMapper()
    assert JobRoutes(Job("j", schedule)).rollups == (0,)
    assert JobRoutes(Job("j", PartitionedAssetTimetable(a & b))).rollups == ()
    other = PartitionedAssetTimetable(a & b, partition_mapper_config={b: ROLLUP})
    assert JobRoutes(Job("j", other)).rollups == (1,)


def test_a_mapper_for_an_asset_that_the_condition_does_not_name_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'b'"):
        PartitionedAssetTimetable(Asset("a"), partition_mapper_config={Asset("b"): ROLLUP})


def test_parts_of_the_wrong_kind_are_type_errors_that_name_the_part() -> None:
    with pytest.raises(DefinitionTypeError, match=r"PartitionedAssetTimetable\.assets"):
        PartitionedAssetTimetable("a")  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="default_partition_mapper"):
        PartitionedAssetTimetable(Asset("a"), DayWindow())  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="partition_mapper_config"):
        PartitionedAssetTimetable(Asset("a"), partition_mapper_config={Asset("a"): "x"})  # type: ignore[dict-item]


def test_a_condition_with_too_many_alternatives_is_refused_where_it_is_declared() -> None:
    def any_of(prefix: str) -> AssetAny:
        return AssetAny(*(Asset(f"{prefix}{n}") for n in range(9)))

    with pytest.raises(DefinitionError, match="64"):
        PartitionedAssetTimetable(any_of("a") & any_of("b"))


def test_a_schedule_of_too_many_assets_is_refused() -> None:
    PartitionedAssetTimetable(AssetAll(*(Asset(f"a{n}") for n in range(MAX_ASSETS))))
    with pytest.raises(DefinitionError, match="names 1001 assets: at most 1000"):
        PartitionedAssetTimetable(AssetAll(*(Asset(f"a{n}") for n in range(MAX_ASSETS + 1))))


# Files


def test_a_python_file_gives_its_top_level_jobs_and_assets(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(
        dedent("""
        from tidegate import Asset, Job, PartitionedAssetTimetable

        a = Asset("a")
        both = [Asset("hidden")]
        job = Job("j", PartitionedAssetTimetable(a))
        alias = job
        """)
    )
    assert load_definitions(file) == Definitions(
        (Job("j", PartitionedAssetTimetable(Asset("a"))),), (Asset("a"),)
    )


def test_a_json_file_gives_the_same(tmp_path: Path) -> None:
    job = Job("j", PartitionedAssetTimetable(Asset("a"), ROLLUP), description="daily")
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps([plain(job), plain(Asset("a"))]))
    assert load_definitions(file) == Definitions((job,), (Asset("a"),))
    assert load_definitions(file).jobs[0].description == "daily"
    file.write_text(json.dumps(plain(job)))
    assert load_definitions(file).jobs == (job,)


YAML = """
# two jobs and an asset
- type: Job
  id: j
  description: daily
  start_date: {instant: 2026-03-10T00:00:00+00:00}
  schedule: &of_a
    type: PartitionedAssetTimetable
    assets: {type: Asset, name: a}
    default_partition_mapper:
      type: RollupMapper
      upstream_mapper: {type: FixedKeyMapper, downstream_key: 2026-03-10}
      window: {type: SegmentWindow, segments: [no, on, 12:30, 010, 1_000, 2026-03-10, us]}
      wait_policy: {type: MinimumCount, n: -1}
- {type: Job, id: k, schedule: *of_a, catchup: true, team: ~}
- {type: Asset, name: "a", extra: {rows: 1.5e3, big: 1e3}}
"""


@pytest.mark.parametrize("suffix", [".yaml", ".yml"])
def test_a_yaml_file_means_what_the_same_json_means(tmp_path: Path, suffix: str) -> None:
    segments = ["no", "on", "12:30", "010", "1_000", "2026-03-10", "us"]
    rollup = RollupMapper(FixedKeyMapper("2026-03-10"), SegmentWindow(segments), MinimumCount(-1))
    schedule = PartitionedAssetTimetable(Asset("a"), rollup)
    start = datetime(2026, 3, 10, tzinfo=UTC)
    j, k = Job("j", schedule, start_date=start), Job("k", schedule, catchup=True)
    file = tmp_path / f"x{suffix}"
    file.write_text(YAML)
    found = load_definitions(file)
    assert (found.jobs, found.assets) == ((j, k), (Asset("a"),))
    assert found.assets[0].extra == {"rows": 1500.0, "big": 1000.0}
    file.write_text(json.dumps([plain(j), plain(k)], indent=1))  # JSON is YAML
    assert load_definitions(file).jobs == (j, k)
    file.write_text("type: Job\nid: j\n")
    assert load_definitions(file).jobs == (Job("j"),)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.yaml", "- type: Job\n  id: [\n", "x.yaml, line 3: not YAML"),
        ("x.yaml", "type: Job\nid: j\nid\n", "x.yaml, line 4: not YAML"),
        ("x.yaml", "- !!python/object/apply:os.getcwd []\n", "x.yaml, line 1: not YAML"),
        ("x.yaml", "type: Job\n---\ntype: Job\n", "x.yaml, line 2: not YAML"),
        ("x.yaml", "- {type: Job, id: j}\n\n- type: Job\n  id: a b\n", "x.yaml, line 3: Job.id 'a b'"),
        ("x.yaml", "- &a [*a]\n", "is nested too deeply, or holds itself"),
        ("x.yaml", "type: Job\nid: 5\n", "x.yaml, line 1: Job.id must be text, not 5"),
        ("x.json", '[{"type": "Job", "id": "j"}, {"type": "Job", "id": "a b"}]', "x.json, definition 2: Job.id 'a b'"),
        ("x.yaml", "- type: Job\n  id: j\n  id: k\n", "x.yaml, line 3: not YAML: field 'id' is given twice"),
        ("x.json", '{"type": "Job", "id": "j", "id": "k"}', "is not JSON: field 'id' is given twice in one object"),
        ("x.json", '{"type": "AssetAll", "assets": []}', "x.json: AssetAll has no field 'assets': use conditions"),
        ("x.json", '{"type": "CronPartitionTimetable", "cron": "@daily"}',
         "x.json: CronPartitionTimetable has no field 'cron': use crons, jitter, key_format"),
        ("x.json", '{"type": "MultipleCronTriggerTimetable", "cron": "@daily"}', "no field 'cron': use crons"),
        ("x.json", '{"type": "PartitionedAssetTimetable", "asset": 5}', "no field 'asset': use assets, default_"),
        ("x.json", '{"type": "PartitionedAssetTimetable", "assets": "a"}',
         "assets must be an asset, a reference, an alias, or several joined by & and |, not 'a'"),
        ("x.json", '{"type": "PartitionedAssetTimetable", "partition_mapper_config": {"a": 5}}',
         "x.json: PartitionedAssetTimetable.partition_mapper_config as plain data must be a list of pairs"),
        ("x.json", '{"type": "Asset.ref", "name": "a"}', "'Asset.ref' is not known: install the plugin that"
         " brings it, or use AssetUriRef, Asset, AssetNameRef"),
        ("x.json", '{"type": "Job", "id": "j", "outlets": ["a"]}', "Job.outlets must hold assets and aliases, not 'a'"),
        ("x.json", '{"type": "Job", "id": "j", "start_date": "2026-01-01"}', "(as plain data {'instant': '2026-"),
        ("x.json", '{"type": "Job", "id": "j", "start_date": "beginning"}', "start_date must be an aware datetime"),
        ("x.json", '{"type": "Job", "id": "j", "replay_from": "start"}', 'replay_from must be "beginning" or an aware'),
        ("x.json", '{"type": "Job", "id": "j", "schedule": {"type": "PartitionedAssetTimetable"}}',
         "x.json: PartitionedAssetTimetable cannot be built from {}"),
        ("x.json", '{"type": "AssetAll", "conditions": 5}', "x.json: AssetAll cannot be built from {'conditions': 5}"),
    ],
)  # fmt: skip
def test_plain_data_that_is_wrong_is_named_with_its_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((DefinitionError, DefinitionTypeError), match=re.escape(message)):
        load_definitions(tmp_path / name)


def test_what_is_refused_singly_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("- {type: Job, id: j}\n- {type: Job, id: k, schedule: {type: Theirs}}\n- 5\n")
    found = load_definitions(file, refuse_singly=True)
    assert found.jobs == (Job("j"),)
    assert [each.id for each in found.refused] == ["k", "?"]
    assert found.refused[0].reason.startswith(f"{file}, line 2: type 'Theirs' is not known")
    assert (
        found.refused[1].reason == f"{file}, line 3: 5 is no definition: give an object of type Job or Asset"
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.json", "{", "is not JSON"),
        ("x.json", "[]", "declares no Job and no Asset"),
        ("x.json", '"text"', "x.json: 'text' is no definition"),
        ("x.py", "value = 5", "declares no Job and no Asset"),
        ("x.toml", "a = 1", "must end in"),
        ("x.yaml", "a: b", "x.yaml, line 1: {'a': 'b'} is no definition"),
        ("x.yaml", "", "declares no Job and no Asset"),
    ],
)
def test_a_file_that_declares_nothing_is_refused(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DefinitionError, match=reason):
        load_definitions(tmp_path / name)


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"nothing\.py.*does not exist"):
        load_definitions(tmp_path / "nothing.py")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import tidegate\n1 / 0\n", "x.py, line 2: ZeroDivisionError: division by zero"),
        ("from tidegate import Job\n\na = Job('a b')\n", "x.py, line 3: Job.id 'a b' must have"),
        ("a = (\n", "x.py, line 1: SyntaxError"),
        ("import airflow.sdk\n", "No module named 'airflow': import from tidegate what was imported from airflow.sdk"),
        ("from tidegate import DAG\n", "cannot import name 'DAG' from 'tidegate': a DAG is a Job here"),
        ("from tidegate import CronPartitionTimetabel\n", "from 'tidegate': use CronPartitionTimetable, "),
        ("from tidegate.sdk import Asset\n", "from 'tidegate.sdk': import Asset from tidegate"),
        ("from tidegate import qwertz\n", "from 'tidegate': tidegate has nothing of this name"),
        ("import tidegate\ntidegate.Job('j', tags=[])\n", "argument 'tags': Job takes id, schedule, inlets, outlets, "),
        ("import tidegate\ntidegate.Job(dag_id='j')\n", "argument 'dag_id': it is called id here"),
        ("import tidegate\nwith tidegate.Job('j'):\n    pass\n", "protocol: a Job holds no tasks; write job = "),
        ("import tidegate\ntidegate.StartOfDayMapper('UTC')\n", "Mapper takes max_downstream_keys=, timezone="),
        ("import tidegate\n@tidegate.asset\ndef a(): ...\n", "@asset needs a schedule: write @asset(schedule=...)"),
        ("import tidegate\n@tidegate.asset()\ndef a(): ...\n", "@asset needs a schedule: write @asset(schedule=...)"),
        ("import tidegate\n@tidegate.asset(schedule=None, outlets=[])\ndef a(): ...\n",
         "@asset takes no 'outlets': the function is the asset that it makes; @asset.multi makes several"),
    ],
)  # fmt: skip
def test_an_error_of_the_files_own_code_names_the_line(tmp_path: Path, code: str, message: str) -> None:
    file = tmp_path / "x.py"
    file.write_text(code)
    with pytest.raises(DefinitionError, match=re.escape(message)):
        load_definitions(file)


def test_jobs_in_containers_of_a_file_are_declared(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "from tidegate import Job, asset\n"
        "listed = [Job('a'), Job('b')]\n"
        "named = {'c': Job('c')}\n"
        "also = (listed[0], 5, 'text')\n"
        "@asset(schedule=None)\n"
        "def d(): ...\n"
        "made = [d]\n"
    )
    found = load_definitions(file)
    assert [job.id for job in found.jobs] == ["a", "b", "c", "d"]
    assert found.warnings == ()


def test_a_job_that_a_file_makes_and_does_not_keep_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "made_beside_x.py").write_text(
        "from tidegate import Job\nown = Job('own')\ndef make(id):\n    return Job(id)\n"
    )
    file = tmp_path / "x.py"
    file.write_text(
        "from made_beside_x import make\n"
        "from tidegate import Job\n"
        "for name in ('one', 'two', 'three'):\n"
        "    job = Job(name)\n"
        "make('four')\n"
        "five = make('five')\n"
    )
    found = load_definitions(file)
    assert [job.id for job in found.jobs] == ["three", "five"]
    assert [each.partition(" is made but not declared")[0] for each in found.warnings] == [
        "job 'one'",
        "job 'two'",
        "job 'four'",
    ]
    assert all(repr(str(file)) in each for each in found.warnings)
    file.write_text("from tidegate import Job\nJob('one')\n")
    with pytest.raises(DefinitionError, match="declares no Job"):
        load_definitions(file)


def test_a_mapping_of_yaml_may_override_what_it_merges(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "- &one {type: Job, id: a, description: x}\n"
        "- &two {<<: *one, id: b}\n"
        "- {<<: *two, id: c, description: y}\n"
    )
    assert [(job.id, job.description) for job in load_definitions(file).jobs] == [
        ("a", "x"),
        ("b", "x"),
        ("c", "y"),
    ]


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbours_of_x.py").write_text("from tidegate import Job\nmade = Job('j')\n")
    file = tmp_path / "x.py"
    file.write_text("from neighbours_of_x import made\n")
    assert [job.id for job in load_definitions(file).jobs] == ["j"]


def test_one_id_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("from tidegate import Job\na = Job('j')\nb = Job('j')\n")
    with pytest.raises(DefinitionError, match="declared 2 times"):
        load_definitions(file)


def test_ids_that_topics_cannot_tell_apart_are_refused_together() -> None:
    with pytest.raises(DefinitionError, match=r"'a_b' and 'a\.b'"):
        check_together((Job("a.b"), Job("a_b")))
    check_together((Job("a.b"), Job("a.c"), Job("ab")))
