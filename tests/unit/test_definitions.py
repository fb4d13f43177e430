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
    assert schedule.is_windowed
    assert not PartitionedAssetTimetable(a & b).is_windowed
    assert PartitionedAssetTimetable(a & b, partition_mapper_config={b: ROLLUP}).is_windowed


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
    ],
)
def test_an_error_of_the_files_own_code_names_the_line(tmp_path: Path, code: str, message: str) -> None:
    file = tmp_path / "x.py"
    file.write_text(code)
    with pytest.raises(DefinitionError, match=re.escape(message)):
        load_definitions(file)


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
