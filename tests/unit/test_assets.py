"""Assets: names, URIs, references, aliases, `@asset`, and what runs say about them."""

import json
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dateutil.relativedelta import relativedelta

from tidegate import (
    Asset,
    AssetAccessControl,
    AssetTriggeredTimetable,
    ContinuousTimetable,
    CronTriggerTimetable,
    DefinitionError,
    DefinitionTypeError,
    DeltaTriggerTimetable,
    Job,
    Metadata,
    OnceTimetable,
    PartitionedAssetTimetable,
    StartOfDayMapper,
    StartOfHourMapper,
    asset,
    load_definitions,
)
from tidegate.core.plain import from_plain, plain
from tidegate.definitions import AssetNameRef, AssetUriRef, OutletUpdate, resolve_aliases
from tidegate.definitions.decorators import AssetDefinition
from tidegate.definitions.uri_handlers import use_uri_handlers
from tidegate.definitions.uris import uri_handlers
from tidegate.sdk.errors import OutletTypeError
from tidegate.sdk.outlets import OutletEvents, key_written_back


def test_name_and_uri_stand_in_for_each_other() -> None:
    assert Asset("orders").uri == "orders"
    assert Asset(uri="s3://bucket/orders").name == "s3://bucket/orders"
    with pytest.raises(DefinitionTypeError, match="a name or a uri"):
        Asset()


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("S3A://Bucket/Key", "s3a://Bucket/Key"),
        ("s3://bucket/key/", "s3://bucket/key"),
        ("s3://bucket", "s3://bucket/"),
        ("s3://bucket/key?b=2&a=1#part", "s3://bucket/key?a=1&b=2"),
        ("X-Mine://Foo/", "X-Mine://Foo/"),
        ("file:/data/x", "file:///data/x"),
        ("//example/asset", "//example/asset"),
        ("path/to/thing", "path/to/thing"),
    ],
)
def test_a_uri_has_one_form(given: str, normal: str) -> None:
    assert Asset("a", given).uri == normal
    assert Asset("a", normal).uri == normal


@pytest.mark.parametrize(
    "uri",
    [
        "",
        " ",
        "airflow://x",
        "AIRFLOW:x",
        "s3://",
        "s3:key",
        "s3://b/é",
        "c:\\temp\\x",
        "x" * 1501,
        "s3://[b/x",
        "a\nb",
    ],
)
def test_uris_that_break_the_rules_are_refused(uri: str) -> None:
    with pytest.raises(DefinitionError):
        Asset("a", uri)


@pytest.mark.parametrize(
    "name", ["", " ", "self", "context", "outlet_events", "airflow://x", "a\tb", "n" * 1501, 5]
)
def test_names_that_break_the_rules_are_refused(name: Any) -> None:
    with pytest.raises(DefinitionError):
        Asset(name)


def test_a_password_is_dropped_from_uri_and_name_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="credentials") as caught:
        made = Asset(uri="postgres://user:secret@host/db")
    assert (made.name, made.uri) == ("postgres://host/db", "postgres://host/db")
    assert "secret" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Asset(uri="s3://user@bucket/key").uri == "s3://user@bucket/key"


def test_well_known_schemes_are_normalised_on_request() -> None:
    before = dict(uri_handlers)
    try:
        use_uri_handlers()
        assert Asset("a", "postgresql://host/db/schema/table").uri == "postgres://host:5432/db/schema/table"
        with pytest.raises(DefinitionError, match="no postgres URI"):
            Asset("a", "postgres://host")
    finally:
        uri_handlers.clear()
        uri_handlers.update(before)


def test_only_name_and_uri_are_identity() -> None:
    one = Asset("a", "s3://b/k", group="g", extra={"x": 1}, access_control=AssetAccessControl(["team"]))
    assert one == Asset("a", "s3://b/k")
    assert hash(one) == hash(Asset("a", "s3://b/k"))
    assert one != Asset("a", "s3://b/other")


def test_extra_comes_back_from_plain_data_as_it_was() -> None:
    extra = {"seconds": 5, "list": [1, [2]], "type": "OnceTimetable", "nested": {"instant": "x"}}
    made = Asset("a", extra=extra, access_control=AssetAccessControl(["t"], ["u"], False))
    again = from_plain(json.loads(json.dumps(plain(made))))
    assert (again.extra, again.access_control) == (extra, made.access_control)
    with pytest.raises(DefinitionError, match="no field 'colour'"):
        from_plain({"type": "Asset", "name": "a", "colour": "blue"})


# ---- references ----


def test_a_reference_names_an_asset_by_name_or_by_uri() -> None:
    made = Asset("a", "s3://Bucket/key")
    assert isinstance(Asset.ref(name="a"), AssetNameRef)
    assert isinstance(Asset.ref(uri="S3://Bucket/key/"), AssetUriRef)
    assert Asset.ref(name="a").same_asset(made)
    assert made.same_asset(Asset.ref(uri="S3://Bucket/key/"))
    assert not Asset.ref(name="b").same_asset(made)
    for arguments in ({}, {"name": ""}, {"name": "a", "uri": "x-a://a"}):
        with pytest.raises(DefinitionTypeError):
            Asset.ref(**arguments)


def test_a_mapper_may_be_attached_by_any_way_of_naming_the_asset() -> None:
    hourly, daily = StartOfHourMapper(), StartOfDayMapper()
    made = Asset("a", "s3://b/k")
    for named in (made, Asset.ref(name="a"), Asset.ref(uri="s3://b/k")):
        schedule = PartitionedAssetTimetable(made & Asset("b"), hourly, {named: daily})
        assert schedule.mapper_for(made) == daily
        assert schedule.mapper_for(Asset("b")) == hourly
        assert from_plain(plain(schedule)) == schedule
    with pytest.raises(DefinitionError, match="partition_mapper_config names"):
        PartitionedAssetTimetable(made, hourly, {Asset.ref(name="c"): daily})


# ---- aliases ----


def test_the_same_asset_and_extra_through_several_aliases_is_one_event() -> None:
    resolved = resolve_aliases(
        [
            OutletUpdate("a", "one", "k", {"x": 1, "y": {"1": 2, "b": 3}}),
            OutletUpdate("a", "two", "k", {"y": {"b": 3, 1: 2}, "x": 1}),
            OutletUpdate("a", "two", "k", {"x": 2}),
            OutletUpdate("a", "two", None, {"x": 2}),
            OutletUpdate("a", "one", "k", {"x": 1, "y": {"1": 2, "b": 3}}),
            OutletUpdate("a", None, "k", {"x": 2}),
            OutletUpdate("b", None),
        ]
    )
    assert [(each.asset, each.partition_key, dict(each.extra), each.aliases) for each in resolved] == [
        ("a", "k", {"x": 1, "y": {"1": 2, "b": 3}}, ("one", "two")),
        ("a", "k", {"x": 2}, ("two",)),
        ("a", None, {"x": 2}, ("two",)),
        ("b", None, {}, ()),
    ]


# ---- @asset ----


def test_a_function_is_an_asset_and_a_job() -> None:
    @asset(schedule="@daily", uri="s3://bucket/sales", extra={"owner": "me"})
    def sales(self: Asset, context: Any, orders: Asset) -> None:
        """Sales of a day."""

    assert sales == Asset("sales", "s3://bucket/sales")
    assert Asset("sales", "s3://bucket/sales") == sales
    assert sales.job == Job(
        "sales",
        CronTriggerTimetable("@daily"),
        inlets=[Asset.ref(name="orders")],
        outlets=[Asset("sales", "s3://bucket/sales")],
    )
    assert sales.job.description == "Sales of a day."
    assert plain(sales) == plain(Asset("sales", "s3://bucket/sales", extra={"owner": "me"}))
    condition = sales & Asset("b")
    assert from_plain(plain(condition)) == condition


def test_a_function_may_make_several_assets() -> None:
    @asset.multi(schedule=Asset("raw"), outlets=[Asset("a"), Asset("b")], dag_id="split")
    def divide(raw: Asset) -> None: ...

    assert divide.job == Job(
        "split",
        AssetTriggeredTimetable(Asset("raw")),
        inlets=[Asset.ref(name="raw")],
        outlets=[Asset("a"), Asset("b")],
    )
    with pytest.raises(DefinitionError, match="at least one"):
        asset.multi(schedule=None, outlets=[])


def test_parameters_that_name_no_asset_are_refused() -> None:
    with pytest.raises(DefinitionTypeError, match="cannot be an asset"):

        @asset(schedule=None)
        def anything(*args: Any) -> None: ...


def test_jobs_of_functions_are_found_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.py"
    path.write_text(
        "from tidegate import Asset, asset\n"
        "@asset(schedule='@daily')\ndef one(): ...\n"
        "@asset.multi(schedule=one, outlets=[Asset('x')])\ndef two(): ...\n"
    )
    found = load_definitions(path)
    assert [job.id for job in found.jobs] == ["one", "two"]
    assert [type(each) for each in found.assets] == [AssetDefinition]


# ---- schedules ----


@pytest.mark.parametrize(
    ("schedule", "timetable"),
    [
        (None, None),
        ("@once", OnceTimetable()),
        ("@continuous", ContinuousTimetable()),
        ("30 2 * * *", CronTriggerTimetable("30 2 * * *")),
        (timedelta(hours=1), DeltaTriggerTimetable(timedelta(hours=1))),
        (relativedelta(months=1), DeltaTriggerTimetable(relativedelta(months=1))),
        (Asset("a") | Asset("b"), AssetTriggeredTimetable(Asset("a") | Asset("b"))),
        ([Asset("a"), Asset("b")], AssetTriggeredTimetable(Asset("a") & Asset("b"))),
    ],
)
def test_short_forms_of_schedules(schedule: Any, timetable: Any) -> None:
    job = Job("job", schedule)
    assert job.schedule == timetable
    assert from_plain(plain(job)) == job


def test_schedules_that_are_none_are_refused() -> None:
    with pytest.raises(DefinitionTypeError, match=r"Job\.schedule"):
        Job("job", 5)
    with pytest.raises(DefinitionError, match="no offset"):
        Job("job", start_date=datetime(2026, 3, 10))


def test_dates_of_a_job_come_back_from_plain_data() -> None:
    job = Job("job", "@daily", start_date=datetime(2026, 3, 10, tzinfo=UTC), catchup=True)
    assert from_plain(json.loads(json.dumps(plain(job)))) == job


# ---- what a run says ----


def test_yielded_metadata_joins_the_extra_of_its_asset() -> None:
    outlets = OutletEvents("job", ["a"])
    outlets["a"].extra = {"x": 1, "y": 1}
    outlets.record(Metadata(Asset("a"), {"y": 2}))
    assert outlets["a"].extra == {"x": 1, "y": 2}
    with pytest.raises(DefinitionTypeError):
        Metadata("a")  # type: ignore[arg-type]


def test_one_added_key_is_written_back_to_a_run_without_one() -> None:
    outlets = OutletEvents("job", ["a", "b"])
    assert key_written_back(outlets, None) is None
    outlets["a"].add_partitions(["us", "us"])
    outlets["b"].add_partitions("us")
    assert key_written_back(outlets, None) == "us"
    assert key_written_back(outlets, "own") == "own"
    outlets["b"].add_partitions("eu")
    assert key_written_back(outlets, None) is None


@pytest.mark.parametrize("keys", [None, 5, [None], ["us", 5], {"us": 1}, b"us"])
def test_keys_that_are_no_texts_are_refused_and_add_nothing(keys: Any) -> None:
    outlets = OutletEvents("job", ["a"])
    with pytest.raises(OutletTypeError):
        outlets["a"].add_partitions(keys)
    assert dict(outlets["a"].partitions) == {}
