"""The audit log: every kind is explained to people, and entries are counted once Kafka has them."""

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.placement import partition_of
from tidegate.core.audit import AuditKind
from tidegate.runtime.producer import audit_record, audit_records, count_sent

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([a-z-]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def entry(**fields: str) -> AuditEntry:
    return AuditEntry(id="1", kind=AuditKind.CROSS_TEAM, service="mapper", at=5, message="m", **fields)


def counted(kind: AuditKind, service: str) -> float:
    labels = {"kind": kind.value, "service": service}
    return REGISTRY.get_sample_value("tidegate_audit_entries_total", labels) or 0


def test_the_table_of_the_docs_explains_every_kind_once_and_no_other() -> None:
    rows = ROW.findall((ROOT / "docs" / "audit.md").read_text())
    assert [kind for kind, *_ in rows] == [kind.value for kind in AuditKind]
    assert all(cell.strip() for row in rows for cell in row)


def test_an_entry_is_counted_by_kind_and_service_once_it_is_acknowledged() -> None:
    before = counted(AuditKind.CROSS_TEAM, "mapper")
    records = audit_records([entry(), entry()], 3)
    assert counted(AuditKind.CROSS_TEAM, "mapper") == before, "written out is not acknowledged"
    count_sent(records)
    assert counted(AuditKind.CROSS_TEAM, "mapper") == before + 2


@pytest.mark.parametrize(
    ("fields", "key"),
    [({"job": "j", "asset": "a"}, "j"), ({"asset": "a"}, "a"), ({}, "mapper")],
    ids=["job", "asset", "neither"],
)
def test_an_entry_is_keyed_by_its_job_or_else_its_asset(fields: dict[str, str], key: str) -> None:
    record = audit_record(entry(**fields), 3)
    assert (record.key, record.partition) == (key.encode(), partition_of(key, 3))
    assert audit_record(entry(**fields)).partition is None
