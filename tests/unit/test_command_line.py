"""The commands of `tidegate`: options that several have are one, and the documents name every command."""

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from tidegate.cli.app import command_line
from tidegate.cli.since import instant_of, time_of
from tidegate.contracts.definitions import MAX_PARTITIONS, MAX_SHARDS

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 10, 9, 20, tzinfo=UTC)
OTHERS: Final = {
    ("up", "kafka"),  # unless it is given, a broker of its own is started
    ("up", "redis"),
    ("worker", "kafka"),  # the module may read it, or decide
    ("simulate", "multi_team"),  # nothing is recorded
    ("emit", "topic"),  # of the events
    ("exec", "topic"),  # of the job's commands
    ("replay", "since"),  # a time, and everything unless it is given
}
"""Command and option where a name, a help text or a default is a command's own, and why."""


def commands() -> dict[str, Any]:
    """Every command by what one types, such as `topics create`."""
    found: dict[str, Any] = {}

    def take(prefix: str, group: TyperGroup) -> None:
        for name, command in group.commands.items():
            if isinstance(command, TyperGroup):
                take(f"{prefix}{name} ", command)
            else:
                found[prefix + name] = command

    root = typer.main.get_command(command_line())
    assert isinstance(root, TyperGroup)
    take("", root)
    return found


def test_what_several_commands_take_has_one_meaning_one_help_and_one_default() -> None:
    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for name, command in commands().items():
        for each in command.params:
            if (name, each.name) not in OTHERS:
                for written in each.opts:
                    found[written].add((tuple(each.opts), each.help, each.default, each.metavar))
    assert {written: some for written, some in found.items() if len(some) > 1} == {}
    assert {"--json", "--limit", "--since", "--key", "--by", "--event", "job", "key"} <= found.keys()


@pytest.mark.parametrize("command", ["up", "topics create"])
@pytest.mark.parametrize(("option", "most"), [("--partitions", MAX_PARTITIONS), ("--shards", MAX_SHARDS)])
def test_counts_that_no_installation_may_have_are_refused_by_their_options(
    command: str, option: str, most: int
) -> None:
    done = CliRunner().invoke(command_line(), [*command.split(), option, str(most + 1)])
    assert done.exit_code == 2
    assert option in done.output
    assert f"less than or equal to {most}" in done.output


def test_every_command_is_named_in_the_readme_or_on_a_page_that_it_links() -> None:
    readme = (ROOT / "README.md").read_text()
    linked = re.findall(r"\]\(([\w/.]+\.md)\)", readme)
    pages = readme + "".join((ROOT / each).read_text() for each in linked)
    assert [name for name in commands() if not re.search(rf"tidegate {name}\b", pages)] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        (" 15m", NOW - timedelta(minutes=15)),
        ("1h", NOW - timedelta(hours=1)),
        ("7d", NOW - timedelta(7)),
        ("2026-03-09", datetime(2026, 3, 9, tzinfo=UTC)),
        ("2026-03-09T10:00:00", datetime(2026, 3, 9, 10, tzinfo=UTC)),
        ("2026-03-09T10:00:00-08:00", datetime(2026, 3, 9, 18, tzinfo=UTC)),
    ],
)
def test_since_takes_a_duration_before_now_or_a_time(text: str, wanted: datetime) -> None:
    assert instant_of(text, NOW) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "1", "h", "1.5h", "-1h", "1h30m", "1w", "\u0661h", "999999d", "soon", "0001-01-01T00:00+14:00"],
)
def test_what_since_cannot_read_is_refused_with_what_it_takes(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="90s, 15m, 1h or 7d"):
        instant_of(text, NOW)


def test_a_replay_takes_a_time_that_is_the_same_when_it_is_done_again() -> None:
    assert time_of("2026-03-10T10:20+01:00") == NOW
    with pytest.raises(typer.BadParameter, match=r"give the time, as in --since 20"):
        time_of("7d")
