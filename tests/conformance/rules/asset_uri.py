"""What docs/rules.md decides otherwise about assets."""

import re
from typing import Any

from tests.conformance.harness import Answer, Rule, Vector

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
_USER_AND_PASSWORD = re.compile(r"(?<=://)[^/@:]*:[^/@]*@")


def _given(vector: Vector) -> Any:
    """The text that becomes the URI."""
    given = vector["input"]
    return given.get("uri") if given.get("uri") is not None else given.get("name")


def _scheme(vector: Vector) -> str:
    given = _given(vector) if vector["op"] == "asset" else None
    found = _SCHEME.fullmatch(given) if isinstance(given, str) else None
    return found[1].lower() if found else ""


def _is_read(vector: Vector) -> bool:
    """Whether the URI has a scheme that is understood at all."""
    scheme = _scheme(vector)
    return bool(scheme) and not scheme.startswith("x-")


def _has_other_characters(vector: Vector) -> bool:
    return _is_read(vector) and (not _given(vector).isascii() or "\\" in _given(vector))


def _has_no_bucket(vector: Vector) -> bool:
    return _scheme(vector) == "s3" and not re.match(r"[^:]+://[^/?#]", _given(vector))


def _has_reserved_name(vector: Vector) -> bool:
    given = vector["input"]
    name = given.get("name") if given.get("name") is not None else given.get("uri")
    return vector["op"] == "asset" and name in ("self", "context", "outlet_events")


def _has_password(vector: Vector) -> bool:
    return _is_read(vector) and _USER_AND_PASSWORD.search(_given(vector)) is not None


def _without_password(vector: Vector) -> Answer:
    expected = dict(vector["expect"])
    if "error" in expected:
        return expected
    given = vector["input"]
    name = given["name"] if given.get("name") is not None else given["uri"]
    return expected | {"name": _USER_AND_PASSWORD.sub("", name)}


def _lists_one_text(vector: Vector) -> bool:
    return vector["op"] == "access_control" and any(
        isinstance(vector["input"].get(name), str) for name in ("producer_teams", "consumer_teams")
    )


RULES = [
    Rule(
        "F18",
        "a URI holds ASCII only, and no backslash",
        _has_other_characters,
        lambda vector: {"error": "ValueError"},
    ),
    Rule("F18", "s3 needs a bucket", _has_no_bucket, lambda vector: {"error": "ValueError"}),
    Rule("F18", "reserved names", _has_reserved_name, lambda vector: {"error": "ValueError"}),
    Rule("F31", "a password is dropped from the name too", _has_password, _without_password),
    Rule("D19", "teams are a list of texts", _lists_one_text, lambda vector: {"error": "TypeError"}),
]
