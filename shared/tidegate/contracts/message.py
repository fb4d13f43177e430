"""The shape that every message of ours shares."""

from typing import Self

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen message. Readers of a version refuse fields that the version does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="iso8601")

    def to_bytes(self) -> bytes:
        """JSON, UTF-8, fields without a value left out."""
        # As model_dump_json does, which makes text of the bytes first, at nearly the price of writing a small message.
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """The message in `raw`; raises pydantic.ValidationError, which is a ValueError."""
        return cls.model_validate_json(raw)
