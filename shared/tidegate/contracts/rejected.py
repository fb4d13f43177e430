"""`asset-events.rejected`: dead letters. The record's key is as received."""

from base64 import b64encode

from tidegate.contracts.message import Message


class DeadLetter(Message):
    """An asset event that can never be accepted, with everything needed to mend and send it again."""

    v: int = 1
    topic: str
    partition: int
    offset: int
    at: int
    """When the broker received it, milliseconds since 1970."""
    code: str
    reason: str
    size: int
    """Bytes of the value as received; 0 where there was none."""
    value_base64: str | None = None
    """The value, or its first KiB where it is larger than an event may be; None where the record had none."""
    truncated: bool = False
    """Whether the value, the headers or the record key were cut, so that the dead letter fits its topic."""
    headers: tuple[tuple[str, str | None], ...] = ()
    """Header names with values in base64, in order."""


def base64_text(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()
