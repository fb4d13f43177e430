"""`asset-events`: CloudEvents 1.0, structured or binary, as any client may write them.

Structured: the value is the whole event as JSON and the header `content-type` is `application/cloudevents+json` (or
there is no such header). Binary: attributes are `ce_*` headers and the value is the data as JSON. See the CloudEvents
Kafka protocol binding 1.0.2.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, Final, Literal, Required, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, from_json, to_json
from typing_extensions import TypedDict

from tidegate.contracts.topics import MAX_EVENT_BYTES, PACK_BYTES
from tidegate.core.errors import InvalidEventError, InvalidPartitionKeyError
from tidegate.core.keys import MAX_KEY_CHARACTERS, validate_key

EVENT_TYPE: Final = "dev.tidegate.asset.updated.v1"
MAX_DEPTH: Final = 64
"""Levels of objects and lists in `extra`: parsers stop at some hundred, and messages of ours wrap it further."""

STRUCTURED: Final = "application/cloudevents+json"

_STRUCTURED: Final = STRUCTURED.encode()

Headers = Sequence[tuple[str, bytes | None]]

MAX_REASON_CHARACTERS: Final = 500
"""Reasons quote what producers wrote; dead letters and audit entries must fit their topics whatever that was."""

_CREDENTIALS: Final = re.compile(r"//[^/?#]*@")
_DATE_AND_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?s:.+)$"
_PLAIN: Final = r"[^\x00-\x1f\x7f-\x9f]"
_VISIBLE: Final = rf"^{_PLAIN}*[^\s\x00-\x1f\x7f-\x9f]{_PLAIN}*$"
_FIRST_INSTANT: Final = datetime.min.replace(tzinfo=UTC)
_LAST_INSTANT: Final = datetime.max.replace(tzinfo=UTC)


def _reading(schema: CoreSchema, *then: CoreSchema) -> GetPydanticSchema:
    """A field that is read by one schema after the other, all in pydantic's own code: every event goes this way."""
    return GetPydanticSchema(lambda *_: core_schema.chain_schema([schema, *then]))


def _matching(pattern: str, kind: str, message: str) -> CoreSchema:
    return core_schema.custom_error_schema(
        core_schema.str_schema(pattern=pattern, strict=True),
        custom_error_type=kind,
        custom_error_message=message,
    )


def _name(most: int, *then: CoreSchema) -> GetPydanticSchema:
    """Text of at most so many characters, with something to see and no control characters."""
    text = core_schema.str_schema(max_length=most, strict=True)
    message = "must have a visible character and no control characters"
    return _reading(text, _matching(_VISIBLE, "invalid-text", message), *then)


def _instant() -> GetPydanticSchema:
    # pydantic would read numbers, and text that holds one, as seconds or milliseconds by their size
    written = _matching(
        _DATE_AND_TIME, "invalid-date", "must be a date and a time with an offset from UTC, as ISO 8601 text"
    )
    read = core_schema.datetime_schema(
        tz_constraint="aware", strict=False, ge=_FIRST_INSTANT, le=_LAST_INSTANT
    )
    given = core_schema.union_schema([core_schema.is_instance_schema(datetime), written])
    return GetPydanticSchema(
        lambda *_: core_schema.json_or_python_schema(
            core_schema.chain_schema([written, read]), core_schema.chain_schema([given, read])
        )
    )


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


_KEY: Final = _reading(
    core_schema.str_schema(strict=True),
    core_schema.custom_error_schema(
        core_schema.str_schema(pattern=_VISIBLE, max_length=MAX_KEY_CHARACTERS),
        custom_error_type="invalid-key",
        custom_error_message="is no partition key",  # validate_key says what is wrong with it
    ),
)
Instant = Annotated[datetime, _instant()]
AssetName = Annotated[str, _name(1500)]
_Aliases = Annotated[tuple[AssetName, ...], Field(max_length=100)]
_Key = Annotated[str, _KEY]
_Extra = Annotated[dict[str, Any], AfterValidator(_portable)]
_Id = Annotated[str, _name(256)]
_Source = Annotated[str, _name(512, _matching(r"^\S+$", "invalid-text", "must have no spaces"))]


class AssetUpdate(BaseModel):
    """The data of an asset event: which asset was updated, and which partition of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    asset: AssetName | None = None
    """Name of the asset; one of `asset` and `asset_uri` is needed."""
    asset_uri: AssetName | None = None
    aliases: _Aliases | None = None
    """Names of the aliases that stood for the asset in this update."""
    partition_key: _Key | None = None
    """1 to 250 characters, no control characters; absent for an event that concerns the asset as a whole."""
    partition_date: Instant | None = None
    """The producer's own date of the partition, with an offset from UTC."""
    extra: _Extra | None = None

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
    id: _Id
    source: _Source
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


class UpdateFields(TypedDict, total=False):
    """An AssetUpdate as a dictionary; what is not given is null or absent."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    asset: AssetName | None
    asset_uri: AssetName | None
    aliases: _Aliases | None
    partition_key: _Key | None
    partition_date: Instant | None
    extra: _Extra | None


class EventFields(TypedDict, total=False):
    """An AssetEvent without attributes of its producer's own, as a dictionary; what is not given is null or absent."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    specversion: Required[Literal["1.0"]]
    id: Required[_Id]
    source: Required[_Source]
    type: Required[Literal["dev.tidegate.asset.updated.v1"]]
    time: Instant | None
    subject: str | None
    dataschema: str | None
    datacontenttype: str | None
    data: Required[UpdateFields]


_usual: Final[Callable[[bytes], EventFields]] = TypeAdapter(EventFields).validator.validate_json
_USUAL_HEADERS: Final = ((), (("content-type", _STRUCTURED),))


def event_fields(value: bytes | None, headers: Headers = ()) -> EventFields:
    """The asset event in a Kafka record; raises as `parse_event` does.

    Most events have no attributes of their own and nothing wrong with them: pydantic makes dictionaries of those in
    half the time that the models take. Of every other one the models say what it holds, or what is wrong.
    """
    if value is not None and headers in _USUAL_HEADERS and len(value) <= PACK_BYTES // 4:
        try:
            event = _usual(value)
        except ValueError:
            pass
        else:
            data = event["data"]
            if data.get("asset") is not None or data.get("asset_uri") is not None:
                return event
    parsed = parse_event(value, headers)
    return cast(EventFields, {**vars(parsed), "data": vars(parsed.data)})


def parse_event(value: bytes | None, headers: Headers = ()) -> AssetEvent:
    """The asset event in a Kafka record; raises InvalidEventError with a code and a reason that quotes the fault."""
    if value is None:
        raise InvalidEventError("null-value", "the record has no value: send a CloudEvent")
    size = len(value)
    for name, raw in headers:
        if raw is not None and name.startswith("ce_"):
            size += len(raw)
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
        if name == "content-type" and raw is not None and raw.startswith(_STRUCTURED):
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
    message = problem["msg"]
    if code == "invalid-key":
        message = _what_is_wrong_with(problem["input"])
    elif problem["type"] in ("greater_than_equal", "less_than_equal"):
        message = "must lie in the years 1 to 9999 of UTC"
    if code == "not-json":
        return code, f"the value cannot be read as JSON: {message}"
    if code == "not-an-object":
        return code, f"{where or 'the value'} must be a JSON object, not {_quoted(problem['input'])}"
    if code == "missing-field":
        return code, f"field {where!r} is missing" if message == "Field required" else message
    if code == "unknown-field" and where:
        return code, f"field {where!r} is not known: remove it or correct its name"
    quoted = "" if code != "invalid-field" else f" (found {_quoted(problem['input'])})"
    return code, f"{where + ': ' if where else ''}{message}{quoted}"


def _what_is_wrong_with(key: str) -> str:
    try:
        validate_key(key)
    except InvalidPartitionKeyError as error:
        return str(error)
    raise AssertionError(f"{key!r} is a partition key after all")
