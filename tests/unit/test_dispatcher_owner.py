"""The dispatcher's start, as far as it is no I/O."""

from aiokafka import TopicPartition

from tidegate.contracts.topics import RUN_EVENTS, RUN_REQUESTS
from tidegate.runtime.positions import Gap, Position
from tidegate_dispatcher.owner import leave_unread


def test_a_gap_in_runs_stops_its_partition_and_hides_no_gap_that_is_told_already() -> None:
    requests, events, other = (
        TopicPartition(*place) for place in ((RUN_REQUESTS, 1), (RUN_EVENTS, 1), (RUN_EVENTS, 0))
    )
    own = Gap("records 3 to 8 are gone", 9)
    places: dict[TopicPartition, int | Gap] = {requests: own, events: 5, other: 6}
    leave_unread(places, 1, Gap("runs/1 was created again", 0, recreated=True), {events: Position(5)})
    assert places == {requests: own, events: Gap("runs/1 was created again", 5), other: 6}
