"""What stored events are to a job that they came before (rule D7)."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate import Asset, IdentityMapper, Job, PartitionedAssetTimetable, StartOfDayMapper
from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.contributions import ContributionBatch, read_contributions_record
from tidegate.contracts.definitions import Installation
from tidegate.contracts.placement import contributions_partition, shard_of
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Condition
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.mapping import plan
from tidegate.runtime.replaying import Made, Replay, Stored, records_of

A, B = Asset("a"), Asset("b")
CREATED = 7
COUNTS = Installation(partitions=2, shards=4)


def replay(
    assets: Condition = A, mapper: IdentityMapper | StartOfDayMapper | None = None, **more: int
) -> Replay:
    schedule = PartitionedAssetTimetable(assets, mapper or IdentityMapper())
    defined = DefinedJob(Job("late", schedule), "i1", 9, created=CREATED)
    return Replay(defined, plan([defined]), **more)


def stored(
    offset: int,
    source_offset: int,
    key: str | None = "k",
    *,
    stamp: int = CREATED,
    at: int = 1_000,
    asset: str = "a",
    log: str = "accepted-events/1",
) -> Stored:
    event = AcceptedEvent(
        source_offset, stamp, at, "src", f"e{source_offset}", asset, key, None, {"n": source_offset}, None
    )
    return Stored(log, offset, "asset-events/0", event)


def places(made: list[Made]) -> list[tuple[str, int, int]]:
    return [each[:3] for each in made]


def test_only_events_that_came_before_the_job_are_taken_which_their_stamp_tells() -> None:
    doing = replay()
    taken = [bool(doing.take(stored(1, n, stamp=stamp))) for n, stamp in enumerate((0, 6, 7, 8, 20))]
    assert taken == [True, True, True, False, False]  # a stamp of 8 lets in by what lies below: the job at 7
    assert (doing.events, doing.contributions, doing.audit) == (3, 3, [])


def test_events_received_before_the_time_asked_for_are_left_out() -> None:
    doing = replay(since_ms=1_000)
    assert [bool(doing.take(stored(1, n, at=at))) for n, at in enumerate((999, 1_000, 1_001))] == [
        False,
        True,
        True,
    ]


def test_repeats_on_the_log_are_no_input() -> None:
    doing = replay()
    assert len(doing.take(stored(1, 5))) == 1
    assert doing.take(stored(2, 5)) == []  # a restarted ingest wrote it again
    assert doing.take(stored(3, 4)) == []
    assert len(doing.take(stored(4, 6))) == 1
    assert len(doing.take(stored(1, 5, log="accepted-events/2"))) == 1


def test_what_does_not_count_is_told_of_and_what_is_about_other_assets_is_not() -> None:
    doing = replay(mapper=StartOfDayMapper())
    assert doing.take(stored(3, 0, "no day")) == []
    assert doing.take(stored(3, 1, None)) == []
    assert doing.take(stored(3, 2, "no day", asset="b")) == []
    assert doing.events == 0
    assert [(each.kind, each.job, each.event_id, each.position) for each in doing.audit] == [
        (AuditKind.MAPPING_FAILED, "late", "e0", "accepted-events/1@3"),
        (AuditKind.NO_PARTITION_KEY, "late", "e1", "accepted-events/1@3"),
    ]


def test_coordinates_are_those_of_the_event_under_a_name_of_the_replays_own() -> None:
    doing = replay()
    made = [*doing.take(stored(4, 0)), *doing.take(stored(4, 1)), *doing.take(stored(6, 2))]
    source = "replay/late/i1/9/accepted-events/1"
    assert places(made) == [(source, 4, 0), (source, 4, 1), (source, 6, 0)]
    (other,) = replay(since_ms=500).take(stored(4, 0))
    assert other.source == "replay/late/i1/9@500/accepted-events/1"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from("abcd")), max_size=30))
def test_a_replay_that_is_done_again_gives_the_same_and_coordinates_rise_on_every_partition(
    given_events: list[tuple[int, int, str]],
) -> None:
    offsets = {0: 0, 1: 0}
    events = []
    for number, (more, size, key) in enumerate(given_events):
        log = number % 2
        offsets[log] += more
        for n in range(size):
            each = stored(offsets[log], number * 10 + n, f"{key}{n}", log=f"accepted-events/{log}")
            events.append(each)
    first, again = replay(), replay()
    made = [one for each in events for one in first.take(each)]
    assert made == [one for each in events for one in again.take(each)]
    assert len(made) == first.events == len(events)
    highs: dict[tuple[int | None, str], tuple[int, int]] = {}
    found = []
    for record in records_of(made, COUNTS):
        read = read_contributions_record(record.value or b"")
        assert isinstance(read, ContributionBatch)
        assert read.is_replayed
        for entry in read.entries:
            assert contributions_partition(shard_of("late", entry.key, 4), 2) == record.partition
            place = (record.partition, read.source)
            assert (entry.offset, entry.ordinal) > highs.get(place, (-1, -1))
            highs[place] = (entry.offset, entry.ordinal)
            found.append(read.events[entry.event].id)
    assert sorted(found) == sorted(each.event.id for each in events)
