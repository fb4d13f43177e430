"""Every error that Tidegate raises on purpose.

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


class InvalidEventError(TidegateError, ValueError):
    """An asset event that can never be accepted, with the short code that dead letters carry."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
