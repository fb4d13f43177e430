"""Nothing is dropped in silence: `explain`, `audit`, `dead-letters` and `redrive` on the services as processes.

They are started once; every test has jobs and assets of its own.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.broker.conftest import Installed, end_of, install_on, read_all, run_apart, send, until_async
from tests.broker.events import audit, event, give
from tests.broker.rounds import apply
from tests.servers.backends import Backend
from tests.servers.command_line import tidegate, tidegate_json
from tests.servers.services import ServiceProcess, services
from tidegate import (
    AllowedKeyMapper,
    Asset,
    DayWindow,
    FixedKeyMapper,
    Job,
    PartitionedAssetTimetable,
    RollupMapper,
    SegmentWindow,
    StartOfHourMapper,
    WaitForAll,
)
from tidegate.contracts.definitions import DefinitionRecord
from tidegate.contracts.runs import RunCommand
from tidegate.contracts.topics import ASSET_EVENTS, DEFINITIONS
from tidegate.core.audit import AuditKind
from tidegate.core.rounds import RerunPolicy
from tidegate.definitions import Definitions
from tidegate.runtime.applying import apply_definitions
from tidegate.runtime.positions import committed_positions
from tidegate.runtime.topic_admin import admin_client

pytestmark = pytest.mark.timeout(180)

REGIONS = SegmentWindow(["us", "eu", "apac"])
HOUR = timedelta(hours=1)


def by_region(id: str, policy: WaitForAll | None = None, rerun_policy: RerunPolicy | None = None) -> Job:
    """D-SEG on an asset of the job's own."""
    rollup = RollupMapper(FixedKeyMapper("all"), REGIONS, policy or WaitForAll())
    return Job(id, PartitionedAssetTimetable(Asset(f"{id}_in"), rollup, rerun_policy=rerun_policy))


JOBS = (
    by_region("b103", rerun_policy=RerunPolicy.IGNORE),
    by_region("b104"),
    by_region("b097", WaitForAll().or_after(HOUR)),
    Job(
        "b011",
        PartitionedAssetTimetable(Asset("b011_in"), RollupMapper(StartOfHourMapper(), DayWindow())),
    ),
    Job("b089", PartitionedAssetTimetable(Asset("b089_in"), AllowedKeyMapper(["us"]))),
    Job("b094", PartitionedAssetTimetable(Asset("b094_in"))),
    Job("b115", PartitionedAssetTimetable(Asset("b115_in"))),
    Job("plain", Asset("plain_in") & Asset("plain_other")),
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    at: Installed
    ingest: ServiceProcess


@pytest.fixture(scope="module")
def pipeline(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    at = install_on(backend, tmp_path_factory.mktemp("explain"))
    env = {
        "TIDEGATE_NAMESPACE": at.namespace,
        "TIDEGATE_CLOCK_SKEW_LIMIT_S": "60",
        "TIDEGATE_INSTANCE_ID": "one",
    }
    names = ("ingest", "mapper", "rollup", "dispatcher")
    run_apart(apply_definitions(at.kafka, Definitions(JOBS)))
    with services(names, backend, at.log_folder, env) as started:
        yield Pipeline(at, started["ingest"])


@pytest.fixture
def at(pipeline: Pipeline) -> Installed:
    return pipeline.at


async def commands(at: Installed, job: str) -> list[RunCommand]:
    return [RunCommand.from_bytes(each.value) for each in await read_all(at.kafka, f"run-commands.{job}")]


async def until_commands(at: Installed, job: str, count: int) -> list[RunCommand]:
    async def are_there() -> bool:
        return len(await commands(at, job)) >= count

    await until_async(are_there, f"{count} commands of {job}")
    return await commands(at, job)


async def until_audited(at: Installed, kind: AuditKind, *event_ids: str) -> None:
    async def are_there() -> bool:
        return set(event_ids) <= {each.event_id for each in await audit(at, kind)}

    await until_async(are_there, f"{kind} of {event_ids}")


async def until_explained(at: Installed, job: str, key: str, **wanted: Any) -> dict[str, Any]:
    """The report on a round once its fields are as wanted."""
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        found.update(await tidegate_json(at, "explain", job, key))
        return {name: found[name] for name in wanted} == wanted

    await until_async(is_so, f"{job} {key} to be explained by {wanted}")
    return found


async def test_b103_an_event_completed_a_run_was_part_of_it_or_came_too_late_in_every_view(
    at: Installed,
) -> None:
    ids = {name: f"b103-{name}" for name in ("us", "eu", "apac", "us2")}
    await give(at, *(event(ids[name], "b103_in", partition_key=name) for name in ("us", "eu", "apac")))
    (command,) = await until_commands(at, "b103", 1)
    await give(at, event(ids["us2"], "b103_in", partition_key="us"))
    await until_audited(at, AuditKind.MEMBER_RERUN, ids["us2"])

    report = await tidegate_json(at, "explain", "b103", "all")
    (run,) = report["runs"]
    assert (run["run_id"], run["generation"], run["state"]) == (command.run_id, 1, "sent")
    assert report["assets"] == [], "nothing is missing from a round that has fired"
    in_window = {
        each["event_id"]: [(fate[0], fate[2]) for fate in each["fates"]] for each in report["events"]
    }
    assert in_window == {
        ids["us"]: [("included", command.run_id)],
        ids["eu"]: [("included", command.run_id)],
        ids["apac"]: [("completed", command.run_id)],
        ids["us2"]: [("member-rerun", None)],
    }
    whole = {each["event_id"]: each["fates"] for each in report["events"]}
    for event_id, fates in whole.items():
        (found,) = (await tidegate_json(at, "explain", "--event", event_id))["events"]
        jobs = {each["job"]: each for each in found["jobs"]}
        assert jobs["b103"]["fates"] == fates
        assert jobs["b103"]["why_not"] is None
        assert "does not wait for asset 'b103_in'" in jobs["plain"]["why_not"]
    said = (await tidegate(at, "explain", "--event", ids["apac"])).text
    assert f"reached      b103: completed run {command.run_id}" in said
    assert "starts no run" in (await tidegate(at, "explain", "--event", ids["us2"])).text


async def test_b104_of_two_events_with_one_time_stamp_the_later_offset_is_the_last_seen(
    at: Installed,
) -> None:
    first = [event(f"b104-{n}", "b104_in", partition_key="eu") for n in range(20)]
    offsets = await give(at, *first)
    await give(at, *(event(f"b104-{name}", "b104_in", partition_key=name) for name in ("us", "apac")))
    await until_commands(at, "b104", 1)
    await give(at, event("b104-next", "b104_in", partition_key="us"))
    report = await until_explained(
        at, "b104", "all", verdict="waits for b104_in: 1 of 3 are in, 3 are needed"
    )
    (asset,) = report["assets"]
    assert (asset["arrived"], asset["expected"], asset["needed"]) == (1, 3, 3)
    missing = {each["name"]: each["last_seen"][1] for each in asset["missing"]}
    assert missing == {"eu": "b104-19", "apac": "b104-apac"}
    seen = {each["name"]: each["last_seen"][3] for each in asset["missing"]}
    assert seen["eu"] == f"{ASSET_EVENTS}/0@{offsets[-1]}"


async def test_b097_skewed_clocks_of_producers_decide_nothing_and_are_shown(pipeline: Pipeline) -> None:
    at, now = pipeline.at, datetime.now(UTC)
    times = {"us": now + timedelta(seconds=90), "eu": now - timedelta(minutes=10), "apac": now}
    values = {
        region: json.loads(event(f"b097-{region}", "b097_in", partition_key=region))
        | {"time": time.isoformat()}
        for region, time in times.items()
    }
    await give(at, *(json.dumps(values[region]).encode() for region in ("us", "eu")))
    report = await until_explained(
        at, "b097", "all", verdict="waits for b097_in: 2 of 3 are in, 3 are needed"
    )
    then, due = report["deadline"]
    opened = datetime.fromisoformat(report["opened_at"])
    assert (then, datetime.fromisoformat(due) - opened) == ("fire", HOUR), "by the broker's clock"
    assert abs(opened - now) < timedelta(seconds=60)
    assert [each["name"] for each in report["assets"][0]["missing"]] == ["apac"]
    assert report["assets"][0]["missing"][0]["last_seen"] is None
    text = (await tidegate(at, "explain", "b097", "all")).text
    assert "missing, not seen since" in text
    assert "then fire" in text
    await give(at, json.dumps(values["apac"]).encode())
    (command,) = await until_commands(at, "b097", 1)
    assert {each.id for each in command.triggering_asset_events} == {f"b097-{each}" for each in times}
    skewed = {each.event_id: (each.details or {})["skew_s"] for each in await audit(at, AuditKind.CLOCK_SKEW)}
    assert skewed.keys() == {"b097-us", "b097-eu"}
    assert skewed["b097-us"] == pytest.approx(90, abs=30)
    assert skewed["b097-eu"] == pytest.approx(-600, abs=30)
    assert "clock-skew" in (await tidegate(at, "explain", "--event", "b097-eu")).text
    counted = 'tidegate_audit_entries_total{kind="clock-skew",service="ingest"}'
    assert pipeline.ingest.metrics()[counted] == 2


async def test_b011_events_without_a_key_are_counted_where_people_ask_why_nothing_ran(at: Installed) -> None:
    ids = [f"b011-{n}" for n in range(3)]
    await give(at, *(event(each, "b011_in", partition_key=None) for each in ids))
    await until_audited(at, AuditKind.NO_PARTITION_KEY, *ids)
    report = await tidegate_json(at, "explain", "b011", "2010-03-14")
    assert report["ignored_counts"] == {"no-partition-key": 3}
    assert [each["event_id"] for each in report["ignored_for_all_keys"]] == ids
    assert report["verdict"] == "no event of this key has reached the job"
    assert (report["assets"][0]["arrived"], report["assets"][0]["expected"]) == (0, 24)
    assert "3 no-partition-key" in (await tidegate(at, "explain", "b011", "2010-03-14")).text
    (found,) = (await tidegate_json(at, "explain", "--event", ids[0]))["events"]
    (why,) = [each["why_not"] for each in found["jobs"] if each["job"] == "b011"]
    assert why.startswith("no-partition-key: ")
    assert await commands(at, "b011") == []
    entries = await tidegate_json(at, "audit", "--job", "b011", "--kind", "no-partition-key", "--since", "1h")
    assert [each["event_id"] for each in entries] == ids
    assert await tidegate_json(at, "audit", "--job", "b011", "--kind", "cross-team") == []


async def test_b089_keys_that_are_not_allowed_run_nothing_and_open_nothing(at: Installed) -> None:
    keys = {"b089-0": "us", "b089-1": "eu", "b089-2": "US", "b089-3": "us "}
    await give(at, *(event(id, "b089_in", partition_key=key) for id, key in keys.items()))
    await until_audited(at, AuditKind.MAPPING_FAILED, "b089-1", "b089-2", "b089-3")
    assert [each.partition_key for each in await until_commands(at, "b089", 1)] == ["us"]
    pending = await tidegate_json(at, "pending", "b089")
    assert pending["total"] == 0
    report = await tidegate_json(at, "explain", "b089", "us")
    assert report["ignored_counts"] == {"mapping-failed": 3}
    assert [each["fates"][0][0] for each in report["events"]] == ["completed"]


async def test_b094_one_id_is_one_run_in_one_batch_in_a_later_one_and_after_a_restart(
    pipeline: Pipeline,
) -> None:
    at, one = pipeline.at, event("b094-1", "b094_in")
    counted = 'tidegate_audit_entries_total{kind="duplicate-event",service="ingest"}'

    async def until_duplicates(count: int) -> None:
        async def are_there() -> bool:
            entries = await audit(at, AuditKind.DUPLICATE_EVENT)
            return sum(each.event_id == "b094-1" for each in entries) == count

        await until_async(are_there, f"{count} duplicates")

    before = pipeline.ingest.metrics().get(counted, 0)
    await give(at, one, one, one)
    await until_duplicates(2)
    await give(at, one)
    await until_duplicates(3)
    assert pipeline.ingest.metrics()[counted] - before == 3
    pipeline.ingest.stop()
    pipeline.ingest.start().wait_ready()
    await give(at, one)
    await until_duplicates(4)
    assert pipeline.ingest.metrics()[counted] == 1
    assert len(await until_commands(at, "b094", 1)) == 1
    said = (await tidegate(at, "explain", "--event", "b094-1")).text
    assert said.count("duplicate-event") == 4
    assert "completed run" in said


B115: dict[str, tuple[bytes | None, str]] = {
    "not JSON": (b"temperature=7", "not-json"),
    "array": (b"[" + event("b115-bad") + b"]", "not-an-object"),
    "invalid UTF-8": (event("b115-bad").replace(b"hourly", b"hourl\xff"), "not-json"),
    "missing fields": (b'{"specversion":"1.0","id":"b115-bad","source":"/tests"}', "missing-field"),
    "schema version": (event("b115-bad").replace(b'"1.0"', b'"7.3"'), "unknown-version"),
    "tombstone": (None, "null-value"),
    "nested 10,000 levels": (
        event("b115-bad").replace(b'"hourly"', b"[" * 10_000 + b"]" * 10_000),
        "not-json",
    ),
    "800 kB": (event("b115-large", extra={"x": "x" * 800_000}), "too-large"),
}


async def test_b115_each_poison_record_is_one_dead_letter_and_the_log_goes_on(at: Installed) -> None:
    offsets = await give(at, *(value for value, _ in B115.values()), event("b115-good", "b115_in"))
    assert not await is_stored(at, b"x" * 5_000_000), "the broker itself refuses 5 MB"
    assert [each.completed_by for each in await until_commands(at, "b115", 1)] == ["b115-good"]
    letters = [
        each
        for each in await tidegate_json(at, "dead-letters", "--since", "1h")
        if each["offset"] in offsets and each["partition"] == 0
    ]
    assert [(each["offset"], each["code"]) for each in letters] == [
        (offset, code) for offset, (_, code) in zip(offsets, B115.values(), strict=False)
    ]
    for letter, (value, _) in zip(letters, B115.values(), strict=True):
        kept = None if letter["value_base64"] is None else b64decode(letter["value_base64"])
        assert letter["truncated"] is (value is not None and len(value) > 256 * 1024)
        assert kept == (value[:1024] if value and letter["truncated"] else value)
        assert letter["reason"]
    assert "800" in str(letters[-1]["size"])
    said = (await tidegate(at, "redrive", "--dead-letter", letters[-1]["place"])).text
    assert "only a part" in said
    found = await tidegate_json(at, "explain", "--event", "b115-bad")
    assert found["events"] == []
    assert {each["code"] for each in found["dead_letters"]} >= {"missing-field", "unknown-version"}

    async def has_moved() -> bool:
        async with admin_client(at.kafka) as admin:
            tp = TopicPartition(ASSET_EVENTS, 0)
            stored = await committed_positions(admin, f"{at.namespace}-ingest", [tp])
            return stored[tp].offset == await end_of(at.kafka, tp)

    await until_async(has_moved, "the offset to move to the end")


async def is_stored(at: Installed, value: bytes) -> bool:
    """Whether a broker takes a record, from a client that has no limit of its own."""
    producer = AIOKafkaProducer(bootstrap_servers=at.kafka, max_request_size=10_000_000)
    await producer.start()
    try:
        await producer.send_and_wait(ASSET_EVENTS, value, partition=1)
    except KafkaError:
        return False
    finally:
        await producer.stop()
    return True


async def test_a_dead_letter_is_sent_again_byte_for_byte_once_and_audited(at: Installed) -> None:
    """What it lacked has come meanwhile: here, nothing has, so that it is refused again and says where it came from."""
    value = event("redrive-1", "b115_in", partition_kye="k")
    await give(at, value)

    async def letters() -> list[Any]:
        found = await tidegate_json(at, "dead-letters")
        return [each for each in found if each["event_id"] == "redrive-1"]

    async def is_refused(count: int) -> list[Any]:
        async def are_there() -> bool:
            return len(await letters()) == count

        await until_async(are_there, f"{count} dead letters")
        return await letters()

    (first,) = await is_refused(1)
    said = await tidegate(at, "redrive", "--dead-letter", first["place"], "--by", "ana")
    assert said.exit_code == 0, said.text
    again = (await is_refused(2))[1]
    assert b64decode(again["value_base64"]) == value
    assert again["redriven_from"] == first["place"]
    assert (again["topic"], again["partition"]) == (first["topic"], first["partition"])
    said = await tidegate(at, "redrive", "--dead-letter", first["place"])
    assert said.exit_code != 0
    assert "sent again before, by ana" in said.text
    assert (await tidegate(at, "redrive", "--dead-letter", first["place"], "--again")).exit_code == 0
    third = (await is_refused(3))[2]
    assert [name for name, _ in third["headers"]] == ["tidegate-redriven"]
    (entry, other) = await tidegate_json(at, "audit", "--kind", "redriven", "--event", "redrive-1")
    cut = await tidegate(at, "dead-letters", "--limit", "1", "--json")
    assert [each["place"] for each in json.loads(cut.done)] == [third["place"]]
    assert re.fullmatch(r"1 of \d+ are listed: --limit \d+ lists all\n", cut.err)
    assert (entry["details"]["by"], entry["position"]) == ("ana", f"asset-events.rejected/{first['place']}")
    assert other["id"] != entry["id"]
    assert "there is no dead letter 0@9999" in (await tidegate(at, "redrive", "--dead-letter", "0@9999")).text


async def test_what_nobody_knows_is_said_helpfully(at: Installed) -> None:
    for command in (
        ("explain", "b1o3", "all"),
        ("runs", "b1o3"),
        ("pending", "b1o3"),
        ("audit", "--job", "b1o3"),
        ("replay", "b1o3"),
        ("pause", "b1o3"),
        ("trigger", "b1o3", "--key", "all"),
        ("discard", "b1o3", "all"),
        ("apply", "--delete", "b1o3"),
    ):
        assert "job 'b1o3' is not defined: did you mean 'b103'?" in (await tidegate(at, *command)).refused
    nothing = (await tidegate(at, "audit", "--event", "nobody's", "--since", "1h")).done
    assert re.search(r"no such audit entry since .*: look further back with --since", nothing)
    said = await tidegate(at, "explain", "--event", "nobody's")
    assert said.exit_code == 1
    assert 'no event "nobody\'s" was accepted' in said.text
    said = await tidegate(at, "explain", "b011", "not a day")
    assert said.exit_code == 0
    assert "'not a day' is no key that the job's mapper reads" in said.text
    said = await tidegate(at, "explain", "b011")
    assert "runs for partition keys" in said.text
    said = await tidegate(at, "explain", "plain", "k")
    assert "runs without partition keys" in said.text


async def test_a_job_without_keys_and_one_that_came_later_are_explained_too(at: Installed) -> None:
    await give(at, event("plain-1", "plain_in", partition_key=None))
    await until_explained(at, "plain", "-", verdict="waits for plain_other: 0 of 1 are in, 1 are needed")
    await apply(at, Job("later", Asset("plain_in")))
    (found,) = (await tidegate_json(at, "explain", "--event", "plain-1"))["events"]
    jobs = {each["job"]: each for each in found["jobs"]}
    assert [each[0] for each in jobs["plain"]["fates"]] == ["waiting"]
    assert "defined after the event came" in jobs["later"]["why_not"]
    await give(at, event("plain-2", "plain_other", partition_key=None))
    (command,) = await until_commands(at, "plain", 1)
    (found,) = (await tidegate_json(at, "explain", "--event", "plain-1"))["events"]
    jobs = {each["job"]: each for each in found["jobs"]}
    assert [each[::2] for each in jobs["plain"]["fates"]] == [["included", command.run_id]]


async def test_a_job_whose_definition_cannot_be_read_is_not_forgotten_in_silence(at: Installed) -> None:
    body = {"type": "Job", "id": "lunar", "schedule": {"type": "LunarTimetable"}}
    written = DefinitionRecord(kind="job", id="lunar", incarnation="i", body=body).to_bytes()
    (offset,) = await send(at.kafka, [(DEFINITIONS, 0, b"job:lunar", written)])

    async def is_audited() -> bool:
        found = [
            each.position for each in await audit(at, AuditKind.UNREADABLE_RECORD) if each.job == "lunar"
        ]
        return found == [f"{DEFINITIONS}/0@{offset}"]

    await until_async(is_audited, "the definition to be audited")
    (entry,) = await tidegate_json(at, "audit", "--job", "lunar")
    assert (entry["kind"], entry["position"]) == ("unreadable-record", f"{DEFINITIONS}/0@{offset}")
    refused = (await tidegate(at, "explain", "lunar", "k")).refused
    assert "cannot be read" in refused
    assert "LunarTimetable" in refused
    await send(at.kafka, [(DEFINITIONS, 0, b"job:lunar", None)])
    assert "job 'lunar' is not defined" in (await tidegate(at, "explain", "lunar", "k")).text
