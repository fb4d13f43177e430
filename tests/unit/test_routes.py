"""Where an event counts for a job, by every way in which its schedule may name the asset."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_conformance_subset import FOLDER
from tidegate.core.access import AssetAccessControl
from tidegate.core.audit import AuditKind
from tidegate.core.conditions import Condition
from tidegate.core.errors import DefinitionError
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
    StartOfWeekMapper,
)
from tidegate.core.policies import MinimumCount, WaitForAll, WaitPolicy
from tidegate.core.timetables import (
    AssetOrTimeSchedule,
    AssetTriggeredTimetable,
    CronPartitionTimetable,
    CronTriggerTimetable,
    PartitionedAssetTimetable,
    Timetable,
)
from tidegate.core.windows import DayWindow, MonthWindow, SegmentWindow, WeekWindow
from tidegate.definitions import Asset, AssetAlias, Job
from tidegate.definitions.routes import UNPARTITIONED, JobRoutes, Note, Route, Taken, Target, label

A, B = Asset("a"), Asset("b", "s3://bucket/b")
AT = datetime(2026, 3, 10, 9, 0, 0, 123_457, tzinfo=UTC)
DATE = to_us(AT)


def routes(schedule: Timetable, team: str | None = None) -> tuple[Route, ...]:
    return JobRoutes(Job("copy", schedule, team=team)).routes


def route(mapper: PartitionMapper | None = None, asset: Condition = A) -> Route:
    (only,) = routes(PartitionedAssetTimetable(asset, mapper or IdentityMapper()))
    return only


def keys(taken: Taken) -> list[str]:
    return [target.placement.key for target in taken.targets]


def only_note(taken: Taken) -> Note:
    (note,) = taken.notes
    return note


# Ways of naming


class Silent(IdentityMapper):
    def to_downstream(self, key: str) -> list[str]:  # type: ignore[override]
        return []


def test_a_key_that_gives_no_key_is_audited() -> None:
    schedule = PartitionedAssetTimetable(Asset("a"), default_partition_mapper=Silent())
    (route,) = JobRoutes(Job("j", schedule)).routes
    reason = "Silent gives no downstream key for partition key 'k'"
    assert route.take("k", None) == Taken(notes=(Note(AuditKind.MAPPING_FAILED, reason),))
    assert route.take("k", to_us(datetime(2026, 3, 10, tzinfo=UTC))).notes[0].reason == reason


class BeforeTheCalendar(IdentityMapper):
    def to_partition_date(self, downstream_key: str) -> datetime:
        return datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))


def test_a_date_that_no_message_can_carry_costs_the_date() -> None:
    schedule = PartitionedAssetTimetable(Asset("a"), default_partition_mapper=BeforeTheCalendar())
    (route,) = JobRoutes(Job("j", schedule)).routes
    taken = route.take("k", None)
    assert [(target.decoded, bool(target.problem)) for target in taken.targets] == [(None, True)]
    assert [note.kind for note in taken.notes] == [AuditKind.PARTITION_DATE_FAILED]


class Asking(WaitPolicy):
    """Asks for a number that no window has."""

    wanted: Any = 1

    def is_satisfied(self, matched: int, expected: int) -> bool:
        return True

    def needed(self, expected: int) -> int:
        return self.wanted  # type: ignore[no-any-return]


@pytest.mark.parametrize(("wanted", "needed"), [(-3, 1), (0, 1), (2, 2), (99, 99), (1.5, None), (None, None)])
def test_what_a_policy_asks_for_is_a_whole_number_from_one(
    monkeypatch: pytest.MonkeyPatch, wanted: Any, needed: int | None
) -> None:
    asking = type("Asking", (Asking,), {})  # routes remember what equal mappers answered
    rollup = RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu"]), asking())
    monkeypatch.setattr(asking, "wanted", wanted, raising=False)
    (route,) = JobRoutes(Job("j", PartitionedAssetTimetable(Asset("a"), rollup))).routes
    taken = route.take("us", None)
    if needed is None:
        assert "Asking.needed(2) must be a whole number" in taken.notes[0].reason
    else:
        assert [target.placement.needed for target in taken.targets] == [needed]


class Babbling(IdentityMapper):
    """Says what no message can carry."""

    def to_downstream(self, key: str) -> str:
        if key == "half":
            return "\ud800"
        raise {"long": ValueError("x" * 100_000), "torn": ValueError("\udfff"), "mute": Mute()}[key]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("half", "half a character"),
        ("long", "raised ValueError: " + "x" * 1000),
        ("torn", "raised ValueError: \\udfff"),
        ("mute", "raised Mute: (its text cannot be had)"),
    ],
)
def test_what_a_mapper_gives_and_says_can_always_be_audited(key: str, said: str) -> None:
    schedule = PartitionedAssetTimetable(Asset("a"), default_partition_mapper=Babbling())
    (route,) = JobRoutes(Job("j", schedule)).routes
    (note,) = route.take(key, None).notes
    assert note.kind is AuditKind.MAPPING_FAILED
    assert said in note.reason
    assert len(note.reason.encode()) < 1200


def test_every_leaf_of_the_condition_is_a_route_with_its_place_and_its_mapper() -> None:
    fixed, day = FixedKeyMapper("all"), RollupMapper(StartOfDayMapper(), DayWindow())
    schedule = PartitionedAssetTimetable(
        (A & Asset.ref(uri="s3://bucket/b/")) | (AssetAlias("out") & A),
        partition_mapper_config={B: fixed, AssetAlias("out"): day},
    )
    job = JobRoutes(Job("copy", schedule))
    assert [(each.index, label(each.leaf), type(each.mapper).__name__) for each in job.routes] == [
        (0, "a", "IdentityMapper"),
        (
            1,
            "s3://bucket/b",
            "FixedKeyMapper",
        ),  # a mapper given to the asset itself holds for its reference (F25)
        (2, "out", "RollupMapper"),
    ]
    assert job.labels == ("a", "s3://bucket/b", "out")
    assert job.rollups == (2,)
    assert job.clauses == ((0, 1), (0, 2))


@pytest.mark.parametrize("schedule", [None, CronTriggerTimetable("@daily", timezone="UTC")])
def test_a_job_that_waits_for_no_assets_has_no_routes(schedule: Timetable | None) -> None:
    job = JobRoutes(Job("copy", schedule))
    assert (job.routes, job.clauses, job.rollups, job.labels) == ((), (), (), ())


def test_too_many_ways_to_be_satisfied_are_refused_where_they_are_declared() -> None:
    pairs = [Asset(f"a{n}") | Asset(f"b{n}") for n in range(7)]
    condition = pairs[0]
    for pair in pairs[1:]:
        condition = condition & pair  # type: ignore[assignment]  # 2 ** 7 ways, and 64 are allowed
    cron = CronTriggerTimetable("@daily", timezone="UTC")
    for declare in (
        PartitionedAssetTimetable,
        AssetTriggeredTimetable,
        lambda assets: AssetOrTimeSchedule(timetable=cron, assets=assets),
    ):
        with pytest.raises(DefinitionError, match="more than 64 ways"):
            declare(condition)


def test_a_set_of_assets_has_one_order_whatever_the_set_says() -> None:
    names = [f"asset {n}" for n in range(20)]
    in_order = AssetTriggeredTimetable([Asset(name) for name in sorted(names)])
    assert AssetTriggeredTimetable({Asset(name) for name in names}) == in_order


# Jobs with partitions


def test_a_key_counts_for_itself_and_carries_its_date_to_the_microsecond() -> None:
    taken = route().take("2026-03-10", DATE)
    assert taken == Taken((Target(Placement("2026-03-10", 0, 1, 1), None),), DATE)


def test_a_member_has_its_place_in_the_window_and_the_date_of_the_window() -> None:
    mapper = RollupMapper(StartOfDayMapper(timezone="America/Los_Angeles"), DayWindow(), MinimumCount(-3))
    (target,) = (
        route(mapper).take("2026-03-08T04:30:00", DATE).targets
    )  # 23 hours, since 02:00 does not exist
    assert target.placement == ("2026-03-08", 3, 23, 20)
    assert target.decoded == to_us(datetime(2026, 3, 8, 8, tzinfo=UTC))


def test_an_event_without_a_key_is_nothing_to_a_job_with_partitions_and_is_said_so() -> None:  # B010, B011
    note = only_note(route().take(None, None))
    assert note.kind is AuditKind.NO_PARTITION_KEY
    assert "'copy'" in note.reason


def test_a_key_outside_the_window_is_noted_as_no_member() -> None:
    note = only_note(
        route(RollupMapper(FixedKeyMapper("all"), SegmentWindow(["us", "eu"]))).take("asia", None)
    )
    assert note.kind is AuditKind.NOT_A_MEMBER
    assert "'asia'" in note.reason


def test_a_key_that_the_mapper_cannot_read_is_noted_with_the_key() -> None:
    note = only_note(route(StartOfDayMapper()).take("yesterday", None))
    assert note.kind is AuditKind.MAPPING_FAILED
    assert "'yesterday'" in note.reason


# B016


def test_b016_a_fan_out_over_its_cap_gives_nothing_and_says_cap_source_and_wanted() -> None:
    taken = route(FanOutMapper(StartOfMonthMapper(), MonthWindow(), max_downstream_keys=7)).take(
        "2026-03-01T00:00:00", None
    )
    note = only_note(taken)
    assert taken.targets == ()
    assert note.kind is AuditKind.FAN_OUT_EXCEEDED
    assert note.reason.startswith("partition fan-out exceeded")
    assert note.details == {"cap": 7, "source": "max_downstream_keys", "wanted": 31}


@pytest.mark.parametrize(("cap", "given"), [(7, 7), (6, 0), (None, 7)])
def test_b016_a_cap_counts_what_it_allows(cap: int | None, given: int) -> None:
    mapper = FanOutMapper(StartOfWeekMapper(), WeekWindow(), max_downstream_keys=cap)
    taken = route(mapper).take("2026-03-09T00:00:00", None)
    assert len(taken.targets) == given
    assert [note.kind for note in taken.notes] == ([] if given else [AuditKind.FAN_OUT_EXCEEDED])


@pytest.mark.parametrize(("count", "given", "notes"), [(1000, 1000, 0), (1001, 0, 1)])
@pytest.mark.parametrize("cap", [None, 2000])
def test_b016_no_key_gives_more_than_a_thousand(count: int, given: int, notes: int, cap: int | None) -> None:
    taken = route(_Custom(tuple(map(str, range(count))), max_downstream_keys=cap)).take("k", None)
    assert (len(taken.targets), len(taken.notes)) == (given, notes)
    if notes:
        assert only_note(taken).details == {"cap": 1000, "source": "global", "wanted": count}


def test_repeats_are_made_one_before_they_are_counted() -> None:  # F12
    assert keys(route(_Custom(("x", "y") * 4, max_downstream_keys=2)).take("k", None)) == ["x", "y"]


# Mappers of users' own


@dataclass(frozen=True)
class _Custom(PartitionMapper, is_base=True):
    keys: tuple[str, ...] = ("k",)
    broken: str = ""
    at: datetime | None = AT

    def to_downstream(self, key: str) -> Iterable[str]:
        if self.broken == "to_downstream":
            raise RuntimeError("no map")
        return self.keys

    def to_partition_date(self, downstream_key: str) -> datetime | None:
        if self.broken == "to_partition_date":
            raise RuntimeError("no date")
        return self.at

    def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
        if self.broken == "carry_partition_date":
            raise RuntimeError("no carrying")
        return source_partition_date


@pytest.mark.parametrize("hook", ["to_partition_date", "carry_partition_date"])
def test_b014_a_hook_that_raises_costs_every_date_and_never_the_event(hook: str) -> None:
    way = route(_Custom(("x", "y"), hook))
    for _ in range(2):  # the second time from memory
        taken = way.take("k", DATE)
        assert keys(taken) == ["x", "y"]
        assert all(f"_Custom.{hook} raised RuntimeError" in target.problem for target in taken.targets)
        assert only_note(taken).kind is AuditKind.PARTITION_DATE_FAILED
        assert only_note(taken).reason.count("raised") == 1


def test_b014_a_failure_to_carry_one_date_is_not_remembered_for_the_next() -> None:
    @dataclass(frozen=True)
    class _Picky(PartitionMapper, is_base=True):
        def to_downstream(self, key: str) -> str:
            return key

        def carry_partition_date(self, source_partition_date: datetime | None) -> datetime | None:
            if source_partition_date is None:
                raise ValueError("a date is needed")
            return source_partition_date

    way = route(_Picky())
    assert way.take("k", None).targets[0].problem
    taken = way.take("k", DATE)
    assert (taken.targets[0].problem, taken.carried, taken.notes) == ("", DATE, ())


def test_b014_a_hook_that_gives_a_wall_clock_has_failed() -> None:
    taken = route(_Custom(at=datetime(2026, 3, 10))).take("k", None)
    assert "to_partition_date raised" in taken.targets[0].problem


def test_a_mapper_that_raises_gives_nothing_and_is_named() -> None:
    note = only_note(route(_Custom(broken="to_downstream")).take("k", None))
    assert note.kind is AuditKind.MAPPING_FAILED
    assert "_Custom.placements raised RuntimeError: no map" in note.reason


@pytest.mark.parametrize("bad", ["", "a\n", "x" * 251])
def test_a_mapper_that_gives_what_is_no_key_gives_nothing(bad: str) -> None:
    taken = route(_Custom(("ok", bad))).take("k", None)
    assert taken.targets == ()
    assert only_note(taken).kind is AuditKind.MAPPING_FAILED


def test_what_a_mapper_counts_in_is_written_as_whole_numbers() -> None:
    @dataclass(frozen=True)
    class _Counted(IdentityMapper):
        size: Any = True

        def placements(self, key: str) -> tuple[Placement, ...]:
            return (Placement(key, False, self.size, self.size),)

    (target,) = route(_Counted()).take("k", None).targets
    assert [*map(repr, target.placement)] == ["'k'", "0", "1", "1"]
    assert "TypeError" in only_note(route(_Counted(1.5)).take("k", None)).reason


def test_a_route_forgets_keys_before_their_targets_fill_the_memory() -> None:
    way = route(_Custom(tuple(map(str, range(1000)))))
    held = 0
    for n in range(200):
        assert len(way.take(f"k{n}", None).targets) == 1000
        assert way.take(f"k{n}", None) is way.take(f"k{n}", None)
        held = max(held, sum(len(taken.targets) for taken in way._keys._known.values()))
    assert 30_000 < held <= 65_536


def test_keys_that_come_once_are_not_remembered_nor_their_downstream_keys_for_ever() -> None:
    way = route(
        IdentityMapper(max_downstream_keys=77)
    )  # equal to that of no other test, which it would share with
    for n in range(70_000):
        way.take(f"k{n}", None)
    assert not way._keys._known
    assert len(way._keys._once) <= 65_536
    assert len(way._keys._named) <= 65_536


# Jobs without partitions


CRON = CronTriggerTimetable("@daily", timezone="UTC")
UNMAPPED = [
    AssetTriggeredTimetable([A]),
    AssetOrTimeSchedule(timetable=CRON, assets=[A]),
    AssetOrTimeSchedule(timetable=CronPartitionTimetable("@daily", timezone="UTC"), assets=[A]),
]


@pytest.mark.parametrize("schedule", UNMAPPED)
def test_b010_a_schedule_that_maps_no_partitions_takes_events_without_a_key_only(schedule: Timetable) -> None:
    (way,) = routes(schedule)
    (target,) = way.take(None, DATE).targets
    assert (target.placement, target.decoded) == ((UNPARTITIONED, 0, 1, 1), None)
    taken = way.take("2026-03-10", DATE)
    assert taken.targets == ()
    assert only_note(taken).kind is AuditKind.PARTITIONED_EVENT
    assert "'2026-03-10'" in only_note(taken).reason


def test_no_event_can_have_the_key_of_jobs_without_partitions() -> None:
    assert route(_Custom((UNPARTITIONED,))).take("k", None).targets == ()


# Teams


def refused(leaf: Condition, consumer: str | None, producer: str | None, known: Asset | None) -> bool:
    (way,) = routes(PartitionedAssetTimetable(leaf), consumer)
    note = way.refusal(producer, known.access_control if known else None)
    assert note is None or note.kind is AuditKind.CROSS_TEAM
    return note is not None


WAYS = [A, Asset.ref(name="a"), Asset.ref(uri="a"), AssetAlias("out")]


@pytest.mark.parametrize("leaf", WAYS)
@pytest.mark.parametrize(
    ("access", "expected"),
    [
        # access control of the asset; whether events of (team_x, no team) reach jobs of (team_x, team_y, no team)
        (None, {"team_x": "x-0", None: "xy0"}),
        (AssetAccessControl(["team_x"]), {"team_x": "xy0", None: "xy0"}),
        (AssetAccessControl(["team_z"]), {"team_x": "x-0", None: "xy0"}),
        (AssetAccessControl(["team_x"], []), {"team_x": "x-0", None: "--0"}),
        (AssetAccessControl(["team_x"], ["team_y"]), {"team_x": "xy0", None: "-y0"}),
        (AssetAccessControl(["team_x"], ["team_z"]), {"team_x": "x-0", None: "--0"}),
        (AssetAccessControl(allow_global=False), {"team_x": "x-0", None: "--0"}),
        (AssetAccessControl(["team_x"], ["team_y"], allow_global=False), {"team_x": "xy0", None: "--0"}),
    ],
)
def test_b069_what_an_asset_says_of_teams_holds_however_a_job_names_it(
    leaf: Condition, access: AssetAccessControl | None, expected: dict[str | None, str]
) -> None:
    known = Asset("a", access_control=access)
    for producer, row in expected.items():
        for consumer, mark in zip(("team_x", "team_y", None), row, strict=True):
            assert refused(leaf, consumer, producer, known) is (mark == "-"), (producer, consumer)


def test_what_the_consumer_says_of_its_asset_comes_before_what_the_producer_says() -> None:  # F38
    open_to_x = Asset("a", access_control=AssetAccessControl(["team_x"]))
    silent = Asset("a", access_control=AssetAccessControl())
    assert not refused(open_to_x, "team_y", "team_x", silent)
    assert refused(silent, "team_y", "team_x", open_to_x)
    closed = Asset("a", access_control=AssetAccessControl(consumer_teams=[]))
    assert refused(open_to_x, "team_y", "team_x", closed)  # the producer decides who may have it


@pytest.mark.skipif(FOLDER is None, reason="the vectors are not here")
def test_routes_deliver_as_airflow_does_where_one_team_or_none_produces() -> None:
    assert FOLDER is not None
    compared = 0
    for row in json.loads((FOLDER / "access_control.json").read_text())["vectors"]:
        subject: dict[str, Any] = row["subject"]
        consumer, producer = subject["consumer"], subject["producer"]
        if not subject["multi_team"] or producer["kind"] != "dag" or len(producer["teams"]) > 1:
            continue  # topics have one team or none
        if consumer["access_control"] is None or any(tag.startswith("finding:") for tag in row["tags"]):
            continue  # F22 and F38, which are tested above
        leaf = Asset("a", access_control=AssetAccessControl(**consumer["access_control"]))
        outlet = producer["access_control"]
        known = Asset("a", access_control=None if outlet is None else AssetAccessControl(**outlet))
        team = next(iter(producer["teams"]), None)
        assert refused(leaf, consumer["team"], team, known) is not row["expect"]["delivered"], row["id"]
        compared += 1
    assert compared > 20


# B060


def test_b060_an_asset_and_an_alias_of_one_job_are_two_ways_to_one_key() -> None:
    direct, through = routes(PartitionedAssetTimetable(A | AssetAlias("out")))
    assert [each.index for each in (direct, through)] == [0, 1]
    assert keys(direct.take("k", None)) == keys(through.take("k", None)) == ["k"]


@given(st.sampled_from(["2026-03-08T04:30:00", "x", "2026-13-01", "", "2026-03"]), st.none() | st.just(DATE))
def test_a_route_answers_the_same_from_memory(key: str, date: int | None) -> None:
    for way in (route(), route(RollupMapper(StartOfDayMapper(), DayWindow()))):
        assert way.take(key, date) == way.take(key, date)


def test_r4_a_deadline_after_the_window_counts_from_the_first_instant_of_the_next_period() -> None:
    """A day of 23 hours in Los Angeles, 2010-03-14 from 08:00 UTC, ends at 07:00 UTC."""
    days = StartOfDayMapper(timezone="America/Los_Angeles")

    def ends(since: str) -> list[int | None]:
        policy = WaitForAll().or_after(timedelta(hours=2), since=since)
        mapper = RollupMapper(days, DayWindow(), policy)
        routes = JobRoutes(
            Job(
                "j",
                PartitionedAssetTimetable(Asset("a") & Asset("b"), IdentityMapper(), {Asset("a"): mapper}),
            )
        )
        assert routes.deadlines == ((7_200_000, "fire", since), None)
        return [target.ends for target in routes.routes[0].take("2010-03-14T03:00:00", None).targets]

    assert ends("window_end") == [to_ms(datetime(2010, 3, 15, 7, tzinfo=UTC))]
    assert ends("first_member") == [None]
    assert JobRoutes(Job("j", Asset("a"))).deadlines == ()
