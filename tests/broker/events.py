"""What tests of ingest and of the mapper share: writing asset events, and reading the audit log."""

import json
from typing import Any

from tests.broker.conftest import Installed, read_all, send
from tidegate.contracts.audit import AuditEntry
from tidegate.contracts.events import EVENT_TYPE
from tidegate.contracts.topics import ASSET_EVENTS, AUDIT
from tidegate.core.audit import AuditKind

KEY = "2010-03-14T01:00:00"


def event(id: str, asset: str | None = "hourly", **data: Any) -> bytes:
    data = {"asset": asset, "partition_key": KEY} | data
    return json.dumps(
        {"specversion": "1.0", "id": id, "source": "/tests", "type": EVENT_TYPE, "data": data}
    ).encode()


async def give(
    at: Installed, *values: bytes | None, partition: int = 0, topic: str = ASSET_EVENTS
) -> list[int]:
    return await send(at.kafka, [(topic, partition, b"hourly", value) for value in values])


async def audit(at: Installed, *kinds: AuditKind) -> list[AuditEntry]:
    """The entries by distinct id, of some kinds or of all."""
    entries = [AuditEntry.from_bytes(record.value) for record in await read_all(at.kafka, AUDIT)]
    return list({each.id: each for each in entries if not kinds or each.kind in kinds}.values())
