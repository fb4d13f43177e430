"""The root of every error raised on purpose, and those of definitions, keys and events.

Others stand beside what raises them.

One tree: a leaf names a fact and is also the built-in exception that fits, so callers may catch either.
Messages quote the value that was wrong and say what to do; callers branch on type, never on text.
"""


class TidegateError(Exception):
    """Root of every error raised on purpose."""


class InvalidPartitionKeyError(TidegateError, ValueError):
    """A partition key that breaks the rules of every key, or that a mapper cannot read."""


class DefinitionError(TidegateError, ValueError):
    """A definition with a wrong value; refused where it is declared."""


class DefinitionTypeError(TidegateError, TypeError):
    """A definition with a value of the wrong type; refused where it is declared."""


class UnknownTypeError(DefinitionError):
    """A definition in plain data that names a type which is neither built in nor brought by a plugin."""


class NotPartitionedError(TidegateError, NotImplementedError):
    """Partitions were asked of a schedule that has none."""


class NotAMemberError(InvalidPartitionKeyError):
    """A key that its rollup maps to a downstream key, but that is none of the members which that key waits for."""


class FanOutExceededError(TidegateError, ValueError):
    """One upstream key that would give more downstream keys than allowed: none of them is used.

    `cap` is the number allowed, `source` says whose it is (`max_downstream_keys` of a mapper, or `global`), `wanted` is
    the number that the key would give.
    """

    def __init__(self, *, cap: int, source: str, wanted: int) -> None:
        super().__init__(
            f"partition fan-out exceeded: {wanted} downstream keys are wanted, {source} allows {cap}"
        )
        self.cap = cap
        self.source = source
        self.wanted = wanted


class InvalidEventError(TidegateError, ValueError):
    """An asset event that can never be accepted, with the short code that dead letters carry."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ScriptError(TidegateError, ValueError):
    """A line of a simulation's events file that cannot be followed."""
