"""What is sent stays within what Kafka takes: batches by topic, requests by broker."""

from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.topics import MIB, PACK_BYTES
from tidegate.runtime.sending import LIMITS, SLICE_BYTES, _slices


def test_a_batch_of_small_records_fits_into_every_topic_of_ours() -> None:
    assert LIMITS["max_batch_size"] <= PACK_BYTES < MIB


def test_a_request_never_holds_more_than_a_broker_takes_and_order_is_kept() -> None:
    records = [Outgoing("t", n, None, bytes(4 * MIB)) for n in range(32)]
    slices = list(_slices(records))
    assert [each for some in slices for each in some] == records
    assert all(sum(len(each.value or b"") for each in some) <= SLICE_BYTES for some in slices)
    assert len(slices) > 1
