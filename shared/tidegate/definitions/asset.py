"""Assets: what producers update and schedules wait for, and the ways to name them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final, overload

from tidegate.core.access import AssetAccessControl
from tidegate.core.conditions import Leaf
from tidegate.core.errors import DefinitionError, DefinitionTypeError
from tidegate.core.plain import check_fields, expect, from_plain, plain
from tidegate.definitions.uris import normal_uri, without_credentials

MAX_NAME_CHARACTERS: Final = 1500
_RESERVED: Final = frozenset({"self", "context", "outlet_events"})
_NOT_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, init=False)
class Asset(Leaf):
    """A logical grouping of data, identified by (name, uri); nothing else of it affects identity (F39).

    Name and URI stand in for each other where one is left out. Raises DefinitionError for an empty, reserved or
    over-long name and for a URI that breaks the rules, DefinitionTypeError where both are missing.
    """

    name: str
    uri: str
    group: str = field(compare=False)
    extra: dict[str, Any] = field(compare=False, hash=False)
    access_control: AssetAccessControl | None = field(compare=False)

    def __init__(
        self,
        name: str | None = None,
        uri: str | PathLike[str] | None = None,
        *,
        group: str = "asset",
        extra: Mapping[str, Any] | None = None,
        access_control: AssetAccessControl | None = None,
    ) -> None:
        if name is None and uri is None:
            raise DefinitionTypeError("Asset needs a name or a uri")
        given = str(uri) if uri is not None else checked_name(name, "Asset.name")
        name = without_credentials(checked_name(given if name is None else name, "Asset.name"))
        if name in _RESERVED:
            raise DefinitionError(f"Asset.name {name!r} is reserved: choose another")
        if len(given) > MAX_NAME_CHARACTERS or _NOT_IN_NAMES.search(given):
            raise DefinitionError(
                f"Asset.uri {given[:40]!r} must have 1 to {MAX_NAME_CHARACTERS} characters and no control characters"
            )
        if extra is not None and not isinstance(extra, Mapping):
            raise DefinitionTypeError(f"Asset.extra must be a dict of JSON data, not {extra!r:.100}")
        _check_json(extra)
        if access_control is not None:
            expect(access_control, AssetAccessControl, "Asset.access_control")
        values = {
            "name": name,
            "uri": normal_uri(given),
            "group": checked_name(group, "Asset.group"),
            "extra": dict(extra or {}),
            "access_control": access_control,
        }
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)

    @overload
    @staticmethod
    def ref(*, name: str) -> "AssetNameRef": ...

    @overload
    @staticmethod
    def ref(*, uri: str) -> "AssetUriRef": ...

    @staticmethod
    def ref(*, name: str = "", uri: str = "") -> "AssetNameRef | AssetUriRef":
        """Names an asset that is declared elsewhere, by its name or by its URI; raises DefinitionTypeError for both."""
        if bool(name) == bool(uri):
            raise DefinitionTypeError("Asset.ref needs a name or a uri, and only one of them")
        return AssetNameRef(name) if name else AssetUriRef(uri)

    def same_asset(self, other: Leaf) -> bool:
        if isinstance(other, AssetNameRef | AssetUriRef):
            return other.same_asset(self)
        return self == other

    def serialize(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name}
        if self.uri != self.name:
            data["uri"] = self.uri
        if self.group != "asset":
            data["group"] = self.group
        if self.extra:
            data["extra"] = self.extra
        if self.access_control is not None:
            data["access_control"] = plain(self.access_control)
        return data

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "Asset":
        check_fields(Asset, data)
        access_control = from_plain(data.get("access_control"))
        return Asset(**{**data, "access_control": access_control})


@dataclass(frozen=True)
class AssetNameRef(Leaf):
    """An asset by its name, whatever its URI."""

    name: str

    def __post_init__(self) -> None:
        checked_name(self.name, "Asset.ref name")

    def same_asset(self, other: Leaf) -> bool:
        return isinstance(other, Asset | AssetNameRef) and other.name == self.name


@dataclass(frozen=True)
class AssetUriRef(Leaf):
    """An asset by its URI, whatever its name."""

    uri: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", normal_uri(checked_name(self.uri, "Asset.ref uri")))

    def same_asset(self, other: Leaf) -> bool:
        return isinstance(other, Asset | AssetUriRef) and other.uri == self.uri


@dataclass(frozen=True)
class AssetAlias(Leaf):
    """A name that stands for whatever assets a run adds to it; in a condition, for all that it has stood for."""

    name: str
    group: str = field(default="asset", compare=False)

    def __post_init__(self) -> None:
        checked_name(self.name, "AssetAlias.name")
        checked_name(self.group, "AssetAlias.group")


def _check_json(extra: Mapping[str, Any] | None) -> None:
    try:
        json.dumps(dict(extra or {}), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DefinitionError(f"Asset.extra must be a dict of JSON data: {error}") from error


def checked_name(name: object, field_name: str) -> str:
    """`name` if it has 1 to 1500 visible characters; raises DefinitionError."""
    if not isinstance(name, str):
        raise DefinitionError(f"{field_name} must be text, not {name!r}")
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS or _NOT_IN_NAMES.search(name):
        raise DefinitionError(
            f"{field_name} {name[:40]!r} must have 1 to {MAX_NAME_CHARACTERS} visible characters"
        )
    return name
