"""Which team's events reach which team's jobs (rules F22, F38, D25)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import Plain


@dataclass(frozen=True)
class AssetAccessControl(Plain):
    """Who may send and receive the events of an asset; without several teams it has no effect.

    `producer_teams`: teams whose events a consumer of another team takes. `consumer_teams`: teams of other consumers
    that a producer's events go to, None for all. `allow_global`: whether a team's consumer takes events of producers
    that have no team.
    """

    producer_teams: Collection[str] = ()
    consumer_teams: Collection[str] | None = None
    allow_global: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "producer_teams",
            _teams(() if self.producer_teams is None else self.producer_teams, "producer_teams"),
        )
        if self.consumer_teams is not None:
            object.__setattr__(self, "consumer_teams", _teams(self.consumer_teams, "consumer_teams"))
        if not isinstance(self.allow_global, bool):
            raise DefinitionTypeError(
                f"AssetAccessControl.allow_global must be true or false, not {self.allow_global!r}"
            )


def _teams(teams: Iterable[str], field: str) -> tuple[str, ...]:
    if isinstance(teams, str) or not isinstance(teams, Iterable):
        raise DefinitionTypeError(f"AssetAccessControl.{field} must be a list of team names, not {teams!r}")
    teams = tuple(teams)  # they may be given only once
    for team in teams:
        if not isinstance(team, str) or not team.strip():
            raise DefinitionError(
                f"AssetAccessControl.{field} holds {team!r}: a team is text that is not blank"
            )
    return teams


OPEN: Final = AssetAccessControl()
"""What holds where nobody says anything."""


def refusal(
    *,
    consumer_team: str | None,
    consumer: AssetAccessControl | None,
    producer_teams: Collection[str],
    producer: AssetAccessControl | None,
    from_api: bool = False,
) -> str | None:
    """Why an event must not reach a job, for the audit entry; None where it may.

    `consumer` is the access control of the asset as the consumer's side declares it, however the job names the asset
    (F22); `producer` that of the producer's outlet, or of the request. A job without a team takes every event (F38).
    """
    if consumer_team is None or consumer_team in producer_teams:
        return None
    consumer, producer = consumer or OPEN, producer or OPEN
    if producer.consumer_teams is not None and consumer_team not in producer.consumer_teams:
        return f"the producer's consumer_teams do not name team {consumer_team!r}"
    if not producer_teams:
        if from_api:
            return f"the event comes from a request of nobody's team, and team {consumer_team!r} takes none of these"
        return (
            None
            if consumer.allow_global
            else f"team {consumer_team!r} takes no events of producers without a team"
        )
    if set(producer_teams) & set(consumer.producer_teams):
        return None
    named = ", ".join(map(repr, sorted(producer_teams)))
    return f"the asset's producer_teams, as team {consumer_team!r} declares them, name none of {named}"
