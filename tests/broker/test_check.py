"""`tidegate check`: Redis is broken by hand, and what was broken is told, repaired from Kafka and audited."""

from collections import Counter

import pytest
import redis

from tests.broker.conftest import Install, Installed, read_all, until_async
from tests.broker.events import audit, event, give
from tests.broker.rounds import apply
from tests.servers.command_line import tidegate
from tests.servers.services import services
from tidegate import Asset, DayWindow, Job, PartitionedAssetTimetable, RollupMapper, StartOfHourMapper
from tidegate.contracts.placement import shard_of
from tidegate.contracts.runs import RunCommand
from tidegate.contracts.topics import run_commands_topic
from tidegate.core.audit import AuditKind

SHARDS = 4
DAYS = Job("days", PartitionedAssetTimetable(Asset("hourly"), RollupMapper(StartOfHourMapper(), DayWindow())))


async def check(at: Installed, *options: str) -> tuple[int, str]:
    """The exit code and the output of the command."""
    said = await tidegate(at, "check", "--settle", "0.1", "--by", "ana", *options)
    assert said.exit_code in (0, 1), said.text
    return said.exit_code, said.out


def hours(day: int, some: range) -> list[bytes]:
    return [
        event(f"{day}-{hour}", "hourly", partition_key=f"2026-03-{day:02d}T{hour:02d}:00:00") for hour in some
    ]


async def commands(at: Installed) -> Counter[str | None]:
    topic = run_commands_topic(DAYS.id, at.partitions).name
    return Counter(
        RunCommand.from_bytes(record.value).partition_key for record in await read_all(at.kafka, topic)
    )


@pytest.mark.timeout(240)  # seven runs of the command
@pytest.mark.parametrize("backend", ["real"], indirect=True)
async def test_what_was_broken_by_hand_is_told_repaired_and_audited(install: Install) -> None:
    at = install(shards=SHARDS)
    env = {"TIDEGATE_NAMESPACE": at.namespace, "TIDEGATE_INSTANCE_ID": "one"}
    days = range(1, 13)
    names = {day: f"2026-03-{day:02d}" for day in days}
    with (
        redis.Redis.from_url(at.redis, decode_responses=True) as client,
        services(("ingest", "mapper", "rollup", "dispatcher"), at.backend, at.log_folder, env) as running,
    ):
        await apply(at, DAYS)
        await give(at, *hours(1, range(24)), *(each for day in days[1:] for each in hours(day, range(10))))

        def prefix(day: int) -> str:
            return f"{at.namespace}:{{{shard_of('days', names[day], SHARDS)}}}:"

        def round_of(day: int) -> str:
            (key,) = client.scan_iter(f"{prefix(day)}round:days/*/{names[day]}", count=1_000)
            return str(key)

        async def is_folded() -> bool:
            open_rounds = [*client.scan_iter(f"{at.namespace}:*round:days/*", count=1_000)]
            counts = [client.hget(key, "count:0") for key in open_rounds]
            return counts == ["10"] * len(days[1:]) and await commands(at) == Counter([names[1]])

        await until_async(is_folded, "what was sent to be folded")
        running["rollup"].wait_ready()
        await until_async(lambda: _agrees(at), "Redis and Kafka to agree")

        # Nobody owns the partitions now, so that what is broken stays so.
        for service in running.values():
            service.stop()
        broken, changed, lost = _of_different_shards(names)
        client.hdel(round_of(broken), "m:0:3")
        client.hset(round_of(changed), "count:0", "9")
        client.delete(*client.scan_iter(f"{prefix(lost)}*", count=1_000))
        client.hset(f"{prefix(broken)}moved:9.0.2.1", "job", "[]")
        client.zadd(f"{prefix(changed)}open", {"ghost/i/k": 0})
        client.hset(f"{prefix(changed)}round:ghost/i/k", "opened", "0.0.1")
        (runs,) = client.scan_iter(f"{at.namespace}:{{d*runs", count=1_000)
        client.delete(runs, runs.replace(":runs", ":log"), runs.replace(":runs", ":sent"))

        code, said = await check(at, "--deep")
        assert code == 1
        assert f"round {round_of(broken).split('round:')[1]!r}: 'm:0:3' is missing, the log gives" in said
        assert f"round {round_of(changed).split('round:')[1]!r}: 'count:0' is '9', the log gives '10'" in said
        shard = prefix(lost).partition("{")[2].partition("}")[0]
        assert f"shard {shard} of contributions/{int(shard) % 2}: Redis holds nothing of it" in said
        assert "a round to map again that no outbox names" in said
        assert "1 open rounds of job 'ghost' (i), which is not defined" in said
        assert f"runs/{runs.partition('{d')[2].partition('}')[0]}: Redis holds none of its" in said
        *told, last = said.splitlines()
        possible = said.count("  to do: `tidegate check --repair` does it: ")
        assert said.count("  to do: ") == len(told) // 2 == possible + 1, (
            "the lost shard is built again anyway"
        )
        assert (
            last
            == f"{len(told) // 2} differences: {possible} that --repair sees to, 1 for a person to see to"
        )
        assert not [*client.scan_iter(f"{at.namespace}-check*", count=1_000)], (
            "the scratch namespace is dropped"
        )

        code, said = await check(at, "--deep", "--repair")
        assert code == 1
        assert "repairing" in said
        assert said.endswith(" repaired, 1 for a person to see to\n")
        kinds = Counter((each.details or {})["repair"] for each in await audit(at, AuditKind.STATE_REPAIRED))
        assert kinds == {"DROP_SHARD": 2, "RESET_RUNS": 1, "CLOSE_JOB": 1, "DELETE": 1}
        for service in running.values():
            service.start()
        for service in running.values():
            service.wait_ready()
        await until_async(lambda: _agrees(at), "what was dropped to be built again", 60)

        await give(at, *(each for day in days[1:] for each in hours(day, range(10, 24))))

        async def are_there() -> bool:
            return (await commands(at)).total() >= len(days)

        await until_async(are_there, "every window to fire")
        assert await commands(at) == Counter(names.values())


async def _agrees(at: Installed) -> bool:
    code, said = await check(at, "--deep")
    assert code or said == "Redis and Kafka agree\n"
    return code == 0


def _of_different_shards(names: dict[int, str]) -> tuple[int, int, int]:
    by_shard = {shard_of("days", name, SHARDS): day for day, name in names.items() if day > 1}
    first, second, third, *_ = by_shard.values()
    return first, second, third
