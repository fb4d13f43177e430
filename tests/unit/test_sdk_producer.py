"""What the producer refuses at once, and what it writes."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.emit import _from_lines
from tidegate.contracts.events import parse_event
from tidegate.core.errors import InvalidEventError, TidegateError
from tidegate.definitions import Asset, AssetAlias
from tidegate.sdk import AssetEventProducer
from tidegate.sdk.errors import KafkaUnreachableError, ProducerStateError
from tidegate.sdk.events import HEADERS, encode_event, event_id

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
keys = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=250).filter(str.strip)


@given(key=keys | st.none(), extra=st.dictionaries(st.text(), json_values, max_size=4))
def test_every_event_that_can_be_written_can_be_read(key: str | None, extra: dict[str, Any]) -> None:
    at = datetime(2010, 3, 14, 8, tzinfo=UTC)
    value = encode_event("/s", "hourly", id="1", partition_key=key, partition_date=at, extra=extra, time=at)
    event = parse_event(value, HEADERS)
    assert (event.source, event.id, event.time) == ("/s", "1", at)
    assert (event.data.asset, event.data.partition_key, event.data.partition_date) == ("hourly", key, at)
    assert (event.data.extra or {}) == extra


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"partition_key": ""}, "invalid-key", "empty"),
        ({"partition_key": "k" * 251}, "invalid-key", "251"),
        ({"partition_key": "a\nb"}, "invalid-key", "control"),
        ({"partition_key": 5}, "invalid-field", "partition_key"),
        ({"partition_date": datetime(2010, 3, 14)}, "invalid-field", "offset"),
        ({"partition_date": "2010-03-14"}, "invalid-field", "partition_date"),
        ({"partition_date": 7}, "invalid-field", "partition_date"),
        ({"extra": {"fine": 1, "at": datetime(2010, 3, 14)}}, "invalid-field", "extra.at"),
        ({"extra": {"mean": float("nan")}}, "invalid-field", "extra.mean"),
        ({"extra": {"text": "\ud800"}}, "invalid-field", "extra.text"),
        ({"extra": {"blob": "x" * 300_000}}, "too-large", "262144"),
        ({"id": ""}, "invalid-field", "id"),
    ],
)
def test_what_ingest_would_refuse_is_refused_at_once(fields: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(InvalidEventError, match=words) as caught:
        encode_event("/s", "hourly", **{"id": "1", **fields})
    assert caught.value.code == code


def test_deep_nesting_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InvalidEventError):
        encode_event("/s", "hourly", id="1", extra={"deep": deep})


@pytest.mark.parametrize("source", ["", "with space"])
def test_a_source_that_is_no_uri_reference_is_refused(source: str) -> None:
    with pytest.raises(InvalidEventError, match="source"):
        encode_event(source, "hourly", id="1")


def test_ids_from_content_are_stable_and_differ_with_every_part() -> None:
    same = event_id("/s", Asset("a"), "k", "run-1")
    assert same == event_id("/s", "a", "k", "run-1") == "21f7abed-46c0-5ffe-91d3-4400cb4f1d4d"
    assert len(same) == 36
    others = {
        event_id("/t", "a", "k", "run-1"),
        event_id("/s", "b", "k", "run-1"),
        event_id("/s", "a", None, "run-1"),
        event_id("/s", "a", "", "run-1"),
        event_id("/s", "a", "k", "run-2"),
        event_id("/s", "a", "k"),
        event_id("/s", "a", "k", "run", "-1"),
    }
    assert len(others | {same}) == 8


def test_the_order_of_an_extra_does_not_change_the_id() -> None:
    assert event_id("/s", "a", "k", {"x": 1, "y": 2}) == event_id("/s", "a", "k", {"y": 2, "x": 1})


def test_the_value_is_a_structured_cloudevent() -> None:
    event = json.loads(encode_event("/s", Asset("hourly", uri="x://h"), id="1", partition_key="k"))
    assert event == {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "dev.tidegate.asset.updated.v1",
        "datacontenttype": "application/json",
        "data": {"asset": "hourly", "partition_key": "k"},
    }


def test_an_event_names_its_aliases_and_may_name_its_asset_by_uri() -> None:
    def data(asset: Any, **fields: Any) -> Any:
        return json.loads(encode_event("/s", asset, id="1", **fields))["data"]

    assert data("a", aliases=[AssetAlias("x"), "y", "x"]) == {"asset": "a", "aliases": ["x", "y"]}
    assert data(Asset.ref(name="a")) == {"asset": "a"}
    assert data(Asset.ref(uri="s3://bucket/a")) == {"asset_uri": "s3://bucket/a"}
    for wrong in ("x", None, [5], [Asset("x")]):
        with pytest.raises(InvalidEventError, match="aliases must be a list of AssetAlias or names"):
            data("a", aliases=wrong)


def test_lines_of_a_file_name_assets_by_name_or_by_uri() -> None:
    def read(*lines: str, asset: str | None = None) -> list[dict[str, Any]]:
        return [fields for _, fields in _from_lines(StringIO("\n".join(lines)), asset)]

    assert read('{"asset": "a", "aliases": ["x"]}', '{"aliases": null}', asset="b") == [
        {"asset": "a", "aliases": ["x"]},
        {"asset": "b"},
    ]
    assert read('{"asset_uri": "s3://bucket/a"}', asset="b") == [
        {"asset": None, "asset_uri": "s3://bucket/a"}
    ]
    for line in ('{"asset": "a", "asset_uri": "s3://bucket/a"}', '{"asset_uri": 5}'):
        with pytest.raises(TidegateError, match="line 1: field 'asset_uri'"):
            read(line)
    with pytest.raises(TidegateError, match="line 1: field 'asset' must be"):
        read("{}")


async def test_a_producer_that_is_not_running_says_how_to_use_it() -> None:
    with pytest.raises(ProducerStateError, match="async with"):
        await AssetEventProducer("127.0.0.1:1", "/s").send("a")


async def test_an_address_without_kafka_is_named() -> None:
    with pytest.raises(KafkaUnreachableError, match=r"127\.0\.0\.1:1"):
        async with AssetEventProducer("127.0.0.1:1", "/s"):
            pass


def test_the_sdk_needs_only_the_base_install() -> None:
    program = (
        "import sys; refused = {'prometheus_client', 'structlog', 'pydantic_settings', 'redis', 'jinja2', 'typer',"
        " 'rich', 'aiohttp', 'msgpack', 'uvloop', 'faust', 'fastapi'};"
        " sys.modules.update(dict.fromkeys(refused));"
        " import tidegate.sdk; print(tidegate.sdk.Worker.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("Worker", "")
