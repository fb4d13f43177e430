"""Events through ingest's own decisions, with a dict in place of Redis."""

from collections.abc import Iterable

from aiokafka import ConsumerRecord, TopicPartition

from tests.fuzz.events import Sent
from tests.fuzz.fates import Fates, Verdict, judge
from tidegate.contracts.topics import ACCEPTED, ASSET_EVENTS, REJECTED
from tidegate.definitions import Asset
from tidegate_ingest.decide import Candidate, KnownAssets, decide, read_record

POLL = 500
_SKEW_LIMIT_MS = 300_000
_TP = TopicPartition(ASSET_EVENTS, 0)


def decided(events: Iterable[Sent]) -> Verdict:
    """What became of events, polled by some hundred; whatever ingest raises is raised."""
    known = KnownAssets({name: Asset(name) for name in ("hourly", "daily")})
    sent = dict(enumerate(events))
    marks: dict[str, str] = {}
    fates = Fates()
    records = [
        ConsumerRecord(
            *(
                _TP.topic,
                _TP.partition,
                offset,
                1_000 + offset,
                1,
                each.key,
                each.value,
                0,
                0,
                len(each.value or b""),
            ),
            each.headers,
        )
        for offset, each in sent.items()
    ]
    for begin in range(0, len(records), POLL):
        polled = records[begin : begin + POLL]
        read = [read_record(_TP, "asset-events/0", record, known, 7) for record in polled]
        found = [each for each in read if isinstance(each, Candidate)]
        before = {each.identity: marks[each.identity] for each in found if each.identity in marks}
        for each in found:
            marks.setdefault(each.identity, each.mark)
        out = decide(read, before, known, 3, _SKEW_LIMIT_MS)
        for record in out.records:
            assert record.value is not None
            if record.topic == ACCEPTED:
                fates.take_accepted(record.value)
            elif record.topic == REJECTED:
                fates.take_letter(record.value)
        for entry in out.audit:
            fates.take_audit(entry.to_bytes())
    return judge({(0, offset): each for offset, each in sent.items()}, fates)
