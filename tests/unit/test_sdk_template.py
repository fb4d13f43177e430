"""Templates over runs, and commands run for them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_sdk_run import command
from tidegate.cli.exec import execute_command
from tidegate.cli.worker import find_worker
from tidegate.sdk import JobFailed, Run
from tidegate.sdk.errors import TemplateError, WorkerError
from tidegate.sdk.template import check_template, render


def rendered(text: str, **changes: Any) -> str:
    return render(text, Run.from_command(command(**changes)).context())


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{{ partition_key }}", "2026-03-10"),
        ("{{ partition_date | ds }}", "2026-03-10"),
        ("{{ partition_date | ds_nodash }}", "20260310"),
        ("{{ partition_date | ts }}", "2026-03-10T07:00:00+00:00"),
        ("{{ partition_date | ts_nodash }}", "20260310T070000"),
        ("{{ job }}/{{ run_id }}/{{ generation }}/{{ attempt }}", "daily/run-1/2/3"),
        ("{{ triggering_asset_events['in'] | length }}", "2"),
        ("{{ windows['in'].expected }}", "24"),
        ("plain", "plain"),
    ],
)
def test_templates_are_filled_in(text: str, result: str) -> None:
    assert rendered(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "{{ nothing }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ partition_key | ds }}",
        "{{ 1 / 0 }}",
        "{{ run.extra.update({'x': 1}) }}",
    ],
)
def test_what_is_not_there_or_not_allowed_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        rendered(text)


def test_a_run_without_a_date_has_no_ds() -> None:
    with pytest.raises(TemplateError, match="no date"):
        rendered("{{ partition_date | ds }}", partition_date=None)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{{ partition_key }}", ""),
        ("[{{ run.partition_key }}]", "[]"),
        ("{{ partition_date }}", ""),
        ("{{ partition_key or 'whole' }}", "whole"),
        ("{{ partition_key is none }}", "True"),
    ],
)
def test_a_run_without_partitions_has_empty_text_for_its_key(text: str, result: str) -> None:
    assert rendered(text, partition_key=None, partition_date=None) == result


@pytest.mark.parametrize("text", ["{{ partition_key", "{{ x | nofilter }}", "{% for %}"])
def test_templates_with_errors_are_refused_before_any_run(text: str) -> None:
    with pytest.raises(TemplateError):
        check_template(text)


async def test_a_command_gets_the_run_in_arguments_environment_and_input(tmp_path: Path) -> None:
    program = (
        "import json, os, sys;"
        " json.dump([sys.argv[2], dict(os.environ), json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "out"), "{{ partition_key }}; rm -rf x"]
    await execute_command(Run.from_command(command()), words, shell=False)
    argument, environment, given = json.loads((tmp_path / "out").read_text())
    assert argument == "2026-03-10; rm -rf x"
    assert environment["TIDEGATE_RUN_ID"] == "run-1"
    assert environment["TIDEGATE_JOB"] == "daily"
    assert environment["TIDEGATE_PARTITION_KEY"] == "2026-03-10"
    assert environment["TIDEGATE_PARTITION_DATE"] == "2026-03-10T07:00:00+00:00"
    assert given["run_id"] == "run-1"
    assert len(given["triggering_asset_events"]) == 2


async def test_a_command_for_a_run_without_partitions_finds_empty_text(tmp_path: Path) -> None:
    words = [
        "sh",
        "-c",
        'echo "[$1] [$TIDEGATE_PARTITION_KEY] [$TIDEGATE_PARTITION_DATE]" > ' + str(tmp_path / "out"),
    ]
    run = Run.from_command(command(partition_key=None, partition_date=None))
    await execute_command(run, [*words, "sh", "{{ partition_key }}"], shell=False)
    assert (tmp_path / "out").read_text() == "[] [] []\n"
    with pytest.raises(TemplateError, match="no date"):
        await execute_command(run, ["true", "{{ partition_date | ds }}"], shell=False)


@pytest.mark.parametrize(
    ("words", "shell", "text"),
    [
        (["sh", "-c", "echo first >&2; echo disk full >&2; exit 3"], False, "exit code 3: first\ndisk full"),
        (["exit 4"], True, "exit code 4"),
        (["sh", "-c", "kill -9 $$"], False, "signal 9"),
        (["no-such-program"], False, "cannot be started"),
    ],
)
async def test_a_command_that_fails_says_how(words: list[str], shell: bool, text: str) -> None:
    with pytest.raises(JobFailed) as caught:
        await execute_command(Run.from_command(command()), words, shell=shell)
    assert text in str(caught.value)


async def test_only_the_end_of_a_long_error_is_kept() -> None:
    words = ["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1"]
    with pytest.raises(JobFailed) as caught:
        await execute_command(Run.from_command(command()), words, shell=False)
    assert str(caught.value).endswith("end")
    assert len(str(caught.value)) < 2200


def test_workers_are_found_in_files_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    head = "from tidegate.sdk import Worker\n"
    (tmp_path / "one_jobs.py").write_text(head + "worker = Worker('127.0.0.1:1')\nalso = worker\n")
    (tmp_path / "two_jobs.py").write_text(head + "a = Worker('127.0.0.1:1')\nb = Worker('127.0.0.1:1')\n")
    (tmp_path / "no_jobs.py").write_text(head)
    assert find_worker("one_jobs.py").jobs == ()
    assert find_worker("one_jobs") is find_worker("one_jobs:also")
    find_worker("two_jobs:b")
    for target, words in [
        ("two_jobs", "several"),
        ("two_jobs:c", "found: a, b"),
        ("no_jobs.py", "has no Worker and no @asset function"),
        ("missing.py", "does not exist"),
        ("missing_module", "cannot be found"),
    ]:
        with pytest.raises(WorkerError, match=words):
            find_worker(target)
