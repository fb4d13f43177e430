"""`Metadata`: what a run says about one of the assets that it updates, as a value that its function yields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.errors import DefinitionTypeError
from tidegate.core.plain import expect
from tidegate.definitions.asset import Asset, AssetAlias


@dataclass(frozen=True)
class Metadata:
    """Extra data for the event of an asset; with an alias, the asset is one that the alias stood for."""

    asset: Asset
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    alias: AssetAlias | None = None

    def __post_init__(self) -> None:
        expect(self.asset, Asset, "Metadata.asset")
        if not isinstance(self.extra, Mapping):
            raise DefinitionTypeError(f"Metadata.extra must be a dict of JSON data, not {self.extra!r:.100}")
        if self.alias is not None:
            expect(self.alias, AssetAlias, "Metadata.alias")
