"""What producers and consumers declare, and its way to and from plain data."""

from tidegate.core.access import AssetAccessControl
from tidegate.definitions.aliases import OutletUpdate, ResolvedUpdate, resolve_aliases
from tidegate.definitions.asset import Asset, AssetAlias, AssetNameRef, AssetUriRef
from tidegate.definitions.decorators import AssetDefinition, MultiAssetDefinition
from tidegate.definitions.job import Job
from tidegate.definitions.load import Definitions, load_definitions
from tidegate.definitions.metadata import Metadata
from tidegate.definitions.plugins import TidegatePlugin, load_plugins, register_plugin

__all__ = [
    "Asset",
    "AssetAccessControl",
    "AssetAlias",
    "AssetDefinition",
    "AssetNameRef",
    "AssetUriRef",
    "Definitions",
    "Job",
    "Metadata",
    "MultiAssetDefinition",
    "OutletUpdate",
    "ResolvedUpdate",
    "TidegatePlugin",
    "load_definitions",
    "load_plugins",
    "register_plugin",
    "resolve_aliases",
]
