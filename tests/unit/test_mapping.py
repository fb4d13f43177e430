"""What one accepted event means to every job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.accepted import AcceptedEvent
from tidegate.contracts.contributions import Contribution, ContributionBatch, MemberEvent
from tidegate.core.access import AssetAccessControl
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Condition
from tidegate.core.instants import to_ms, to_us
from tidegate.core.mappers import (
    FanOutMapper,
    FixedKeyMapper,
    IdentityMapper,
    PartitionMapper,
    Placement,
    RollupMapper,
    StartOfDayMapper,
    StartOfMonthMapper,
)
from tidegate.core.rounds import RerunPolicy
from tidegate.core.timetables import (
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    PartitionedAssetTimetable,
    Timetable,
)
from tidegate.core.windows import DayWindow, MonthWindow
from tidegate.definitions import Asset, AssetAlias, Job
from tidegate.definitions.routes import Target
from tidegate.runtime.definitions_view import DefinedJob
from tidegate.runtime.mapping import Known, Mapped, batch_bytes, map_event, plan

A, B, C = Asset("a"), Asset("b"), Asset("c")
DAY = RollupMapper(StartOfDayMapper(timezone="America/Los_Angeles"), DayWindow())
MONTH = RollupMapper(StartOfMonthMapper(timezone="America/Los_Angeles"), MonthWindow())
AT = datetime(2010, 3, 14, 12, tzinfo=UTC)


def defined(
    job_id: str, assets: Condition, mapper: PartitionMapper | None = None, team: str | None = None
) -> DefinedJob:
    schedule = PartitionedAssetTimetable(assets, mapper or IdentityMapper())
    return DefinedJob(Job(job_id, schedule, team=team), "i1", 7)


def event(
    asset: str = "a",
    key: str | None = "k",
    date: datetime | None = None,
    event_id: str = "e1",
    aliases: tuple[str, ...] = (),
    team: str | None = None,
) -> AcceptedEvent:
    when = None if date is None else to_us(date)
    return AcceptedEvent(5, 9, to_ms(AT), "src", event_id, asset, key, when, {"t": 1}, team, aliases)


def read_back(source: str, entries: Sequence[tuple[int, int, Mapped]]) -> ContributionBatch:
    """What readers find in a batch, which is written as any other message is."""
    raw = batch_bytes(source, entries)
    read = ContributionBatch.from_bytes(raw)
    assert read.to_bytes() == raw
    return read


def jobs_of(mapped: Sequence[Mapped]) -> list[tuple[str, int]]:
    """The jobs that an event counts for, with the place of the asset in each."""
    return [(each.job.id, each.asset) for each in mapped]


def test_an_event_is_routed_to_every_job_that_names_its_asset_in_the_order_of_job_ids() -> None:
    ways = plan([defined("z", A), defined("b", A | B), defined("a", B)])
    assert [way.job.id for way in ways.ways(event("a"))] == ["b", "z"]
    assert [way.job.id for way in ways.ways(event("b"))] == ["a", "b"]
    mapped, audit = map_event(event("a"), ways, "accepted-events/0@4")
    assert [(each.job.id, each.target.placement.key) for each in mapped] == [("b", "k"), ("z", "k")]
    assert audit == []


# Ways of naming

URI = Asset("by-uri", "s3://bucket/data")
TWIN = Asset("twin", "s3://bucket/data")


def known(*assets: Asset) -> dict[str, Asset]:
    return {asset.name: asset for asset in assets}


def test_a_reference_by_name_takes_the_events_of_that_name_declared_or_not() -> None:
    jobs = [defined("j", Asset.ref(name="a"))]
    for assets in ({}, known(Asset("a", "s3://bucket/a"))):
        assert jobs_of(map_event(event("a"), plan(jobs, assets), "p")[0]) == [("j", 0)]


def test_a_reference_by_uri_takes_the_events_of_every_asset_with_that_uri() -> None:
    ways = plan([defined("j", Asset.ref(uri="S3://bucket/data/"))], known(A, TWIN, URI))
    for asset, jobs in {
        "by-uri": [("j", 0)],
        "twin": [("j", 0)],
        "a": [],
        "s3://bucket/data": [("j", 0)],  # before any definition had the URI, it was the name
    }.items():
        assert jobs_of(map_event(event(asset), ways, "p")[0]) == jobs, asset


def test_a_reference_to_an_uri_with_a_password_is_the_same_without() -> None:
    ways = plan([defined("j", Asset.ref(uri="x-db://me:secret@host/t"))])
    assert jobs_of(map_event(event("x-db://host/t"), ways, "p")[0]) == [("j", 0)]


def test_an_alias_takes_the_events_that_came_through_it_and_no_others() -> None:
    ways = plan([defined("j", AssetAlias("out")), defined("k", A)])
    assert jobs_of(map_event(event("a", aliases=("other", "out")), ways, "p")[0]) == [("j", 0), ("k", 0)]
    assert jobs_of(map_event(event("c", aliases=("out",)), ways, "p")[0]) == [("j", 0)]
    assert jobs_of(map_event(event("a"), ways, "p")[0]) == [("k", 0)]
    assert (
        jobs_of(map_event(event("out"), ways, "p")[0]) == []
    )  # an asset of the alias's name is another thing


def test_b060_two_ways_of_one_event_into_one_job_are_two_places_of_one_event() -> None:
    ways = plan(
        [defined("two", A | AssetAlias("out")), defined("three", Asset.ref(name="a") & AssetAlias("out"))]
    )
    mapped, audit = map_event(event("a", aliases=("out", "out")), ways, "p")
    assert jobs_of(mapped) == [("three", 0), ("three", 1), ("two", 0), ("two", 1)]
    assert [each.also for each in mapped] == [(1,), (0,), (1,), (0,)]
    assert len({id(each.event) for each in mapped}) == 1
    assert audit == []


def test_the_event_is_told_by_the_name_of_its_asset_whatever_the_schedule_calls_it() -> None:
    ways = plan([defined("j", AssetAlias("out"))])
    (mapped,), _ = map_event(event("c", aliases=("out",)), ways, "p")
    assert (mapped.job.assets, mapped.event.asset) == (("out",), "c")


leaves: st.SearchStrategy[Condition] = st.sampled_from(
    [
        A,
        B,
        C,
        URI,
        Asset.ref(name="a"),
        Asset.ref(name="twin"),
        Asset.ref(uri="s3://bucket/data"),
        AssetAlias("out"),
    ]
)
conditions = st.recursive(
    leaves,
    lambda inner: st.builds(lambda a, b: a & b, inner, inner) | st.builds(lambda a, b: a | b, inner, inner),
    max_leaves=5,
)
mappers = st.sampled_from(
    [IdentityMapper(), DAY, FanOutMapper(StartOfDayMapper(), DayWindow()), FixedKeyMapper("x")]
)
some_jobs = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(conditions, mappers, st.none() | st.sampled_from("xy")), max_size=5
).map(lambda drawn: [defined(name, *each) for name, each in drawn.items()])
some_events = st.builds(
    event,
    st.sampled_from(["a", "b", "c", "by-uri", "twin", "s3://bucket/data"]),
    st.sampled_from([None, "k", "2010-03-14", "2010-03-14T05:00:00"]),
    st.none() | st.just(AT),
    aliases=st.lists(st.sampled_from(["out", "other"]), max_size=3).map(tuple),
    team=st.none() | st.sampled_from("xz"),
)


@given(some_jobs, some_events, st.booleans(), st.randoms())
def test_the_same_event_and_definitions_give_the_same_in_the_same_order(
    jobs: list[DefinedJob], one: AcceptedEvent, multi_team: bool, random: Random
) -> None:
    """E1 needs it: a process that maps a record again must number its contributions as the one before it did."""
    assets = [A, B, C, URI, TWIN]
    first = plan(jobs, known(*assets), multi_team=multi_team)
    expected = map_event(one, first, "p")
    assert map_event(one, first, "p") == expected  # from memory
    random.shuffle(jobs)
    random.shuffle(assets)
    assert map_event(one, plan(jobs, known(*assets), multi_team=multi_team), "p") == expected
    mapped = expected[0]
    assert len({(each.job.id, each.asset, each.target.placement.key) for each in mapped}) == len(mapped)
    assert jobs_of(mapped) == sorted(jobs_of(mapped))


# Teams


def test_teams_are_filtered_only_where_the_installation_has_several() -> None:
    jobs = [defined("j", A, team="blue"), defined("k", A)]
    mapped, audit = map_event(event(team="red"), plan(jobs, known(A)), "p")
    assert (jobs_of(mapped), audit) == ([("j", 0), ("k", 0)], [])
    mapped, (entry,) = map_event(event(team="red"), plan(jobs, known(A), multi_team=True), "p")
    assert jobs_of(mapped) == [("k", 0)]
    assert (entry.kind, entry.job, entry.asset, entry.event_id) == (AuditKind.CROSS_TEAM, "j", "a", "e1")
    assert "'blue'" in entry.message
    assert "'red'" in entry.message


@pytest.mark.parametrize("leaf", [A, Asset.ref(name="a"), Asset.ref(uri="a"), AssetAlias("out")])
def test_what_the_known_asset_says_of_teams_holds_for_every_way_of_naming_it(leaf: Condition) -> None:  # F22
    open_to_red = Asset("a", access_control=AssetAccessControl(["red"]))
    for asset, is_taken in ((open_to_red, True), (A, False)):
        ways = plan([defined("j", leaf, team="blue")], known(asset), multi_team=True)
        mapped, audit = map_event(event(team="red", aliases=("out",)), ways, "p")
        assert (bool(mapped), bool(audit)) == (is_taken, not is_taken)


# Jobs without partitions


def test_b010_a_keyed_event_is_for_jobs_with_partitions_and_another_for_those_without() -> None:
    plain = DefinedJob(Job("plain", [A]), "i1", 3)
    ways = plan([defined("copy", A), plain])
    mapped, (entry,) = map_event(event(), ways, "p")
    assert jobs_of(mapped) == [("copy", 0)]
    assert (entry.kind, entry.job) == (AuditKind.PARTITIONED_EVENT, "plain")
    mapped, (entry,) = map_event(event(key=None), ways, "p")
    assert [(each.job.id, each.target.placement.key) for each in mapped] == [("plain", "")]
    assert (entry.kind, entry.job) == (AuditKind.NO_PARTITION_KEY, "copy")


def test_the_asset_half_of_a_schedule_by_assets_or_time_is_mapped() -> None:
    schedule = AssetOrTimeSchedule(timetable=CronTriggerTimetable("@daily", timezone="UTC"), assets=A & B)
    mapped, _ = map_event(event("b", None), plan([DefinedJob(Job("j", schedule), "i1", 3)]), "p")
    assert jobs_of(mapped) == [("j", 1)]
    assert mapped[0].job.clauses == ((0, 1),)


# Jobs and their assets


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
    schedule = PartitionedAssetTimetable(A & B | C, IdentityMapper(), {B: DAY}, RerunPolicy.REFIRE)
    ways = plan([DefinedJob(Job("j", schedule), "i9", 11, "abc"), defined("k", A)])
    (way,) = ways.ways(event("b"))
    assert way.job == ("j", "i9", 11, (1,), ("a", "b", "c"), ((0, 1), (2,)), "refire", (), "abc")
    assert way.route.index == 1
    assert [each.job.rerun_policy for each in ways.ways(event("a"))] == ["refire", None]


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
    two_ways = plan([defined("j", A | AssetAlias("out"), DAY)])
    _, refused = map_event(event(key="blue", aliases=("out",)), two_ways, "p@1")
    assert len({entry.id for entry in refused}) == len(refused) == 2


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
def test_b014_a_date_hook_that_raises_costs_the_date_and_never_the_event(hook: str) -> None:
    ways = plan(
        [defined("bad", A, _Custom(("k",), hook)), defined("copy", A), defined("day", A, StartOfDayMapper())]
    )
    mapped, (entry,) = map_event(event(key="2026-03-10T09:00:00", date=AT), ways, "p")
    entries = read_back("s", [(1, ordinal, each) for ordinal, each in enumerate(mapped)]).entries
    assert [(each.key, each.is_date_failed) for each in entries] == [
        ("k", True),
        ("2026-03-10T09:00:00", False),
        ("2026-03-10", False),
    ]
    assert entries[1].carried == to_us(AT)
    assert entries[2].decoded == to_us(datetime(2026, 3, 10, tzinfo=UTC))
    assert (entry.kind, entry.job) == (AuditKind.PARTITION_DATE_FAILED, "bad")
    assert f"_Custom.{hook} raised RuntimeError" in entry.message


def test_b016_a_fan_out_over_its_cap_is_audited_with_cap_source_and_wanted() -> None:
    mapper = FanOutMapper(StartOfMonthMapper(), MonthWindow(), max_downstream_keys=7)
    ways = plan([defined("mfan", A, mapper), defined("mcopy", A)])
    mapped, (entry,) = map_event(event(key="2026-03-01T00:00:00"), ways, "p")
    assert jobs_of(mapped) == [("mcopy", 0)]
    assert (entry.kind, entry.job) == (AuditKind.FAN_OUT_EXCEEDED, "mfan")
    assert entry.message.startswith("partition fan-out exceeded")
    assert entry.details == {"cap": 7, "source": "max_downstream_keys", "wanted": 31}


# Packing


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["k1", "k2"])), min_size=1, max_size=8))
def test_a_batch_says_each_job_and_each_event_once_and_loses_nothing(drawn: list[tuple[str, str]]) -> None:
    routes = plan([defined("j", A | B), defined("k", A & C)])
    entries = []
    for offset, (asset, key) in enumerate(drawn):
        mapped, _ = map_event(event(asset, key, event_id=f"e{offset}"), routes, "p")
        entries += [(offset, ordinal, each) for ordinal, each in enumerate(mapped)]
    packed = read_back("accepted-events/3", entries)
    assert packed.source == "accepted-events/3"
    assert len(set(packed.jobs)) == len(packed.jobs)
    assert len({each.id for each in packed.events}) == len(packed.events)
    assert [
        (each.offset, each.ordinal, packed.jobs[each.job], packed.events[each.event], each.key, each.asset)
        for each in packed.entries
    ] == [(o, n, m.job, m.event, m.target.placement.key, m.asset) for o, n, m in entries]


numbers = st.integers(0, 2**53)
dates = st.none() | st.integers(-(2**55), 2**55)


@given(
    st.lists(
        st.tuples(
            numbers,
            st.builds(Placement, st.text(max_size=5), numbers, numbers, numbers),
            dates,
            st.sampled_from(["", "it failed"]),
            st.none() | numbers,
            dates,
            st.lists(numbers, max_size=3).map(tuple),
        ),
        max_size=5,
    ),
    st.booleans(),
    st.booleans(),
)
def test_an_entry_is_written_as_its_message_is(
    drawn: list[Any], is_remapped: bool, is_replayed: bool
) -> None:
    (mapped,), _ = map_event(event(), plan([defined("j", A)]), "p")
    given_entries = [
        (n, n + 1, Mapped(mapped.job, mapped.event, asset, Target(placement, decoded, problem, ends), *rest))
        for n, (asset, placement, decoded, problem, ends, *rest) in enumerate(drawn)
    ]
    message = ContributionBatch(
        source="s",
        is_remapped=is_remapped,
        is_replayed=is_replayed,
        jobs=(mapped.job,) if drawn else (),
        events=(mapped.event,) if drawn else (),
        entries=tuple(
            Contribution(
                n, n + 1, 0, 0, placed[0], asset, *placed[1:], decoded, carried, bool(problem), ends, also
            )
            for n, (asset, placed, decoded, problem, ends, carried, also) in enumerate(drawn)
        ),
    )
    raw = batch_bytes("s", given_entries, is_remapped=is_remapped, is_replayed=is_replayed)
    assert raw == message.to_bytes()


def test_two_events_that_look_alike_stay_two() -> None:
    routes = plan([defined("j", A)])
    first, second = (map_event(event(), routes, "p")[0][0] for _ in range(2))
    packed = read_back("s", [(1, 0, first), (2, 0, second)])
    assert [each.event for each in packed.entries] == [0, 1]


def test_ways_of_revisions_that_did_not_change_are_kept_with_what_they_remember() -> None:
    known: Known = {}
    before = plan([defined("same", A), defined("changed", A)], known=known)
    changed = DefinedJob(Job("changed", PartitionedAssetTimetable(B, IdentityMapper())), "i1", 8)
    again = DefinedJob(Job("same", PartitionedAssetTimetable(A, IdentityMapper())), "i2", 7)
    after = plan([defined("same", A), changed], known=known)
    assert before.by_asset["a"][1].route is after.by_asset["a"][0].route
    assert [way.job.revision for way in after.by_asset["b"]] == [8]
    recreated = plan([again], known=known)
    assert recreated.by_asset["a"][0].route is not before.by_asset["a"][1].route
    assert recreated.by_asset["a"][0].job.incarnation == "i2"
