"""Well-formed material that hypothesis makes from a seed, for mutations to start from."""

from datetime import datetime, timedelta
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

_text = st.text(max_size=40)
_keys = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=250).filter(str.strip)
_names = st.sampled_from(["hourly", "daily", "unknown"]) | st.from_regex(r"[a-z_]{1,30}", fullmatch=True)

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


def _is_storable(at: datetime) -> bool:
    """Within the years of UTC, with an offset of whole minutes: ISO 8601 has no others."""
    return 2 <= at.year <= 9998 and not (at.utcoffset() or timedelta()) % timedelta(minutes=1)


_times = (
    st.datetimes(timezones=st.timezones(), allow_imaginary=False).filter(_is_storable).map(datetime.isoformat)
)
_needed: dict[Any, st.SearchStrategy[Any]] = {"asset": _names}
_data = st.fixed_dictionaries(
    _needed,
    optional={
        "partition_key": _keys,
        "partition_date": _times,
        "aliases": st.lists(_names, max_size=3),
        "extra": st.dictionaries(_text, JSON, max_size=4),
    },
)
_attributes: dict[Any, st.SearchStrategy[Any]] = {
    "source": st.sampled_from(["/s", "urn:x:y", "https://example.com/a?b#c"]),
    "data": _data,
}

EVENTS: Final = st.fixed_dictionaries(
    _attributes,
    optional={
        "time": _times,
        "subject": _text,
        "dataschema": st.just("https://example.com/schema"),
        "datacontenttype": st.just("application/json"),
        "traceparent": st.just("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        "partitionkey": st.integers(0, 9),
    },
)
"""Events that lack what every one of them has alike: `id`, `specversion` and `type`."""


def examples(strategy: st.SearchStrategy[Any], count: int, from_seed: int) -> list[Any]:
    """Up to `count` values of a strategy, the same for the same seed."""
    found: list[Any] = []

    @seed(from_seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found
