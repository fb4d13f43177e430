"""`asset-events`: CloudEvents 1.0, structured or binary, as any client may write them.

Structured: the value is the whole event as JSON and the header `content-type` is `application/cloudevents+json` (or
there is no such header). Binary: attributes are `ce_*` headers and the value is the data as JSON. See the CloudEvents
Kafka protocol binding 1.0.2.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError, from_json

from tidegate.contracts.topics import MAX_EVENT_BYTES
from tidegate.core.errors import InvalidEventError, InvalidPartitionKeyError
from tidegate.core.keys import validate_key

EVENT_TYPE: Final = "dev.tidegate.asset.updated.v1"
STRUCTURED: Final = "application/cloudevents+json"

Headers = Sequence[tuple[str, bytes | None]]


def _key(value: object) -> object:
    if isinstance(value, str):
        try:
            return validate_key(value)
        except InvalidPartitionKeyError as error:
            raise PydanticCustomError("invalid-key", "{reason}", {"reason": str(error)}) from error
    return value


class AssetUpdate(BaseModel):
    """The data of an asset event: which asset was updated, and which partition of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    asset: Annotated[str, Field(min_length=1, max_length=1500)] | None = None
    """Name of the asset; one of `asset` and `asset_uri` is needed."""
    asset_uri: Annotated[str, Field(min_length=1, max_length=1500)] | None = None
    partition_key: Annotated[str, BeforeValidator(_key)] | None = None
    """1 to 250 characters, no control characters; absent for an event that concerns the asset as a whole."""
    partition_date: Annotated[AwareDatetime, Field(strict=False)] | None = None
    """The producer's own date of the partition, with an offset from UTC."""
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _names_an_asset(self) -> Self:
        if self.asset is None and self.asset_uri is None:
            raise PydanticCustomError("missing", "one of 'asset' and 'asset_uri' is needed")
        return self


class AssetEvent(BaseModel):
    """A CloudEvent that says that an asset was updated. Extension attributes are kept (decisions.md D15)."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    specversion: str
    id: Annotated[str, Field(min_length=1, max_length=256)]
    source: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")]
    """A URI reference, so without spaces; (source, id) identifies the event."""
    type: str
    time: Annotated[AwareDatetime, Field(strict=False)] | None = None
    subject: str | None = None
    dataschema: str | None = None
    datacontenttype: str | None = None
    data: AssetUpdate

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if self.specversion != "1.0":
            raise PydanticCustomError(
                "unknown-version", "CloudEvents specversion {found} is not known: use '1.0'", {"found": repr(self.specversion)}
            )
        if self.type != EVENT_TYPE:
            raise PydanticCustomError(
                "unknown-type", "event type {found} is not known: use {known}", {"found": repr(self.type), "known": repr(EVENT_TYPE)}
            )
        for name in self.model_extra or {}:
            # CloudEvents 1.0, naming: attribute names are lower-case ASCII letters and digits.
            if not (name.isascii() and name.isalnum() and name == name.lower()):
                raise PydanticCustomError(
                    "unknown-field", "field {name} is no CloudEvents attribute: remove it or correct its name", {"name": repr(name)}
                )
        return self

    def to_bytes(self) -> bytes:
        """The structured form."""
        return self.model_dump_json(exclude_none=True).encode()


def parse_event(value: bytes | None, headers: Headers = ()) -> AssetEvent:
    """The asset event in a Kafka record; raises InvalidEventError with a code and a reason that quotes what is wrong."""
    if value is None:
        raise InvalidEventError("null-value", "the record has no value: send a CloudEvent")
    if len(value) > MAX_EVENT_BYTES:
        raise InvalidEventError("too-large", f"the event has {len(value)} bytes: at most {MAX_EVENT_BYTES} are allowed")
    attributes = _binary_attributes(headers)
    try:
        if attributes is None:
            return AssetEvent.model_validate_json(value)
        return AssetEvent.model_validate_json(_structured(attributes, value))
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
                raise InvalidEventError("invalid-header", f"header {name!r} is not UTF-8: {raw!r}") from error
    return found or None


def _structured(attributes: Mapping[str, str], value: bytes) -> bytes:
    from pydantic_core import to_json

    if "data" in attributes:
        raise InvalidEventError("invalid-header", "header 'ce_data' is not an attribute: the value is the data")
    from_json(value)  # so that the value cannot close the object and add attributes of its own
    return to_json(attributes)[:-1] + b',"data":' + value + b"}"


_CODES: Final = {
    "json_invalid": "not-json",
    "model_type": "not-an-object",
    "missing": "missing-field",
    "extra_forbidden": "unknown-field",
    "invalid-key": "invalid-key",
    "unknown-version": "unknown-version",
    "unknown-type": "unknown-type",
    "unknown-field": "unknown-field",
}


def _refusal(error: ValidationError) -> InvalidEventError:
    problem = error.errors(include_url=False, include_context=False)[0]
    code = _CODES.get(problem["type"], "invalid-field")
    where = ".".join(map(str, problem["loc"]))
    if code == "not-json":
        return InvalidEventError(code, f"the value cannot be read as JSON: {problem['msg']}")
    if code == "not-an-object":
        return InvalidEventError(code, f"{where or 'the value'} must be a JSON object, not {problem['input']!r:.100}")
    if code == "missing-field":
        return InvalidEventError(code, f"field {where!r} is missing" if where else problem["msg"])
    if code == "unknown-field" and where:
        return InvalidEventError(code, f"field {where!r} is not known: remove it or correct its name")
    quoted = "" if code != "invalid-field" else f" (found {problem['input']!r:.100})"
    return InvalidEventError(code, f"{where + ': ' if where else ''}{problem['msg']}{quoted}")
