"""What one poll gives of what was fetched."""

from aiokafka import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.consumer import Batch, parted


def record(offset: int, size: int) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, 0, b"k", b"x" * size, None, 1, size, ())


def size_of(records: list[ConsumerRecord]) -> int:
    return sum(len(each.key) + len(each.value) for each in records)


@given(
    st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 300), min_size=1, max_size=12), max_size=4),
    st.integers(1, 1_000),
)
def test_parts_are_small_hold_something_of_every_partition_and_lose_nothing(
    sizes: dict[int, list[int]], most_bytes: int
) -> None:
    whole: Batch = {
        TopicPartition("t", number): [record(offset, size) for offset, size in enumerate(of_one)]
        for number, of_one in sizes.items()
    }
    together: Batch = {tp: [] for tp in whole}
    left = whole
    while left:
        part, rest = parted(left, most_bytes)
        assert part.keys() == left.keys()
        assert rest.keys() <= left.keys()
        share = most_bytes // len(left)
        assert all(len(records) == 1 or size_of(records) <= share for records in part.values())
        for tp, records in part.items():
            assert records
            together[tp] += records
        left = rest
    assert together == whole


def test_a_batch_that_fits_is_whole() -> None:
    whole: Batch = {TopicPartition("t", 0): [record(0, 400), record(1, 400)]}
    assert parted(whole, 1_000) == (whole, {})
    assert parted({}, 1_000) == ({}, {})
