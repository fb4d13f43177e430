"""What one accepted event means to every job."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.contributions import ContributionBatch, MemberEvent
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Condition
from tidegate.core.instants import to_ms, to_us
from tidegate.core.mappers import (
    IdentityMapper,
    PartitionMapper,
    RollupMapper,
    StartOfDayMapper,
    StartOfMonthMapper,
)
from tidegate.core.timetables import PartitionedAssetTimetable, Timetable
from tidegate.core.windows import DayWindow, MonthWindow
from tidegate.definitions import Asset, Job
from tidegate.runtime.definitions_view import DefinedJob
from tidegate_mapper.decide import batch, map_event, plan

A, B, C = Asset("a"), Asset("b"), Asset("c")
DAY = RollupMapper(StartOfDayMapper(timezone="America/Los_Angeles"), DayWindow())
MONTH = RollupMapper(StartOfMonthMapper(timezone="America/Los_Angeles"), MonthWindow())
AT = datetime(2010, 3, 14, 12, tzinfo=UTC)


def defined(
    job_id: str, assets: Condition, mapper: PartitionMapper | None = None, revision: int = 7
) -> DefinedJob:
    return DefinedJob(
        Job(job_id, PartitionedAssetTimetable(assets, mapper or IdentityMapper())), "i1", revision
    )


def event(
    asset: str = "a", key: str | None = "k", date: datetime | None = None, event_id: str = "e1"
) -> AcceptedEvent:
    when = None if date is None else to_us(date)
    return AcceptedEvent(5, 9, to_ms(AT), "src", event_id, asset, key, when, {"t": 1}, None)


def test_an_event_is_routed_to_every_job_that_names_its_asset_in_the_order_of_job_ids() -> None:
    routes = plan([defined("z", A), defined("b", A | B), defined("a", B)])
    assert [route.job.id for route in routes["a"]] == ["b", "z"]
    assert [route.job.id for route in routes["b"]] == ["a", "b"]
    mapped, audit = map_event(event("a"), routes, "accepted-events/0@4")
    assert [(each.job.id, each.target.placement.key) for each in mapped] == [("b", "k"), ("z", "k")]
    assert audit == []


@given(st.permutations([defined("z", A & B, DAY), defined("b", A | C), defined("a", B & A, MONTH)]))
def test_the_order_of_definitions_never_matters(jobs: list[DefinedJob]) -> None:
    key = "2010-03-14T05:00:00"
    expected = map_event(event(key=key), plan(sorted(jobs, key=lambda each: each.job.id)), "p")
    assert map_event(event(key=key), plan(jobs), "p") == expected
    assert [each.job.id for each in expected[0]] == ["a", "b", "z"]


def test_an_asset_that_no_job_names_gives_nothing() -> None:
    assert map_event(event("other"), plan([defined("j", A)]), "p") == ([], [])


def test_a_job_without_a_partitioned_schedule_takes_no_part() -> None:
    @dataclass(frozen=True)
    class _Other(Timetable, is_base=True):
        pass

    assert plan([DefinedJob(Job("j", _Other()), "i1", 1), DefinedJob(Job("k"), "i1", 2)]).by_asset == {}


def test_a_job_is_described_by_what_the_rollup_needs_to_know() -> None:
    schedule = PartitionedAssetTimetable(A & B | C, IdentityMapper(), {B: DAY})
    (route,) = plan([DefinedJob(Job("j", schedule), "i9", 11)])["b"]
    assert route.job == ("j", "i9", 11, (1,), ("a", "b", "c"), ((0, 1), (2,)))
    assert route.asset == 1


def test_a_rollup_places_the_event_in_its_window_with_the_date_of_the_day() -> None:
    (mapped,), _ = map_event(event(key="2010-03-14T03:30:00"), plan([defined("j", A, DAY)]), "p")
    assert mapped.target.placement == ("2010-03-14", 2, 23, 23)
    assert mapped.target.decoded == to_us(datetime(2010, 3, 14, 8, tzinfo=UTC))
    assert mapped.carried is None
    assert mapped.event == MemberEvent("2010-03-14T03:30:00", "e1", "src", to_ms(AT), None, {"t": 1}, "a")


def test_identity_carries_the_producers_date_and_decodes_none() -> None:
    (mapped,), _ = map_event(event(date=AT), plan([defined("j", A)]), "p")
    assert (mapped.target.decoded, mapped.carried, mapped.event.date) == (None, to_us(AT), to_us(AT))


def test_an_event_without_a_key_is_audited_for_every_job_that_waits_for_it() -> None:
    mapped, audit = map_event(event(key=None), plan([defined("j", A), defined("k", A, DAY)]), "p")
    assert mapped == []
    assert [(each.kind, each.job, each.event_id) for each in audit] == [
        (AuditKind.NO_PARTITION_KEY, "j", "e1"),
        (AuditKind.NO_PARTITION_KEY, "k", "e1"),
    ]


def test_a_key_that_one_mapper_cannot_read_is_audited_for_its_job_alone() -> None:
    mapped, audit = map_event(
        event(key="blue"), plan([defined("j", A), defined("k", A, DAY)]), "accepted-events/0@4"
    )
    assert [each.job.id for each in mapped] == ["j"]
    (entry,) = audit
    assert (entry.kind, entry.job, entry.partition_key, entry.position) == (
        AuditKind.MAPPING_FAILED,
        "k",
        "blue",
        "accepted-events/0@4",
    )
    assert "'blue'" in entry.message


def test_audit_ids_are_the_same_for_a_repeat_and_differ_for_anything_else() -> None:
    routes = plan([defined("j", A, DAY), defined("k", A, DAY)])

    def ids(key: str, event_id: str, position: str) -> list[str]:
        return [entry.id for entry in map_event(event(key=key, event_id=event_id), routes, position)[1]]

    first = ids("blue", "e1", "p@1")
    assert first == ids("blue", "e1", "p@1")
    assert len({*first, *ids("blue", "e2", "p@1"), *ids("blue", "e1", "p@2")}) == 6


# Mappers of users' own


@dataclass(frozen=True)
class _Custom(PartitionMapper, is_base=True):
    keys: tuple[str, ...] = ("k1", "k2", "k1")
    broken: str = ""

    def to_downstream(self, key: str) -> Iterable[str]:
        if self.broken == "to_downstream":
            raise RuntimeError("no map")
        return self.keys

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        if self.broken == "to_partition_date":
            raise RuntimeError("no date")
        return AT

    def carry_partition_date(self, partition_date: datetime | None) -> datetime | None:
        if self.broken == "carry_partition_date":
            raise RuntimeError("no carrying")
        return partition_date


def test_repeated_downstream_keys_are_made_unique_and_keep_their_order() -> None:
    mapped, _ = map_event(event(date=AT), plan([defined("j", A, _Custom())]), "p")
    assert [each.target.placement.key for each in mapped] == ["k1", "k2"]


@pytest.mark.parametrize("keys", [("ok", ""), ("ok", "a\n"), ("x" * 251,)])
def test_a_mapper_that_gives_a_bad_key_is_audited_and_gives_nothing(keys: tuple[str, ...]) -> None:
    mapped, audit = map_event(event(), plan([defined("j", A, _Custom(keys)), defined("k", A)]), "p")
    assert [each.job.id for each in mapped] == ["k"]
    assert [entry.kind for entry in audit] == [AuditKind.MAPPING_FAILED]


def test_a_mapper_that_raises_concerns_only_its_own_job() -> None:
    mapped, audit = map_event(
        event(), plan([defined("j", A, _Custom(broken="to_downstream")), defined("k", A)]), "p"
    )
    assert [each.job.id for each in mapped] == ["k"]
    assert "_Custom.placements raised RuntimeError: no map" in audit[0].message


@pytest.mark.parametrize("hook", ["to_partition_date", "carry_partition_date"])
def test_a_date_hook_that_raises_costs_the_date_and_never_the_event(hook: str) -> None:
    routes = plan([defined("j", A, _Custom(("k",), hook))])
    for _ in range(2):  # the second time from memory
        (mapped,), (entry,) = map_event(event(date=AT), routes, "p")
        dates = (mapped.target.decoded, mapped.carried)
        assert dates == ((None, to_us(AT)) if hook == "to_partition_date" else (to_us(AT), None))
        assert entry.kind is AuditKind.MAPPING_FAILED
        assert f"_Custom.{hook} raised RuntimeError" in entry.message


# Packing


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["k1", "k2"])), min_size=1, max_size=8))
def test_a_batch_says_each_job_and_each_event_once_and_loses_nothing(drawn: list[tuple[str, str]]) -> None:
    routes = plan([defined("j", A | B), defined("k", A & C)])
    entries = []
    for offset, (asset, key) in enumerate(drawn):
        mapped, _ = map_event(event(asset, key, event_id=f"e{offset}"), routes, "p")
        entries += [(offset, ordinal, each) for ordinal, each in enumerate(mapped)]
    packed = ContributionBatch.from_bytes(batch("accepted-events/3", entries).to_bytes())
    assert packed.source == "accepted-events/3"
    assert len(set(packed.jobs)) == len(packed.jobs)
    assert len({each.id for each in packed.events}) == len(packed.events)
    assert [
        (each.offset, each.ordinal, packed.jobs[each.job], packed.events[each.event], each.key, each.asset)
        for each in packed.entries
    ] == [(o, n, m.job, m.event, m.target.placement.key, m.asset) for o, n, m in entries]


def test_two_events_that_look_alike_stay_two() -> None:
    routes = plan([defined("j", A)])
    first, second = (map_event(event(), routes, "p")[0][0] for _ in range(2))
    packed = batch("s", [(1, 0, first), (2, 0, second)])
    assert [each.event for each in packed.entries] == [0, 1]
