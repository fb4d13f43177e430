"""How long a round waits, as data; the rollup keeps the time."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidegate.core.errors import DefinitionError
from tidegate.core.plain import Plain, expect

_THEN: Final = ("fire", "fail", "drop")
_SINCE: Final = ("first_member", "window_end")


@dataclass(frozen=True)
class Deadline(Plain):
    """What happens to a round that is not satisfied in time.

    `then` is `fire` (run with what is there), `fail` or `drop`; the time counts from the first member's arrival or from
    the end of the window's own period. Raises DefinitionError for another word or a duration that is not positive.
    """

    after: timedelta
    then: str = "fire"
    since: str = "first_member"

    def __post_init__(self) -> None:
        expect(self.after, timedelta, "Deadline.after")
        if self.after <= timedelta(0):
            raise DefinitionError(
                f"Deadline.after {self.after} must be positive: give the time that a round waits"
            )
        for name, allowed in (("then", _THEN), ("since", _SINCE)):
            if (value := getattr(self, name)) not in allowed:
                raise DefinitionError(
                    f"Deadline.{name} {value!r} is not known: use one of {', '.join(allowed)}"
                )
