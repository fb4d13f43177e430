"""Asset events as a hostile or careless producer writes them: well-formed ones, and what mutations make of them.

A tree is mutated where it stands (types, names, sizes, times), then written as JSON by a writer that can also write
what JSON forbids, then the bytes are mutated. An event that nothing has touched must be accepted.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.fuzz.pool import EVENTS, JSON, examples

Headers = tuple[tuple[str, bytes | None], ...]
EVENT_TYPE: Final = "dev.tidegate.asset.updated.v1"
_POOL: Final = 300
_MOST_BYTES: Final = 800_000
"""Brokers refuse records of more than 1 MiB, so ingest never sees them."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One record for `asset-events`."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    id: str
    is_untouched: bool


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that stands in the JSON as it is."""

    text: str


class Twice(dict[str, Any]):
    """An object that gives its last name twice."""


RAW: Final[tuple[Any, ...]] = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "1e-999",
        "01",
        "+1",
        ".5",
        "0x1f",
        "1_000",
        "-",
        "- 1",
    ),
    *(
        "9" * 400,
        "-" + "9" * 400,
        "9" * 5_000,
        "1e15",
        "1" + "0" * 308,
        "0." + "0" * 5_000 + "1",
        "18446744073709551616",
    ),
    *(
        "True",
        "None",
        "undefined",
        "'x'",
        "",
        ",",
        "{}{}",
        "/* x */ 1",
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\x41"',
    ),
    *(
        '"\\u0000"',
        '"a\tb"',
        '"a\nb"',
        '"\\u202e"',
        '"\x7f"',
        '"\ufeff"',
        "[,]",
        "{,}",
        '{"a":1,}',
        "[1 2]",
        '{"a"}',
    ),
)
HOSTILE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324),
    *(
        "",
        " ",
        "\t",
        "\0",
        "\x1b[2J",
        "\x85",
        "\u2028",
        "\u202e",
        "\ufeff",
        "a\u0301",
        "\U0001f680",
        "é" * 126,
    ),
    *(
        "x" * 250,
        "x" * 251,
        "x" * 256,
        "x" * 257,
        "x" * 512,
        "x" * 1_500,
        "x" * 1_501,
        "x" * 20_000,
        "\0" * 3_000,
    ),
    *(
        "{0.__class__}",
        "%s%n",
        "{{ 7*7 }}",
        "${jndi:ldap://x/a}",
        "'; DROP TABLE rounds;--",
        "<script>",
        "../../etc",
    ),
    *(
        "__proto__",
        "__class__",
        "$ref",
        "a}b{c}",
        "{tag}",
        "a/b#0",
        "a b",
        "redis:*",
        "null",
        "true",
        "NaN",
        "0",
    ),
    *(
        [],
        [None],
        [[]],
        ["a", 1],
        [{"a": []}],
        {},
        {"": ""},
        {"a": None},
        {"__class__": "x"},
        ["x"] * 101,
        ["x"] * 5_000,
    ),
)
TIMES: Final[tuple[Any, ...]] = (
    *(
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59.9999999Z",
    ),
    *("10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-03-10T24:00:00Z"),
    *(
        "2026-12-31T23:59:60Z",
        "2026-03-10T00:00:00+25:00",
        "2026-03-10T00:00:00+00:60",
        "2026-03-10T00:00:00",
    ),
    *(
        "2026-03-10",
        "20260310T000000Z",
        "2026-W11-2",
        "1773100800",
        "1e12",
        "now",
        "2026-03-10T00:00Z",
        "2026-03-10 00:00Z",
    ),
    *(
        "2026-03-10T00:00:00z",
        "2026-03-10T00:00:00.Z",
        "2026-03-10T00:00:00,5Z",
        "2026-03-10T00:00:00 Europe/Berlin",
    ),
    *("٢٠٢٦-03-10T00:00:00Z", "2026-03-10T00:00:00\u221201:00", 1773100800, 1773100800000, -1, 1e300, 2**63),
)
VERSIONS: Final[tuple[Any, ...]] = (
    "0.3",
    "1",
    "1.1",
    "1.00",
    " 1.0",
    "1.0\n",
    "2.0",
    "v1.0",
    "",
    None,
    1.0,
    1,
    ["1.0"],
)
TYPES: Final[tuple[Any, ...]] = (
    "dev.tidegate.asset.updated.v2",
    "DEV.TIDEGATE.ASSET.UPDATED.V1",
    "",
    None,
    1,
    EVENT_TYPE + " ",
    "a" * 3_000,
)
URIS: Final[tuple[Any, ...]] = (
    *(
        "s3://",
        "s3://b/é",
        "airflow://x",
        "c:\\temp",
        "http://u:p@h/p",
        "x-a://a b",
        "//",
        "http://[::1",
        "http://h:99999/",
    ),
    *(
        "file:///" + "a/../" * 300,
        "%zz",
        "s3://b/%00",
        "http://" + "a" * 1_400,
        "mailto:",
        ":",
        "s3://bucket/key",
    ),
)


def events(seed: int, count: int) -> Iterator[Sent]:
    """`count` records, the same for the same seed; about one in twelve is well-formed, one in thirty a repeat."""
    dice = Random(seed)
    pool, values = examples(EVENTS, _POOL, seed), examples(JSON, _POOL, seed)
    last: list[Sent] = []
    for number in range(count):
        if last and dice.random() < 0.03:
            yield dice.choice(last)
            continue
        sent = _event(dice, f"{seed}-{number}", dice.choice(pool), values)
        last = [*last[-40:], sent]
        yield sent


def good(id: str) -> Sent:
    """An event that must come through whatever came before it."""
    return Sent(
        b"hourly", _text(_tree(id, {"source": "/good", "data": {"asset": "hourly"}})).encode(), (), id, True
    )


def _tree(id: str, rest: dict[str, Any]) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "type": EVENT_TYPE, **deepcopy(rest)}


def _event(dice: Random, id: str, rest: dict[str, Any], values: list[Any]) -> Sent:
    tree: Any = _tree(id, rest)
    key = dice.choice((None, b"", b"hourly", b"\xff\xfe", b"k" * 3_000, id.encode()))
    is_binary = dice.random() < 0.25
    touches = 0
    if dice.random() < 0.8:
        touches = dice.choice((1, 1, 1, 2, 3))
        for _ in range(touches):
            tree = dice.choice(_OF_TREES)(dice, tree, values)
    headers: Headers = ()
    if is_binary and isinstance(tree, dict):
        headers = _headers({name: each for name, each in tree.items() if name != "data"})
        value: bytes | None = _text(tree.get("data")).encode("utf-8", "surrogatepass")
        if dice.random() < 0.4:
            touches += 1
            headers = dice.choice(_OF_HEADERS)(dice, headers)
    else:
        value = _text(tree).encode("utf-8", "surrogatepass")
        if dice.random() < 0.1:
            headers = dice.choice(_STRUCTURED)
            touches += 1
    if dice.random() < 0.3:
        touches += 1
        value = dice.choice(_OF_BYTES)(dice, value or b"")
    if value is None and key is None:
        key = b""  # clients write no record without both
    if value is not None and len(value) > _MOST_BYTES:
        value, touches = value[:_MOST_BYTES], 1
    return Sent(key, value, headers, id, not touches)


def _headers(attributes: dict[str, Any]) -> Headers:
    written = (
        (f"ce_{name}"[:200], value if isinstance(value, str) else _text(value))
        for name, value in attributes.items()
    )
    # A header's name must be UTF-8 for the client that writes it.
    return tuple(
        (name.encode("utf-8", "replace").decode(), value.encode("utf-8", "surrogatepass"))
        for name, value in written
    )


# ---- trees ----


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree, as the names and numbers that lead there."""
    if path:
        yield path
    if len(path) < 6 and isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree[:5]):
            yield from _places(value, (*path, name))


def _owner(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path[:-1]:
        tree = tree[name]
    return tree


def _somewhere(dice: Random, tree: Any) -> tuple[Any, Any] | None:
    """A container in the tree and what is in it."""
    places = list(_places(tree))
    if not places:
        return None
    path = dice.choice(places)
    return _owner(tree, path), path[-1]


Mutation = Callable[[Random, Any, list[Any]], Any]


def _put(choose: Callable[[Random, list[Any]], Any]) -> Mutation:
    """Put something in the place of something."""

    def mutate(dice: Random, tree: Any, values: list[Any]) -> Any:
        found = _somewhere(dice, tree)
        if found is None:
            return deepcopy(choose(dice, values))
        found[0][found[1]] = deepcopy(choose(dice, values))
        return tree

    return mutate


def _field(*names: str, among: tuple[Any, ...]) -> Mutation:
    """Put one of some values into a field where they are near misses."""

    def mutate(dice: Random, tree: Any, values: list[Any]) -> Any:
        if not isinstance(tree, dict):
            return tree
        name = dice.choice(names)
        inner = tree if name in ("specversion", "type", "id", "source", "time") else tree.get("data")
        if isinstance(inner, dict):
            inner[name] = dice.choice(among)
        return tree

    return mutate


def _remove(dice: Random, tree: Any, values: list[Any]) -> Any:
    found = _somewhere(dice, tree)
    if found is not None:
        del found[0][found[1]]
    return tree


def _rename(dice: Random, tree: Any, values: list[Any]) -> Any:
    found = _somewhere(dice, tree)
    if found is not None and isinstance(found[0], dict) and isinstance(found[1], str):
        name = found[1]
        other = dice.choice(
            (name.upper(), name + " ", name[:-1], name[::-1], "\0" + name, name + "é", "data", "asset", "")
        )
        found[0][other] = found[0].pop(name)
    return tree


def _add(dice: Random, tree: Any, values: list[Any]) -> Any:
    inner = tree.get("data") if isinstance(tree, dict) and dice.random() < 0.7 else tree
    if isinstance(inner, dict):
        inner[
            dice.choice(
                ("partition_kye", "x" * 3_000, "", "Extra", "traceid", "a-b", "\ud800", "v", "data_base64")
            )
        ] = dice.choice(values)
    return tree


def _repeat_a_name(dice: Random, tree: Any, values: list[Any]) -> Any:
    found = _somewhere(dice, tree)
    if found is not None and isinstance(inner := found[0][found[1]], dict) and inner:
        found[0][found[1]] = Twice(inner)
        return tree
    return Twice(tree) if isinstance(tree, dict) and tree else tree


def _nest(dice: Random, tree: Any, values: list[Any]) -> Any:
    depth = dice.choice((3, 62, 63, 64, 65, 66, 127, 200, 255, 1_000, 20_000))
    opening, closing = dice.choice((("[", "]"), ('{"a":', "}")))
    nested = Raw(opening * depth + "1" + closing * depth)
    if isinstance(tree, dict) and isinstance(tree.get("data"), dict) and dice.random() < 0.7:
        tree["data"]["extra"] = {"deep": nested}
        return tree
    return _put(lambda *_: nested)(dice, tree, values)


def _enlarge(dice: Random, tree: Any, values: list[Any]) -> Any:
    size = dice.choice((1_000, 60_000, 60_000, 250_000, 262_144, 300_000))
    large = dice.choice(
        (
            "x" * size,
            "\0" * (size // 6),
            "\U0001f680" * (size // 4),
            [1e15] * (size // 10),
            ["é"] * (size // 7),
        )
    )
    if isinstance(tree, dict) and isinstance(tree.get("data"), dict):
        tree["data"]["extra"] = {"large": large}
    return tree


_OF_TREES: Final[tuple[Mutation, ...]] = (
    *[_put(lambda dice, _: dice.choice(HOSTILE))] * 4,
    *[_put(lambda dice, _: Raw(dice.choice(RAW)))] * 3,
    *[_put(lambda dice, values: dice.choice(values))] * 2,
    *[_remove] * 2,
    *[_rename] * 2,
    *[_add] * 2,
    _repeat_a_name,
    _nest,
    _field("time", "partition_date", "partition_date", among=TIMES),
    _field("specversion", among=VERSIONS),
    _field("type", among=TYPES),
    _field("asset_uri", among=URIS),
    _field("partition_key", "asset", "id", "source", "aliases", among=HOSTILE),
    lambda dice, tree, values: (
        _enlarge(dice, tree, values) if dice.random() < 0.1 else _remove(dice, tree, values)
    ),
)

# ---- headers and bytes ----

_STRUCTURED: Final[tuple[Headers, ...]] = (
    (("content-type", b"application/cloudevents+json"),),
    (("content-type", b"application/cloudevents+json; charset=utf-16"), ("ce_id", b"no")),
    (("content-type", b"application/cloudevents-batch+json"),),
    (("content-type", b"\xff"),),
    (("content-type", None),),
    (("ce_id", None),),
    (("", b""), ("ce_", b"")),
    tuple((f"h{n}", b"x" * 50) for n in range(300)),
)


def _one(change: Callable[[Random, str, bytes | None], Headers]) -> Callable[[Random, Headers], Headers]:
    """Replace one header by none or several."""

    def mutate(dice: Random, headers: Headers) -> Headers:
        at = dice.randrange(len(headers)) if headers else 0
        name, value = headers[at] if headers else ("ce_id", b"1")
        return (*headers[:at], *change(dice, name, value), *headers[at + 1 :])

    return mutate


_OF_HEADERS: Final[tuple[Callable[[Random, Headers], Headers], ...]] = (
    _one(lambda dice, name, value: ()),
    _one(lambda dice, name, value: ((name, value), (name, value))),
    _one(lambda dice, name, value: ((name, value), (name, b"other"))),
    _one(lambda dice, name, value: ((name, None),)),
    _one(lambda dice, name, value: ((name, b""),)),
    _one(
        lambda dice, name, value: (
            (name, dice.choice((b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"))),
        )
    ),
    _one(lambda dice, name, value: ((name, bytes(dice.randrange(256) for _ in range(30))),)),
    _one(lambda dice, name, value: ((name.upper(), value),)),
    _one(lambda dice, name, value: ((name.replace("ce_", "ce-"), value),)),
    _one(lambda dice, name, value: ((name, (value or b"") + b'","data":{},"x":"'),)),
    _one(lambda dice, name, value: ((name, b"x" * 100_000),)),
    lambda dice, headers: (*headers, ("ce_data", b"{}")),
    lambda dice, headers: (*headers, ("ce_", b"x")),
    lambda dice, headers: (*headers, ("ce_é", b"x"), ("ce_X", b"x")),
    lambda dice, headers: (*headers, *((f"ce_x{n}", b"y") for n in range(500))),
    lambda dice, headers: (("content-type", b"application/cloudevents+json"), *headers),
    lambda dice, headers: tuple(reversed(headers)),
    lambda dice, headers: (),
)


def _flip(dice: Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(dice.choice((1, 1, 2, 5))):
        if changed:
            changed[dice.randrange(len(changed))] = dice.choice(
                (dice.randrange(256), 0, 0x80, 0xFF, 0x22, 0x5C, 0x7B)
            )
    return bytes(changed)


def _cut(dice: Random, raw: bytes) -> bytes:
    begin = dice.randrange(len(raw) + 1)
    return raw[:begin] if dice.random() < 0.6 else raw[:begin] + raw[begin + dice.randrange(20) :]


def _insert(dice: Random, raw: bytes) -> bytes:
    begin = dice.randrange(len(raw) + 1)
    what = dice.choice(
        (
            b"\0",
            b"\xff",
            b"\xc0\xaf",
            b"\xed\xa0\x80",
            b"\xef\xbb\xbf",
            b"\\ud800",
            b",",
            b"}",
            b'"',
            b"\r\n",
            raw,
        )
    )
    return raw[:begin] + what + raw[begin:]


_OF_BYTES: Final[tuple[Callable[[Random, bytes], bytes | None], ...]] = (
    *[_flip] * 4,
    *[_cut] * 3,
    *[_insert] * 3,
    lambda dice, raw: None,
    lambda dice, raw: b"",
    lambda dice, raw: b"[" + raw + b"]",
    lambda dice, raw: raw + b"\n" + raw,
    lambda dice, raw: b"\xef\xbb\xbf" + raw,
    lambda dice, raw: raw.decode("utf-8", "replace").encode("utf-16"),
    lambda dice, raw: b"\x1f\x8b\x08" + raw,
    lambda dice, raw: b" \n\t" + raw + b" \n\t",
    lambda dice, raw: raw + b" x",
    lambda dice, raw: json.dumps(raw.decode("utf-8", "replace")).encode(),
    lambda dice, raw: bytes(dice.randrange(256) for _ in range(dice.randrange(200))),
)


def _text(tree: Any) -> str:
    """JSON, with what JSON has no way to say."""
    if isinstance(tree, Raw):
        return tree.text
    if isinstance(tree, dict):
        pairs = [f"{json.dumps(str(name))}:{_text(value)}" for name, value in tree.items()]
        if isinstance(tree, Twice) and tree:  # a later touch may have emptied it
            pairs.append(f"{json.dumps(str(next(reversed(tree))))}:null")
        return "{" + ",".join(pairs) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(_text, tree)) + "]"
    return json.dumps(tree, ensure_ascii=isinstance(tree, str) and len(tree) % 2 == 0)
