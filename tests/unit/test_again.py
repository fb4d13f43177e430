"""What waited under an older definition, mapped again under the one that changed it."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import (
    Asset,
    AssetAccessControl,
    AssetAlias,
    DayWindow,
    FanOutMapper,
    FixedKeyMapper,
    IdentityMapper,
    Job,
    PartitionedAssetTimetable,
    PartitionMapper,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    WeekWindow,
)
from tidegate.contracts.contributions import JobRef
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Condition
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.mapping import Plan, plan
from tidegate_rollup.again import Waiting, map_again, sendable, waiting
from tidegate_rollup.outbox import OutboxItem, outbox_items

A, B = Asset("a"), Asset("b")
OLD = JobRef("j", "i1", 7, (), ("a", "b"), ((0, 1),))
AT = 1_700_000_000_000


def kept(event_id: str, key: str = "k", at: int = AT, *more: Any) -> str:
    return json.dumps(["d" * 16, key, event_id, "s", at, None, None, {"n": 1}, *more])[1:-1]


def moved(
    fields: dict[str, str], key: str = "k", place: str = "40.3.2.5", revision: int = 9
) -> Waiting | None:
    (each,) = outbox_items([place, f'{{"revision":{revision},"at":{AT}}}\nj/i1/{key}'])
    assert each.moved_round == f"j/i1/{key}"
    return waiting(each, [part for pair in fields.items() for part in pair])


def waiting_round(*events: tuple[str, str], key: str = "k") -> Waiting:
    found = moved({"job": json.dumps(OLD), "opened": "1.0.5", "count:0": "1", **dict(events)}, key)
    assert found is not None
    return found


def changed(
    assets: Condition, mapper: PartitionMapper | None = None, incarnation: str = "i1", team: str | None = None
) -> tuple[DefinedJob, Plan]:
    job = Job("j", PartitionedAssetTimetable(assets, mapper or IdentityMapper()), team=team)
    defined = DefinedJob(job, incarnation, 9)
    return defined, plan([defined], {"a": A, "b": B})


def test_a_round_gives_every_event_once_oldest_first_with_the_name_of_its_asset() -> None:
    found = waiting_round(
        ("m:0:0", kept("late", at=AT + 2)),
        ("m:1:0", kept("early", "k2", AT + 1, "named otherwise", None, ["out"])),
        ('x:1:0:"z"', kept("late", "k", AT + 2, "a")),
        ("r:abc", ""),
    )
    assert [(asset, event.id) for asset, event in found.events] == [
        ("named otherwise", "early"),
        ("a", "late"),
    ]
    assert (*found.job[:3], found.key, found.revision, found.at) == ("j", "i1", 7, "k", 9, AT)
    assert found.events[0][1].aliases == ["out"]


def test_a_round_that_is_gone_holds_nothing() -> None:
    assert moved({}) is None


def test_a_contribution_of_an_older_revision_waits_alone() -> None:
    payload = {
        "job": OLD,
        "key": "k",
        "at": AT,
        "event": json.loads(f"[{kept('e1')}]"),
        "asset": 1,
        "revision": 9,
    }
    (each,) = outbox_items(["40.3.2.0", json.dumps(payload)])
    found = waiting(each, ())
    assert found is not None
    assert [(asset, event.id) for asset, event in found.events] == [("b", "e1")]
    assert each.moved_round is None
    _, (note,) = map_again(found, *changed(B), 1)
    assert (note.kind, note.event_id, note.event_source) == (AuditKind.DEFINITION_CHANGED, "e1", "s")


class _Raises(IdentityMapper):
    def to_partition_date(self, downstream_key: str) -> None:
        raise ValueError("no date")


def test_what_a_mapper_says_of_an_event_that_still_counts_is_audited_too() -> None:
    mapped, (_, entry) = map_again(waiting_round(("m:0:0", kept("e1"))), *changed(A, _Raises()), 1)
    assert len(mapped) == 1
    assert (entry.kind, entry.event_id) == (AuditKind.PARTITION_DATE_FAILED, "e1")


def test_events_count_where_the_new_definition_has_them() -> None:
    found = waiting_round(
        ("m:0:0", kept("e1", "2010-03-14T01:00:00")), ("m:1:0", kept("e2", "2010-03-14T02:00:00"))
    )
    mapped, (note,) = map_again(found, *changed(A & B, RollupMapper(StartOfDayMapper(), DayWindow())), 1)
    assert (note.kind, note.job, note.partition_key) == (AuditKind.DEFINITION_CHANGED, "j", "k")
    assert note.details == {"from_revision": 7, "revision": 9, "event_count": 2, "keys": ["2010-03-14"]}
    assert "2 of 2 events count now, under 1 keys" in note.message
    assert [(each.event.id, each.asset, *each.target.placement[:2]) for *_, each in mapped] == [
        ("e1", 0, "2010-03-14", 1),
        ("e2", 1, "2010-03-14", 2),
    ]
    assert {each.job.revision for *_, each in mapped} == {9}


def test_an_event_that_counts_nowhere_is_closed_with_the_reason() -> None:
    found = waiting_round(("m:0:0", kept("e1")), ("m:1:0", kept("e2")))
    mapped, (note, entry) = map_again(found, *changed(A), 1)
    assert "1 of 2 events count now" in note.message
    assert [each.event.id for *_, each in mapped] == ["e1"]
    assert (entry.kind, entry.event_id, entry.asset, entry.partition_key) == (
        AuditKind.ROUND_CLOSED,
        "e2",
        "b",
        "k",
    )
    assert "no longer waits for asset 'b'" in entry.message
    assert entry.position == "contributions/1@40"
    segments = RollupMapper(FixedKeyMapper("all"), SegmentWindow(["x"]))
    _, (_, *entries) = map_again(found, *changed(A & B, segments), 1)
    assert len({entry.id for entry in entries}) == 2
    assert all("'k'" in entry.message for entry in entries)


def test_rounds_that_one_change_closes_in_several_shards_are_told_apart() -> None:
    """Each shard numbers its own rounds from 1; all of them have the place of the one record that changed the job.

    An event may wait in several of them.
    """
    found = [waiting_round(("m:0:0", kept("e1")), key=key) for key in ("k", "l")]
    entries = [entry for each in found for entry in map_again(each, None, plan([]), 1)[1]]
    assert [(entry.event_id, entry.partition_key) for entry in entries] == [
        (None, "k"),
        ("e1", "k"),
        (None, "l"),
        ("e1", "l"),
    ]
    assert len({entry.id for entry in entries}) == 4
    again = map_again(found[0], None, plan([]), 1)[1]
    assert [entry.id for entry in again] == [entry.id for entry in entries[:2]]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "created again"])
def test_nothing_of_a_deleted_job_counts_for_the_one_that_is_created_again(is_deleted: bool) -> None:
    found = waiting_round(("m:0:0", kept("e1")))
    defined, ways = changed(A, incarnation="i2")
    mapped, (note, entry) = map_again(found, None if is_deleted else defined, ways, 0)
    assert mapped == []
    assert (note.kind, entry.kind) == (AuditKind.DEFINITION_CHANGED, AuditKind.ROUND_CLOSED)
    assert "the job was deleted" in note.message
    assert "the job was deleted" in entry.message


def test_aliases_and_teams_still_decide_who_gets_an_event() -> None:
    event = ("m:0:0", kept("e1", "k", AT, None, "blue", ["out"]))
    mapped, _ = map_again(waiting_round(event), *changed(AssetAlias("out")), 0)
    assert [(each.event.id, each.event.team, each.event.aliases) for *_, each in mapped] == [
        ("e1", "blue", ("out",))
    ]
    own = Asset("a", access_control=AssetAccessControl([]))
    job = DefinedJob(Job("j", PartitionedAssetTimetable(own), team="red"), "i1", 9)
    mapped, (_, entry) = map_again(waiting_round(event), job, plan([job], {"a": own}, multi_team=True), 0)
    assert mapped == []
    assert "blue" in entry.message


def test_entries_of_rounds_that_one_record_moves_in_two_shards_have_ids_of_their_own() -> None:
    fields = (("m:0:0", kept("e1", "k1")), ("m:1:0", kept("e2", "k2")))
    _, some = map_again(waiting_round(*fields, key="k1"), None, plan([]), 1)
    _, others = map_again(waiting_round(*fields, key="k2"), None, plan([]), 1)
    assert len({entry.id for entry in (*some, *others)}) == len((*some, *others)) == 6


ordinals = st.integers(0, 2**14 - 1)


@given(st.lists(st.tuples(st.integers(0, 3), ordinals, st.integers(0, 3_000)), unique=True, max_size=8))
def test_coordinates_rise_with_the_places_in_the_outbox_and_are_exact_in_lua(
    drawn: list[tuple[int, int, int]],
) -> None:
    places = sorted(drawn)
    fields = {"job": json.dumps(OLD), "m:0:0": kept("e1", "2010-03-14"), "m:0:1": kept("e2", "2010-03-14")}
    ways = changed(A, FanOutMapper(StartOfDayMapper(), WeekWindow()))
    coordinates = []
    for offset, ordinal, number in places:
        found = moved(fields, place=f"{offset}.{ordinal}.2.{number + 1}")
        assert found is not None
        coordinates += [(one, other) for one, other, _ in map_again(found, *ways, 0)[0]]
    assert all(one < other for one, other in pairwise(coordinates))
    assert all(ordinal < 2**53 for _, ordinal in coordinates)


def test_large_rounds_go_out_a_few_at_a_time_and_in_order() -> None:
    def item(number: int, is_round: bool) -> OutboxItem:
        payload = {"revision": 9} if is_round else {"generation": 1}
        return OutboxItem(number, 0, f"{number}.0", payload, ["j/i1/k"] if is_round else [])

    outbox = [item(n, is_round) for n, is_round in enumerate([False, True, False, True, False, True])]
    assert list(sendable(outbox, 2, lambda *_: True)) == outbox[:5]
    assert list(sendable(outbox, 3, lambda *_: True)) == outbox


def test_what_waits_for_a_definition_that_cannot_be_read_holds_back_only_what_is_mapped_after_it() -> None:
    def item(number: int, job: str | None, is_round: bool = True) -> OutboxItem:
        if job is None:
            return OutboxItem(number, 0, f"{number}.0", {"job": ["j"], "generation": 1})
        payload = {"revision": number} if is_round else {"revision": number, "job": [job]}
        return OutboxItem(number, 0, f"{number}.0.2.1", payload, [f"{job}/i1/k"] if is_round else [])

    outbox = [item(1, "k"), item(2, "j"), item(3, None), item(4, "k"), item(5, "k", False), item(6, None)]
    asked: list[tuple[str, int]] = []

    def is_readable(job: str, revision: int) -> bool:
        asked.append((job, revision))
        return job != "j"

    assert list(sendable(outbox, 9, is_readable)) == [outbox[0], outbox[2], outbox[5]]
    assert asked == [("k", 1), ("j", 2)]
    assert list(sendable(outbox[4:], 9, is_readable)) == outbox[4:]
