"""Answers to the vectors of assets, their URIs, references and access control."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tests.conformance.harness import Answer, Ask, Vector
from tidegate.definitions import Asset, AssetAccessControl
from tidegate.definitions.uri_handlers import use_uri_handlers
from tidegate.definitions.uris import uri_handlers


@contextmanager
def _handlers(schemes: list[str]) -> Iterator[None]:
    before = dict(uri_handlers)
    if chosen := [
        scheme for scheme in schemes if scheme not in ("file", "s3")
    ]:  # these two are always understood
        use_uri_handlers(*chosen)
    try:
        yield
    finally:
        uri_handlers.clear()
        uri_handlers.update(before)


def asset(vector: Vector) -> Answer:
    with _handlers(vector["subject"].get("uri_handlers", [])), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = Asset(**vector["input"])
    answer = {"name": made.name, "uri": made.uri, "group": made.group}
    return answer | ({"warns": True} if caught else {})


def ref(vector: Vector) -> Answer:
    return {"type": type(Asset.ref(**vector["input"])).__name__}


def access_control(vector: Vector) -> Answer:
    made = asdict(AssetAccessControl(**vector["input"]))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in made.items()}


ANSWERS: dict[str, Ask] = {"asset": asset, "ref": ref, "access_control": access_control}
