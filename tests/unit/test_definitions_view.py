"""The view of definitions answers for any offset of their log (rule D24)."""

from typing import Any

from aiokafka import ConsumerRecord

from tidegate import Asset, Job, PartitionedAssetTimetable
from tidegate.contracts.definitions import DefinitionRecord
from tidegate.contracts.topics import DEFINITIONS
from tidegate.core.plain import plain
from tidegate.runtime.definitions_view import DefinitionsView


def record(offset: int, key: str, value: bytes | None) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(
        topic=DEFINITIONS,
        partition=0,
        offset=offset,
        timestamp=0,
        timestamp_type=1,
        key=key.encode(),
        value=value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
        headers=(),
    )


def job_record(offset: int, asset: str, incarnation: str = "a1") -> ConsumerRecord[bytes, bytes]:
    job = Job("copy", schedule=PartitionedAssetTimetable(assets=Asset(asset)))
    return record(offset, "job:copy", written(plain(job), incarnation))


def written(body: dict[str, Any], incarnation: str = "a1") -> bytes:
    return DefinitionRecord(kind="job", id="copy", incarnation=incarnation, body=body).to_bytes()


def assets_at(view: DefinitionsView, offset: int) -> list[str]:
    return [leaf.name for each in view.jobs_at(offset).values() for leaf in each.job.schedule.assets_in_order]  # type: ignore[union-attr]


def test_a_job_is_what_the_last_record_below_the_offset_says() -> None:
    view = DefinitionsView()
    view.apply(job_record(3, "old"))
    view.apply(job_record(7, "new"))
    view.apply(record(9, "job:copy", None))
    assert [assets_at(view, offset) for offset in (3, 4, 7, 8, 9, 10)] == [
        [],
        ["old"],
        ["old"],
        ["new"],
        ["new"],
        [],
    ]
    assert view.job("copy") is None
    assert view.job_at_revision("copy", 3) is not None


def test_a_definition_that_cannot_be_read_removes_only_its_own_job() -> None:
    view = DefinitionsView()
    view.apply(job_record(0, "a"))
    view.apply(
        record(1, "job:other", written({"type": "Job", "id": "other", "schedule": {"type": "NoSuch"}}))
    )
    view.apply(record(2, "job:third", b"not json"))
    assert list(view.jobs()) == ["copy"]
    assert view.next_offset == 3


def test_every_asset_that_a_job_names_is_known() -> None:
    view = DefinitionsView()
    job = Job(
        "copy", schedule=PartitionedAssetTimetable(assets=Asset("a")), outlets=[Asset("b", "s3://bucket/b")]
    )
    view.apply(record(0, "job:copy", written(plain(job))))
    assert view.known_assets()["b"].uri == "s3://bucket/b"
    assert set(view.known_assets()) == {"a", "b"}
