"""Which team's events reach which team's jobs."""

from collections.abc import Collection

import pytest

from tidegate import AssetAccessControl, DefinitionError, DefinitionTypeError
from tidegate.core.access import refusal


def is_taken(
    team: str | None,
    producers: Collection[str],
    consumer: AssetAccessControl | None = None,
    producer: AssetAccessControl | None = None,
    *,
    from_api: bool = False,
) -> bool:
    return (
        refusal(
            consumer_team=team,
            consumer=consumer,
            producer_teams=producers,
            producer=producer,
            from_api=from_api,
        )
        is None
    )


def test_a_team_takes_its_own_events_whatever_is_declared() -> None:
    closed = AssetAccessControl([], [], False)
    assert is_taken("a", ["a"], closed, closed)
    assert is_taken("a", ["b", "a"], closed, closed, from_api=True)


def test_events_of_another_team_are_taken_where_the_consumer_names_it() -> None:
    assert not is_taken("a", ["b"])
    assert is_taken("a", ["b"], AssetAccessControl(["b"]))
    assert not is_taken("a", ["b"], AssetAccessControl(["b"]), AssetAccessControl(consumer_teams=["c"]))
    assert is_taken("a", ["b"], AssetAccessControl(["b"]), AssetAccessControl(consumer_teams=["a"]))


def test_producers_without_a_team_are_taken_unless_the_consumer_says_no() -> None:
    assert is_taken("a", [])
    assert not is_taken("a", [], AssetAccessControl(allow_global=False))
    assert is_taken("a", [], None, AssetAccessControl(allow_global=False))
    assert not is_taken("a", [], from_api=True)


def test_a_consumer_without_a_team_takes_everything() -> None:
    closed = AssetAccessControl([], [], False)
    assert is_taken(None, [], closed, closed)
    assert is_taken(None, ["a"], closed, closed, from_api=True)


def test_a_refusal_says_why() -> None:
    reason = refusal(consumer_team="a", consumer=None, producer_teams=["b"], producer=None)
    assert reason is not None
    assert "'a'" in reason
    assert "'b'" in reason


@pytest.mark.parametrize("teams", [[""], [" "], [1], [None]])
def test_teams_are_texts(teams: list[str]) -> None:
    with pytest.raises(DefinitionError, match="a team is text"):
        AssetAccessControl(teams)
    with pytest.raises(DefinitionError):
        AssetAccessControl(consumer_teams=teams)


def test_a_single_text_is_no_list_of_teams() -> None:
    with pytest.raises(DefinitionTypeError, match="a list of team names"):
        AssetAccessControl("team")
    with pytest.raises(DefinitionTypeError):
        AssetAccessControl(allow_global="yes")  # type: ignore[arg-type]
