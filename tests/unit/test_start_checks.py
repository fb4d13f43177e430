"""What is found held against what is wanted, at start-up."""

from datetime import timedelta

import pytest

from tidegate import (
    Asset,
    DayWindow,
    FixedKeyMapper,
    IdentityMapper,
    Job,
    MonthWindow,
    PartitionedAssetTimetable,
    QuarterWindow,
    RollingWindow,
    RollupMapper,
    SegmentWindow,
    StartOfDayMapper,
    StartOfHourMapper,
    StartOfMonthMapper,
    StartOfYearMapper,
    WaitForAll,
    WeekWindow,
    YearWindow,
)
from tidegate.contracts.definitions import Installation
from tidegate.contracts.topics import CONTRIBUTIONS, DEFINITIONS, declared_topics, run_commands_topic
from tidegate.runtime.redis import Memory, addresses
from tidegate.runtime.start_checks import (
    LongestWait,
    MadeBy,
    longest_wait,
    memory_problems,
    metadata_problems,
    retention_warnings,
    state_problems,
)
from tidegate.runtime.topic_admin import FoundTopic, Mismatch, differences

TOPICS = {topic.name: topic for topic in declared_topics(2)}
DAY_MS = 86_400_000


def as_declared(copies: int = 1) -> dict[str, FoundTopic]:
    return {name: FoundTopic(each.partitions, copies, each.config) for name, each in TOPICS.items()}


def changed(name: str, count: int = 0, copies: int = 1, **config: str) -> list[Mismatch]:
    """What differs where one topic does."""
    found = as_declared()
    before = found[name]
    found[name] = FoundTopic(
        count or before.partitions,
        copies,
        {**before.config, **{key.replace("_", "."): value for key, value in config.items()}},
    )
    return differences(found, list(TOPICS.values()))


def test_topics_as_declared_do_not_differ() -> None:
    assert differences(as_declared(), list(TOPICS.values())) == []
    assert differences(as_declared(copies=3), list(TOPICS.values())) == []


@pytest.mark.parametrize("name", sorted(TOPICS))
def test_every_topic_must_be_there(name: str) -> None:
    found = as_declared()
    del found[name]
    assert list(map(str, differences(found, list(TOPICS.values())))) == [
        f"{name}: topic is missing, wanted present: `tidegate topics create` makes it"
    ]


def test_counts_of_our_own_topics_are_fixed_and_public_ones_never_shrink() -> None:  # E3, B118
    assert list(map(str, changed(CONTRIBUTIONS, count=3))) == [
        "contributions: partition count is 3, wanted 2"
    ]
    assert changed("asset-events", count=3) == []
    assert list(map(str, changed("asset-events", count=1))) == [
        "asset-events: partition count is 1, wanted at least 2"
    ]
    own = run_commands_topic("job", 2)
    assert differences({own.name: FoundTopic(1)}, [own]) == []  # a job may bring a topic of its own


def test_what_changes_the_meaning_of_a_log_is_refused() -> None:
    assert list(map(str, changed(CONTRIBUTIONS, message_timestamp_type="CreateTime"))) == [
        "contributions: message.timestamp.type is CreateTime, wanted LogAppendTime"
    ]
    assert list(map(str, changed("runs", cleanup_policy="delete"))) == [
        "runs: cleanup.policy is delete, wanted compact"
    ]
    assert list(map(str, changed("run-requests", max_message_bytes="1048576"))) == [
        "run-requests: max.message.bytes is 1048576, wanted at least 8454144"
    ]


def test_b118_a_topic_that_came_back_with_fewer_copies_is_refused() -> None:
    found = as_declared(copies=3)
    found["asset-events"] = FoundTopic(2, 1, found["asset-events"].config)
    assert list(map(str, differences(found, list(TOPICS.values())))) == [
        "asset-events: replication factor is 1, wanted at least 3, as `definitions` has"
    ]


def test_what_a_broker_does_not_tell_is_passed_over() -> None:
    bare = {name: FoundTopic(each.partitions) for name, each in TOPICS.items()}
    assert differences(bare, list(TOPICS.values())) == []
    assert retention_warnings(bare, {}, LongestWait("j", timedelta(days=366)), timedelta(days=7)) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl"])
def test_b125_a_redis_that_evicts_is_refused_by_the_name_of_its_policy(policy: str) -> None:
    (problem,) = memory_problems([Memory("", "noeviction"), Memory("one:6379", policy)])
    assert problem.startswith(f"Redis one:6379 has maxmemory-policy '{policy}'")
    assert "CONFIG SET maxmemory-policy noeviction" in problem


def test_b125_a_policy_that_is_not_told_needs_a_persons_word() -> None:
    (problem,) = memory_problems([Memory("", None)])
    assert "TIDEGATE_TRUST_REDIS_POLICY=true" in problem
    assert memory_problems([Memory("", None)], trust=True) == []
    assert memory_problems([Memory("", "allkeys-lru")], trust=True), "what is told is never trusted away"


def test_b125_a_full_redis_is_said_to_be_full() -> None:
    assert memory_problems([Memory("", "noeviction", 99, 100), Memory("", "noeviction", 99, 0)]) == []
    (problem,) = memory_problems([Memory("", "noeviction", 100, 100)])
    assert "uses 100 of 100 bytes" in problem


def test_state_is_used_only_by_the_installation_that_made_it() -> None:
    made = MadeBy(4, 16, "a b")
    assert MadeBy.from_text(str(made)) == made
    assert state_problems(made, made) == []
    (problem,) = state_problems(made, MadeBy(4, 8, "a b"))
    assert "4 partitions and 16 shards, the installation says 4 and 8" in problem
    (problem,) = state_problems(made, MadeBy(4, 16, "other"))
    assert "`definitions` was created again" in problem


def declared(window: object, mapper: object, policy: WaitForAll | None = None, id: str = "job") -> Job:
    return Job(
        id, PartitionedAssetTimetable(Asset("a"), RollupMapper(mapper, window, policy or WaitForAll()))
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "days"),
    [
        (declared(DayWindow(), StartOfHourMapper()), 1),
        (declared(DayWindow(), StartOfHourMapper(timezone="America/New_York")), 1),
        (declared(WeekWindow(), StartOfDayMapper()), 7),
        (declared(MonthWindow(), StartOfDayMapper()), 31),
        (declared(QuarterWindow(), StartOfMonthMapper()), 92),
        (declared(YearWindow(), StartOfMonthMapper()), 366),
        (declared(RollingWindow(30), StartOfDayMapper()), 30),
        (declared(DayWindow(), StartOfHourMapper(), WaitForAll().or_after(timedelta(days=2))), 1),
        (
            declared(
                DayWindow(), StartOfHourMapper(), WaitForAll().or_after(timedelta(days=2), since="window_end")
            ),
            3,
        ),
        (
            declared(
                SegmentWindow(["us", "eu"]), FixedKeyMapper("all"), WaitForAll().or_after(timedelta(days=5))
            ),
            5,
        ),
        (declared(SegmentWindow(["us", "eu"]), FixedKeyMapper("all")), None),
        (Job("each", PartitionedAssetTimetable(Asset("a"), IdentityMapper())), None),
    ],
)
def test_how_long_the_rounds_of_a_job_wait_for_their_window(job: Job, days: int | None) -> None:
    wanted = None if days is None else LongestWait(job.id, timedelta(days=days))
    assert longest_wait([job]) == wanted


def test_the_longest_of_all_jobs_counts() -> None:
    short, long = (
        declared(DayWindow(), StartOfHourMapper()),
        declared(YearWindow(), StartOfYearMapper(), id="years"),
    )
    assert (
        longest_wait([long, short])
        == longest_wait([short, long])
        == LongestWait("years", timedelta(days=366))
    )


def warned(name: str, broker: dict[str, str] | None = None, days: int = 7, **config: str) -> list[str]:
    found = as_declared()
    settings = {key.replace("_", "."): value for key, value in config.items()}
    found[name] = FoundTopic(2, 1, {**found[name].config, **settings})
    return retention_warnings(
        found, broker or {}, LongestWait("job", timedelta(days=days)), timedelta(days=7)
    )


def test_a_log_that_does_not_reach_back_over_the_longest_window_and_the_horizon_is_warned_of() -> None:  # R2
    assert warned(CONTRIBUTIONS, days=38) == []  # 45 days are kept
    (warning,) = warned(CONTRIBUTIONS, days=39)
    assert "39 days of job 'job'" in warning
    assert str(46 * DAY_MS) in warning
    assert warned(CONTRIBUTIONS, days=366, retention_ms="-1") == []
    (warning,) = warned(CONTRIBUTIONS, retention_bytes="1000000")
    assert "retention.bytes 1000000" in warning


def test_offsets_that_are_forgotten_before_their_log_are_warned_of() -> None:  # R3
    kept = str(45 * 24 * 60)
    assert warned(CONTRIBUTIONS, {"offsets.retention.minutes": kept}) == []
    (warning,) = warned(CONTRIBUTIONS, {"offsets.retention.minutes": "10080"})
    assert "for 7 days, and logs for 45 days" in warning
    (warning,) = warned(CONTRIBUTIONS, {"offsets.retention.minutes": kept}, retention_ms="-1")
    assert "logs for ever" in warning


def test_definitions_that_are_compacted_before_their_events_are_warned_of() -> None:  # I3
    (warning,) = warned(DEFINITIONS, min_compaction_lag_ms=str(44 * DAY_MS))
    assert f"min.compaction.lag.ms to {45 * DAY_MS}" in warning


def test_several_nodes_of_a_cluster_are_one_setting() -> None:
    assert addresses("redis://one:6379/0") == ["redis://one:6379/0"]
    assert addresses("rediss://u:p,w@one:1,two:2/0?a=b") == [
        "rediss://u:p,w@one:1/0?a=b",
        "rediss://u:p,w@two:2/0?a=b",
    ]
    assert addresses("redis://[::1]:6379") == ["redis://[::1]:6379"]


def test_more_partitions_of_events_than_a_commit_can_tell_of_are_refused_with_what_to_set() -> None:  # I1
    counts = Installation(partitions=256, shards=128)
    own = {"asset-events": 200, "asset-events.rejected": 5_000, "contributions": 256, "asset-eventsx": 5_000}
    assert metadata_problems(counts, own | {"asset-events.blue": 200}, {}) == []
    more = own | {"asset-events.blue": 230}
    (said,) = metadata_problems(counts, more, {})
    assert "430 partitions of `asset-events` and its teams' topics" in said
    assert "of which the brokers allow 4096: set their offset.metadata.max.bytes to 5120 or more" in said
    assert metadata_problems(counts, more, {"offset.metadata.max.bytes": "5120"}) == []
    (said,) = metadata_problems(counts, {"asset-events": 100}, {"offset.metadata.max.bytes": "1700"})
    assert "there are 128 shards" in said
