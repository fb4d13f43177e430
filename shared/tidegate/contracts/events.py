"""`asset-events`: CloudEvents 1.0, structured or binary, as any client may write them.

Structured: the value is the whole event as JSON and the header `content-type` is `application/cloudevents+json` (or
there is no such header). Binary: attributes are `ce_*` headers and the value is the data as JSON. See the CloudEvents
Kafka protocol binding 1.0.2.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, from_json, to_json

from tidegate.contracts.topics import MAX_EVENT_BYTES, PACK_BYTES
from tidegate.core.errors import InvalidEventError, InvalidPartitionKeyError
from tidegate.core.instants import from_us, to_us
from tidegate.core.keys import validate_key

EVENT_TYPE: Final = "dev.tidegate.asset.updated.v1"
MAX_DEPTH: Final = 64
"""Levels of objects and lists in `extra`: parsers stop at some hundred, and messages of ours wrap it further."""

STRUCTURED: Final = "application/cloudevents+json"

Headers = Sequence[tuple[str, bytes | None]]

MAX_REASON_CHARACTERS: Final = 500
"""Reasons quote what producers wrote; dead letters and audit entries must fit their topics whatever that was."""

_CREDENTIALS: Final = re.compile(r"//[^/?#]*@")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DATE_AND_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ].+", re.ASCII | re.DOTALL)


def _key(value: object) -> object:
    if isinstance(value, str):
        try:
            return validate_key(value)
        except InvalidPartitionKeyError as error:
            raise PydanticCustomError("invalid-key", "{reason}", {"reason": str(error)}) from error
    return value


def _text(value: str) -> str:
    if not value.strip() or _CONTROL.search(value):
        raise PydanticCustomError("invalid-text", "must have a visible character and no control characters")
    return value


def _written_date(value: object) -> object:
    # pydantic would read numbers, and text that holds one, as seconds or milliseconds by their size
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE_AND_TIME.fullmatch(value)):
        return value
    raise PydanticCustomError(
        "invalid-date", "must be a date and a time with an offset from UTC, as ISO 8601 text"
    )


def _storable(value: datetime) -> datetime:
    try:
        from_us(to_us(value))
    except (ValueError, OverflowError, OSError) as error:
        raise PydanticCustomError("invalid-date", "must lie in the years 1 to 9999 of UTC") from error
    return value


def _portable(value: object) -> object:
    """JSON that every reader of ours, and of others, can read back from inside a larger message."""
    todo = [(value, 1)]
    while todo:
        one, depth = todo.pop()
        if depth > MAX_DEPTH:
            reason = "is nested more than {most} levels deep: flatten it"
            raise PydanticCustomError("too-deep", reason, {"most": MAX_DEPTH})
        if isinstance(one, dict):
            todo += ((each, depth + 1) for each in one.values())
        elif isinstance(one, list):
            todo += ((each, depth + 1) for each in one)
        elif isinstance(one, float) and not isfinite(one):
            reason = "holds NaN or an infinite number, which JSON cannot say: use null"
            raise PydanticCustomError("invalid-number", reason)
    return value


Text = Annotated[str, AfterValidator(_text)]
Instant = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_written_date), AfterValidator(_storable)
]


class AssetUpdate(BaseModel):
    """The data of an asset event: which asset was updated, and which partition of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    asset: Annotated[Text, Field(max_length=1500)] | None = None
    """Name of the asset; one of `asset` and `asset_uri` is needed."""
    asset_uri: Annotated[Text, Field(max_length=1500)] | None = None
    aliases: Annotated[tuple[Annotated[Text, Field(max_length=1500)], ...], Field(max_length=100)] | None = (
        None
    )
    """Names of the aliases that stood for the asset in this update."""
    partition_key: Annotated[str, BeforeValidator(_key)] | None = None
    """1 to 250 characters, no control characters; absent for an event that concerns the asset as a whole."""
    partition_date: Instant | None = None
    """The producer's own date of the partition, with an offset from UTC."""
    extra: Annotated[dict[str, Any], AfterValidator(_portable)] | None = None

    @model_validator(mode="after")
    def _names_an_asset(self) -> Self:
        if self.asset is None and self.asset_uri is None:
            if self.aliases:
                raise PydanticCustomError(
                    "alias-without-asset",
                    "the event names the alias {alias}, but no asset that it stands for: add 'asset' or 'asset_uri'",
                    {"alias": f"{self.aliases[0]!r:.200}"},
                )
            raise PydanticCustomError("missing", "one of 'asset' and 'asset_uri' is needed")
        return self


class AssetEvent(BaseModel):
    """A CloudEvent that says that an asset was updated. Extension attributes are kept (rule D15)."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    specversion: str
    id: Annotated[Text, Field(max_length=256)]
    source: Annotated[Text, Field(max_length=512, pattern=r"^\S+$")]
    """A URI reference, so without spaces; (source, id) identifies the event."""
    type: str
    time: Instant | None = None
    subject: str | None = None
    dataschema: str | None = None
    datacontenttype: str | None = None
    data: AssetUpdate

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if self.specversion != "1.0":
            raise PydanticCustomError(
                "unknown-version",
                "CloudEvents specversion {found} is not known: use '1.0'",
                {"found": repr(self.specversion)},
            )
        if self.type != EVENT_TYPE:
            raise PydanticCustomError(
                "unknown-type",
                "event type {found} is not known: use {known}",
                {"found": repr(self.type), "known": repr(EVENT_TYPE)},
            )
        for name, value in (self.model_extra or {}).items():
            # CloudEvents 1.0, naming: attribute names are lower-case ASCII letters and digits.
            if not (name.isascii() and name.isalnum() and name == name.lower()):
                raise PydanticCustomError(
                    "unknown-field",
                    "field {name} is no CloudEvents attribute: remove it or correct its name",
                    {"name": repr(name)},
                )
            if value is not None and not isinstance(value, str | int):
                raise PydanticCustomError(
                    "invalid-extension",
                    "extension attribute {name} must be text, a whole number, true or false",
                    {"name": repr(name)},
                )
        return self

    def to_bytes(self) -> bytes:
        """The structured form."""
        return self.model_dump_json(exclude_none=True).encode()


def parse_event(value: bytes | None, headers: Headers = ()) -> AssetEvent:
    """The asset event in a Kafka record; raises InvalidEventError with a code and a reason that quotes the fault."""
    if value is None:
        raise InvalidEventError("null-value", "the record has no value: send a CloudEvent")
    size = len(value) + sum(len(raw) for name, raw in headers if raw is not None and name.startswith("ce_"))
    if size > MAX_EVENT_BYTES:
        raise InvalidEventError(
            "too-large", f"the event has {size} bytes: at most {MAX_EVENT_BYTES} are allowed"
        )
    attributes = _binary_attributes(headers)
    try:
        event = AssetEvent.model_validate_json(
            value if attributes is None else _structured(attributes, value)
        )
        if size > PACK_BYTES // 4 and (written := len(event.to_bytes())) > PACK_BYTES:
            # numbers such as 1e15 grow fourfold, and later records must hold the event too
            reason = f"written out in full the event has {written} bytes: shorten its numbers"
            raise InvalidEventError("too-large", reason)
        return event
    except InvalidEventError:
        raise
    except ValidationError as error:
        raise _refusal(error) from error
    except ValueError as error:
        raise InvalidEventError("not-json", f"the value cannot be read as JSON: {error}") from error


def _binary_attributes(headers: Headers) -> Mapping[str, str] | None:
    """The `ce_` headers of binary mode, None in structured mode; other headers belong to other tools."""
    found: dict[str, str] = {}
    for name, raw in headers:
        if name == "content-type" and raw is not None and raw.startswith(STRUCTURED.encode()):
            return None
        if name.startswith("ce_") and raw is not None:
            try:
                found[name[3:]] = raw.decode()
            except UnicodeDecodeError as error:
                reason = shortened(f"header {name!r:.100} is not UTF-8: {raw!r}")
                raise InvalidEventError("invalid-header", reason) from error
    return found or None


def _structured(attributes: Mapping[str, str], value: bytes) -> bytes:
    if "data" in attributes:
        raise InvalidEventError(
            "invalid-header", "header 'ce_data' is not an attribute: the value is the data"
        )
    from_json(value)  # so that the value cannot close the object and add attributes of its own
    return to_json(attributes)[:-1] + b',"data":' + value + b"}"


_CODES: Final = {
    "json_invalid": "not-json",
    "model_type": "not-an-object",
    "missing": "missing-field",
    "extra_forbidden": "unknown-field",
    "alias-without-asset": "alias-without-asset",
    "invalid-key": "invalid-key",
    "too-deep": "too-deep",
    "unknown-version": "unknown-version",
    "unknown-type": "unknown-type",
    "unknown-field": "unknown-field",
}


def _refusal(error: ValidationError) -> InvalidEventError:
    code, reason = _code_and_reason(error)
    return InvalidEventError(code, shortened(reason))


def _quoted(value: object) -> str:
    """The beginning of what a producer wrote, without users and passwords of URIs."""
    return f"{_CREDENTIALS.sub('//', repr(value)):.100}"


def shortened(reason: str) -> str:
    """`reason`, cut where it is longer than dead letters and audit entries may say."""
    return reason if len(reason) <= MAX_REASON_CHARACTERS else reason[: MAX_REASON_CHARACTERS - 3] + "..."


def _code_and_reason(error: ValidationError) -> tuple[str, str]:
    problem = error.errors(include_url=False, include_context=False)[0]
    code = _CODES.get(problem["type"], "invalid-field")
    where = ".".join(map(str, problem["loc"]))
    if code == "not-json":
        return code, f"the value cannot be read as JSON: {problem['msg']}"
    if code == "not-an-object":
        return code, f"{where or 'the value'} must be a JSON object, not {_quoted(problem['input'])}"
    if code == "missing-field":
        return code, f"field {where!r} is missing" if problem["msg"] == "Field required" else problem["msg"]
    if code == "unknown-field" and where:
        return code, f"field {where!r} is not known: remove it or correct its name"
    quoted = "" if code != "invalid-field" else f" (found {_quoted(problem['input'])})"
    return code, f"{where + ': ' if where else ''}{problem['msg']}{quoted}"
