"""Asset URIs: what is a valid one, and the one form that all spellings of it have (docs/rules.md, Meaning).

As in Airflow, text without a scheme is taken as it is, and so is an `x-` scheme, whose meaning is its owner's.
"""

import re
import warnings
from collections.abc import Callable, MutableMapping
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from tidegate.core.errors import DefinitionError

UriHandler = Callable[[SplitResult], SplitResult]

uri_handlers: MutableMapping[str, UriHandler] = {}
"""By scheme: gives the normal form of a URI that has been normalised in general, or raises ValueError."""

_NOT_IN_URIS: Final = re.compile(r"[^\x00-\x7f]|\\")
_CREDENTIALS: Final = re.compile(r"(\s*[A-Za-z][A-Za-z0-9+.-]*://)[^/?#:]*:[^/?#]+@")
_NEEDS_A_HOST: Final = frozenset({"s3"})


def normal_uri(uri: str) -> str:
    """The normal form of an asset's URI; raises DefinitionError.

    The scheme becomes lower-case, the query is sorted, the fragment and slashes at the end go; everything else keeps
    its case. A password is dropped together with its user, with a warning.
    """
    if not uri or uri.isspace():
        raise DefinitionError("Asset.uri must not be empty or blank: leave it out to use the name")
    parts = _split(uri)
    scheme = parts.scheme.lower()
    if not scheme or scheme.startswith("x-"):
        return uri
    if scheme == "airflow":
        raise DefinitionError(f"Asset.uri {uri!r} has the reserved scheme 'airflow': choose another")
    if found := _NOT_IN_URIS.search(uri):
        raise DefinitionError(
            f"Asset.uri {uri!r} holds {found.group()!r}, which no URI may: write it percent-encoded"
        )
    if scheme in _NEEDS_A_HOST and not parts.netloc:
        raise DefinitionError(f"Asset.uri {uri!r} names no bucket: use {scheme}://bucket/key")
    if parts.password:
        warnings.warn(
            f"the URI of an asset holds credentials, which were dropped: {without_credentials(uri)!r} is left",
            UserWarning,
            stacklevel=4,
        )
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    parts = parts._replace(
        scheme=scheme,
        path=parts.path.rstrip("/") or "/",
        query=urlencode(sorted(parse_qsl(parts.query))),
        fragment="",
    )
    if (handler := uri_handlers.get(scheme)) is not None:
        try:
            parts = handler(parts)
        except ValueError as error:
            raise DefinitionError(f"Asset.uri {uri!r} is no {scheme} URI: {error}") from error
    return urlunsplit(parts)


def without_credentials(text: str) -> str:
    """`text` as it is, or if it is a URI with a password, even a malformed one, without that and its user."""
    found = _CREDENTIALS.match(text) if "@" in text else None
    return text if found is None else found[1] + text[found.end() :]


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.password
    except ValueError as error:
        raise DefinitionError(f"Asset.uri {uri!r} cannot be read: {error}") from error
    return parts
