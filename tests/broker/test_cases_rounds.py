"""Cases from public trackers about rounds, on the real services, shared by all of these tests.

Each has assets and jobs of its own, named after the case.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from threading import Barrier

import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from redis import Redis

from tests.broker.stack import PARTITIONS, Stack, event, ids, producer, stack, until
from tests.servers.backends import Backend
from tidegate import (
    Asset,
    AssetAlias,
    AssetAll,
    DayWindow,
    FixedKeyMapper,
    IdentityMapper,
    Job,
    MinimumCount,
    PartitionedAssetTimetable,
    PartitionMapper,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfHourMapper,
    WaitForAll,
    WaitPolicy,
    WeekWindow,
)
from tidegate.core.conditions import Condition
from tidegate.core.rounds import RerunPolicy

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.parametrize("backend", ["real"], indirect=True),
]

WEEK = [f"2026-03-{day:02}" for day in range(9, 16)]
THE_WEEK = "2026-03-09 (W11)"


@pytest.fixture(scope="module")
def on(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(backend, tmp_path_factory.mktemp("stack")) as running:
        yield running


def job(
    id: str,
    assets: Condition,
    mapper: PartitionMapper | None = None,
    rerun_policy: RerunPolicy | None = None,
) -> Job:
    return Job(id, PartitionedAssetTimetable(assets, mapper or IdentityMapper(), rerun_policy=rerun_policy))


def days() -> RollupMapper:
    return RollupMapper(StartOfHourMapper(), DayWindow())


def weeks(policy: WaitPolicy | None = None) -> RollupMapper:
    return RollupMapper(StartOfDayMapper(), WeekWindow(), policy or WaitForAll())


def segments(key: str, *names: str) -> RollupMapper:
    return RollupMapper(FixedKeyMapper(key), SegmentWindow(list(names)))


def hours(day: str) -> list[str]:
    return [f"{day}T{hour:02}" for hour in range(24)]


def test_b001_members_that_come_at_once_by_two_ways_meet_in_one_round_with_one_date(on: Stack) -> None:
    on.apply(job("join1", Asset("a1") & Asset("b1")))
    at = "2026-08-01T00:00:00Z"
    keys = [f"key-{number:03}" for number in range(200)]
    for key in keys[:50]:
        on.give("a1", key, f"a-{key}", partition=0, partition_date=at)
    for key in keys[50:100]:
        on.give("b1", key, f"b-{key}", partition=1)
    on.until_waiting("join1", dict.fromkeys(keys[:100], (1, 2)))
    for key in keys[:50]:
        on.give("b1", key, f"b-{key}", partition=1)
    for key in keys[50:100]:
        on.give("a1", key, f"a-{key}", partition=0, partition_date=at)
    for key in keys[100:]:  # at once, whichever is first
        on.give("a1", key, f"a-{key}", partition=0, partition_date=at)
        on.give("b1", key, f"b-{key}", partition=1)
    on.until_commands("join1", 200)
    on.settle()
    commands = on.commands("join1")
    assert sorted(each["partition_key"] for each in commands) == keys
    assert {each["partition_date"] for each in commands} == {at}
    assert all(ids(each) == [f"{asset}-{each['partition_key']}" for asset in "ab"] for each in commands)
    assert on.waiting("join1") == {}


def test_b003_each_key_runs_once_while_replicas_of_rollup_and_dispatcher_are_restarted(on: Stack) -> None:
    on.apply(job("copy3", Asset("a3")), job("day_sum3", Asset("hourly3"), days()))
    full = [f"2026-{month:02}-{day:02}" for month in (4, 5) for day in range(1, 21)]
    singles, parts = (
        [f"key-{number:03}" for number in range(500)],
        [hour for day in full for hour in hours(day)],
    )
    rollups, dispatchers = on.replicas("rollup"), on.replicas("dispatcher")
    for turn, replica in enumerate([rollups[0], dispatchers[0], rollups[1], dispatchers[1]]):
        for key in singles[turn * 125 : turn * 125 + 125]:
            on.give("a3", key, key)
        for key in parts[turn * 240 : turn * 240 + 240]:
            on.give("hourly3", key, key)
        on.flush()
        if turn < 2:
            replica.kill()
        else:
            replica.stop()
        replica.start()
    on.until_commands("copy3", 500)
    on.until_commands("day_sum3", 40)
    on.settle()
    for name, keys in (("copy3", singles), ("day_sum3", full)):
        commands = on.commands(name)
        assert sorted((each["partition_key"], each["generation"]) for each in commands) == [
            (key, 1) for key in keys
        ]
        assert len({each["run_id"] for each in commands}) == len(keys)


def test_b005_rounds_that_never_fire_cost_the_others_nothing(on: Stack) -> None:
    on.apply(
        job("day_sum5", Asset("hourly5"), days()),
        job("stuck5", Asset("dead5") & Asset("never5"), IdentityMapper()),
    )

    def commands_of_redis(day: str, runs: int) -> int:
        before = on.redis_calls()
        for hour in hours(day):
            on.give("hourly5", hour, hour)
        on.flush()
        on.until_commands("day_sum5", runs, timeout=10)
        return on.redis_calls() - before

    alone = commands_of_redis("2026-03-10", 1)
    for number in range(2_000):
        on.give("dead5", f"stuck-{number:04}", f"stuck-{number}")
    on.settle()
    beside = commands_of_redis("2026-03-11", 2)
    # A look at every open round would be 2,000 more.
    assert beside < alone + 1_000, (alone, beside)
    stuck = on.waiting("stuck5")
    assert len(stuck) == 2_000
    assert set(stuck.values()) == {(1, 2)}


def test_b044_a_member_of_a_week_that_fired_comes_again(on: Stack) -> None:
    on.apply(
        job("week44", Asset("daily44"), weeks()),
        job("some44", Asset("daily44"), weeks(MinimumCount(1))),
        job("again44", Asset("daily44"), weeks(), RerunPolicy.REFIRE),
    )
    for day in WEEK:
        on.give("daily44", day, day)
    for name in ("week44", "some44", "again44"):
        on.until_commands(name, 1)
    on.give("daily44", "2026-03-12", "again")
    on.until_commands("again44", 2)
    on.settle()
    assert [ids(each) for each in on.commands("week44")] == [WEEK]
    assert [ids(each) for each in on.commands("some44")] == [WEEK[:1]]
    first, second = on.commands("again44")
    assert (first["generation"], second["generation"], second["partition_key"]) == (1, 2, THE_WEEK)
    assert ids(second) == [*WEEK[:3], *WEEK[4:], "again"]
    for name in ("week44", "some44", "again44"):
        assert on.waiting(name) == {}
    said = {(each["kind"], each["event_id"], each["partition_key"]) for each in on.audit(job="week44")}
    assert said == {("member-rerun", "again", THE_WEEK)}


def test_b045_events_of_two_days_are_not_mixed_under_one_recurring_key(on: Stack) -> None:
    on.apply(job("regions45", Asset("regional45"), segments("all", "us", "eu", "apac")))
    for region, id in (("us", "us1"), ("eu", "eu1"), ("us", "us2"), ("eu", "eu2"), ("apac", "apac2")):
        on.give("regional45", region, id)
    on.until_commands("regions45", 1)
    on.settle()
    assert [ids(each) for each in on.commands("regions45")] == [["apac2", "eu2", "us2"]]
    replaced = on.audit("member-replaced", job="regions45")
    assert {each["details"]["replaced_event_id"] for each in replaced} == {"us1", "eu1"}
    assert on.waiting("regions45") == {}


def test_b050_a_member_that_is_missing_stays_missing_however_often_others_come(on: Stack) -> None:
    names = [f"a50-{number:02}" for number in range(1, 17)]
    on.apply(job("sixteen50", AssetAll(*map(Asset, names))))
    for name in names[:15]:
        on.give(name, "k", name)
    on.until_waiting("sixteen50", {"k": (15, 16)})
    for number in range(9):
        on.give(names[6], "k", f"newer-{number}")
    on.flush()
    for replica in on.replicas("rollup"):
        replica.stop()
        replica.start()
    for replica in on.replicas("rollup"):
        replica.wait_ready()
    on.settle()
    assert on.commands("sixteen50") == []
    assert on.waiting("sixteen50") == {"k": (15, 16)}
    on.give(names[15], "k", names[15])
    on.until_commands("sixteen50", 1)
    on.settle()
    (command,) = on.commands("sixteen50")
    assert ids(command) == sorted([*names[:6], "newer-8", *names[7:]])


def test_b051_every_event_of_one_key_is_in_the_record_of_one_run(on: Stack) -> None:
    on.apply(job("copy51", Asset("a51"), StartOfDayMapper()))
    for number, time in enumerate(("09:01:00", "09:01:00", "09:02:00")):
        on.give("a51", f"2026-08-19T{time}", f"event-{number}", extra={"file": number})
    on.until_commands("copy51", 3)
    on.settle()
    events = [each for command in on.commands("copy51") for each in command["triggering_asset_events"]]
    found = sorted((each["id"], each["extra"]["file"]) for each in events)
    assert found == [(f"event-{number}", number) for number in range(3)]
    assert {each["partition_key"] for each in on.commands("copy51")} == {"2026-08-19"}


def test_b052_a_burst_of_distinct_keys_gives_a_run_for_each(on: Stack) -> None:
    on.apply(job("copy52", Asset("a52")))
    keys = {linger: [f"{linger}-{number:04}" for number in range(1_000)] for linger in (0, 50)}
    for linger, burst in keys.items():
        sender = producer(on.at.kafka, linger)
        for key in burst:
            sender.produce("asset-events", event("a52", key, key), "a52")
        assert sender.flush(30) == 0
    on.until_commands("copy52", 2_000)
    on.settle()
    assert sorted(each["partition_key"] for each in on.commands("copy52")) == sorted(keys[0] + keys[50])


def test_b053_sixteen_producers_of_one_partition_at_one_instant_all_succeed(on: Stack) -> None:
    on.apply(job("day_sum53", Asset("hourly53"), days()))
    together, errors = Barrier(16), list[KafkaError]()

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    def publish(number: int) -> int:
        sender = producer(on.at.kafka, 0)
        value = event("hourly53", "2026-03-10T05", f"event-{number}")
        sender.list_topics("asset-events", timeout=10)
        together.wait(30)
        sender.produce("asset-events", value, "hourly53", on_delivery=note)
        return sender.flush(30)

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(publish, range(16))) == [0] * 16
    assert errors == []
    on.until_waiting("day_sum53", {"2026-03-10": (1, 24)})
    on.settle()
    assert on.waiting("day_sum53") == {"2026-03-10": (1, 24)}
    assert [each["kind"] for each in on.audit(job="day_sum53")] == ["member-replaced"] * 15
    assert not [each for each in on.outside.read("asset-events.rejected") if "hourly53" in str(each.value)]


def test_b055_a_new_job_starts_from_now_and_takes_what_was_stored_only_where_it_asks(on: Stack) -> None:
    first = date(2024, 1, 1)  # a Monday, so 500 days are 71 weeks and 3 days
    old = [(first + timedelta(days=n)).isoformat() for n in range(500)]
    for day in old:
        on.give("daily55", day, day)
    on.settle()
    created = on.apply(job("week55", Asset("daily55"), weeks()))
    on.give("daily55", "2026-03-10", "new")
    on.until_waiting("week55", {THE_WEEK: (1, 7)})
    again = on.apply(job("week55", Asset("daily55"), weeks()), delete=["week55"])
    on.give("daily55", "2026-03-11", "newer")
    on.until_waiting("week55", {THE_WEEK: (1, 7)})
    registered = on.audit("consumer-registered", job="week55")
    places = {f"definitions/0@{applied.changes[-1].revision}" for applied in (created, again)}
    assert {each["position"] for each in registered} == places
    assert on.commands("week55") == []

    pending = {"2025-05-12 (W20)": (3, 7), THE_WEEK: (2, 7)}
    for _ in range(2):  # what was taken once is taken no more
        assert "501 stored events" in on.tidegate("replay", "week55", "--by", "ana")
        on.until_commands("week55", 71)
        on.settle()
        commands = on.commands("week55")
        assert sorted(each for command in commands for each in ids(command)) == old[: 71 * 7]
        assert {len(command["triggering_asset_events"]) for command in commands} == {7}
        assert on.waiting("week55") == pending
    told = on.audit("replayed", job="week55")
    assert [(each["details"]["by"], each["details"]["event_count"]) for each in told] == [("ana", 501)] * 2

    schedule = PartitionedAssetTimetable(Asset("daily55"), weeks())
    applied = on.apply(Job("asks55", schedule, replay_from="beginning"))
    assert [(each.job, each.events) for each in applied.replayed] == [("asks55", 502)]
    on.until_commands("asks55", 71)
    on.give("daily55", "2026-03-12", "newest")
    on.until_waiting("asks55", {"2025-05-12 (W20)": (3, 7), THE_WEEK: (3, 7)})
    assert on.audit(job="asks55") == on.audit("replayed", job="asks55")


def test_a_replay_is_in_the_order_in_which_the_broker_received_the_events_of_all_assets(on: Stack) -> None:
    for number in range(5):
        for asset, partition in (("left", 3), ("right", 2)):  # partitions are read in another order
            on.give(asset, "k", f"{asset}-{number}", partition=partition)
            on.flush()
    on.settle()
    both = PartitionedAssetTimetable(Asset("left") & Asset("right"), FixedKeyMapper("all"))
    applied = on.apply(Job("pairs", both, replay_from=datetime(2000, 1, 1, tzinfo=UTC)))
    assert [(each.events, each.contributions) for each in applied.replayed] == [(10, 10)]
    on.until_commands("pairs", 5)
    on.settle()
    pairs = [[f"{asset}-{number}" for asset in ("left", "right")] for number in range(5)]
    assert [ids(each) for each in on.commands("pairs")] == pairs
    assert on.audit(job="pairs") == on.audit("replayed", job="pairs")


def test_b060_an_event_that_comes_directly_and_by_an_alias_gives_one_run_that_names_both_ways(
    on: Stack,
) -> None:
    on.apply(job("two60", Asset("a60") | AssetAlias("out60")))
    on.give("a60", "k", "both ways", aliases=["out60"])
    on.until_commands("two60", 1)
    on.settle()
    (command,) = on.commands("two60")
    (came,) = command["triggering_asset_events"]
    assert (command["partition_key"], came["id"], came["asset"]) == ("k", "both ways", "a60")
    assert came["routes"] == ["a60", "out60"]
    assert on.audit(job="two60") == []


def test_b064_an_event_whose_asset_left_the_schedule_is_told_of_and_the_round_goes_on(on: Stack) -> None:
    on.apply(job("join64", Asset("a64") & Asset("b64")))
    on.give("a64", "k", "left")
    on.until_waiting("join64", {"k": (1, 2)})
    on.apply(job("join64", Asset("b64")))
    until(lambda: on.audit("round-closed", job="join64"), "the event to be told of")
    on.give("b64", "k", "stays")
    on.until_commands("join64", 1)
    on.settle()
    assert [(each["partition_key"], ids(each)) for each in on.commands("join64")] == [("k", ["stays"])]
    assert [each["event_id"] for each in on.audit("round-closed", job="join64")] == ["left"]


def test_b065_a_definition_that_begins_earlier_runs_nothing_again_but_what_is_new(on: Stack) -> None:
    def begins(day: date) -> Job:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return Job("week65", PartitionedAssetTimetable(Asset("daily65"), weeks()), start_date=start)

    first, earlier = date(2025, 6, 2), date(2025, 5, 26)
    on.apply(begins(first))
    for n in range(350):
        day = (first + timedelta(days=n)).isoformat()
        on.give("daily65", day, day)
    on.until_commands("week65", 50)
    applied = on.apply(begins(earlier))
    on.until_folded("week65", applied.changes[-1].revision)
    on.settle()
    assert len(on.commands("week65")) == 50
    for n in range(7):
        day = (earlier + timedelta(days=n)).isoformat()
        on.give("daily65", day, day)
    on.give("daily65", "2025-06-02", "made again")
    on.until_commands("week65", 51)
    on.settle()
    found = [each["partition_key"] for each in on.commands("week65")]
    assert len(found) == len(set(found)) == 51
    assert "2025-05-26 (W22)" in found
    assert [(each["kind"], each["event_id"]) for each in on.audit(job="week65")] == [
        ("member-rerun", "made again")
    ]


def test_b099_the_last_member_is_not_lost_where_redis_refuses_just_then(on: Stack) -> None:
    on.apply(job("regions99", Asset("regional99"), segments("all", "us", "eu", "apac")))
    for region in ("us", "eu"):
        on.give("regional99", region, region)
    on.until_waiting("regions99", {"all": (2, 3)})
    on.settle()
    rollups = on.replicas("rollup")
    for each in rollups:
        each.kill(signal.SIGSTOP)
    on.give("regional99", "apac", "apac")
    on.flush()
    until(lambda: on.behind() == {"rollup": 1}, "the last member to wait for the rollup alone")
    with Redis.from_url(on.at.redis) as redis:
        redis.config_set("maxmemory", 1)  # from now on every write is answered with an error
        try:
            for each in rollups:
                each.kill(signal.SIGCONT)

            def refusals() -> int:
                return sum(each.log_file.read_text().count("'maxmemory'") for each in rollups)

            until(lambda: refusals() >= 2, "Redis to refuse the rollup twice")
            assert not all(each.ready().get("ready") for each in rollups)
        finally:
            redis.config_set("maxmemory", 0)
    on.until_commands("regions99", 1)
    on.settle()
    assert [ids(each) for each in on.commands("regions99")] == [["apac", "eu", "us"]]
    assert on.audit(job="regions99") == []
    assert on.outside.read("asset-events.rejected") == []


def test_b099_a_round_runs_once_though_the_step_that_completes_it_fails_five_times(on: Stack) -> None:
    on.apply(job("fails99", Asset("fails99"), segments("all", "us", "eu", "apac")))
    for region in ("us", "eu"):
        on.give("fails99", region, region)
    on.until_waiting("fails99", {"all": (2, 3)})
    for each in on.replicas("rollup"):
        each.stop()
    faulty = on.at.service("rollup", "rollup-faulty", TIDEGATE_CRASH_POINT="rollup.sent:5:fail")
    with faulty:
        faulty.wait_ready()
        on.give("fails99", "apac", "apac")
        on.until_commands("fails99", 1)
        on.settle()
        failed = [name for name in faulty.log_file.read_text().splitlines() if "InjectedError" in name]
        assert len(failed) == 5
        assert [ids(each) for each in on.commands("fails99")] == [["apac", "eu", "us"]]
    for each in on.replicas("rollup"):
        each.start()
    assert on.audit(job="fails99") == []


def test_b117_members_meet_though_the_topic_of_events_has_grown_between_them(on: Stack) -> None:
    on.apply(job("regions117", Asset("regional117"), segments("all", "us", "eu", "apac")))
    on.give("regional117", "us", "us", partition=1)
    on.until_waiting("regions117", {"all": (1, 3)})
    wanted = [NewPartitions("asset-events", 2 * PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": on.at.kafka})
    admin.create_partitions(wanted)["asset-events"].result(30)
    sender = producer(on.at.kafka)
    for region, partition in (("eu", PARTITIONS + 1), ("apac", 2 * PARTITIONS - 1)):
        sender.produce("asset-events", event("regional117", region, region), None, partition)
    assert sender.flush(30) == 0
    on.until_commands("regions117", 1)
    on.settle()
    assert [ids(each) for each in on.commands("regions117")] == [["apac", "eu", "us"]]
