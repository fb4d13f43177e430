"""ingest as a process: everything that producers may write is accepted once, or refused where people can see it."""

import json
import os
import random
import signal
from base64 import b64decode

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.record.util import calc_crc32c
from redis.asyncio import Redis

from tests.broker.conftest import (
    Install,
    Installed,
    define,
    delete_topics,
    end_of,
    read_all,
    send,
    until_async,
)
from tests.broker.events import audit, event, give
from tidegate.contracts.accepted import AcceptedBatch, AcceptedEvent
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.placement import partition_of
from tidegate.contracts.rejected import DeadLetter
from tidegate.contracts.topics import (
    ACCEPTED,
    ASSET_EVENTS,
    REJECTED,
    RUNS,
    Topic,
    declared_topics,
    team_events_topic,
)
from tidegate.core.audit import AuditKind
from tidegate.definitions import Asset
from tidegate.runtime.gaps import accept_gap
from tidegate.runtime.positions import Position
from tidegate.runtime.starting import recreated
from tidegate.runtime.topic_admin import admin_client, create_topics
from tidegate.runtime.transactions import PartitionTransactions


def without(event: bytes, *path: str) -> bytes:
    whole = json.loads(event)
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return json.dumps(whole).encode()


async def accepted(at: Installed, drop_repeats: bool = True) -> list[tuple[str, AcceptedEvent]]:
    """(source partition, event) as a reader of `accepted-events` keeps them, by partition."""
    found: list[tuple[str, AcceptedEvent]] = []
    highs: dict[tuple[int, str], int] = {}
    for record in await read_all(at.kafka, ACCEPTED):
        batch = AcceptedBatch.from_bytes(record.value)
        for each in batch.events:
            assert record.partition == partition_of(each.asset, at.partitions)
            place = (record.partition, batch.source)
            if not drop_repeats or each.offset > highs.get(place, -1):
                highs[place] = each.offset
                found.append((batch.source, each))
    return found


async def ids(at: Installed) -> list[str]:
    return [each.id for _, each in await accepted(at)]


async def letters(at: Installed) -> list[DeadLetter]:
    return [DeadLetter.from_bytes(record.value) for record in await read_all(at.kafka, REJECTED)]


async def until_accepted(at: Installed, *wanted: str, timeout: float = 30) -> None:
    async def condition() -> bool:
        return set(wanted) <= set(await ids(at))

    await until_async(condition, f"{wanted[-3:]} to be accepted", timeout)


BAD: dict[str, tuple[bytes | None, str, str]] = {
    "not JSON": (b"temperature=7", "not-json", "expected"),
    "invalid UTF-8": (event("bad").replace(b"hourly", b"hourl\xff"), "not-json", "unicode"),
    "JSON array": (b"[" + event("bad") + b"]", "not-an-object", "must be a JSON object"),
    "300 KiB": (event("bad", extra={"x": "x" * 300 * 1024}), "too-large", "262144"),
    "no id": (without(event("bad"), "id"), "missing-field", "'id'"),
    "no asset": (without(event("bad"), "data", "asset"), "missing-field", "'asset'"),
    "unknown field": (event("bad", partition_kye="k"), "unknown-field", "partition_kye"),
    "null value": (None, "null-value", "no value"),
    "empty value": (b"", "not-json", "EOF"),
    "empty key": (event("bad", partition_key=""), "invalid-key", "empty"),
    "key of 251 characters": (event("bad", partition_key="k" * 251), "invalid-key", "251"),
    "nested 10,000 deep": (
        event("bad").replace(b'"hourly"', b"[" * 10_000 + b"]" * 10_000),
        "not-json",
        "recursion",
    ),
    "CloudEvents 0.3": (event("bad").replace(b'"1.0"', b'"0.3"'), "unknown-version", "0.3"),
}


async def test_each_bad_record_is_one_dead_letter_and_the_next_good_event_is_accepted(
    install: Install,
) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    values: list[bytes | None] = []
    for name, (value, _, _) in BAD.items():
        values += [value, event(f"after {name}")]
    offsets = await give(at, *values, partition=1)
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        await until_accepted(at, f"after {name}")

    assert await ids(at) == [f"after {name}" for name in BAD]
    dead = await letters(at)
    assert [(each.topic, each.partition, each.offset) for each in dead] == [
        (ASSET_EVENTS, 1, offset) for offset in offsets[::2]
    ]
    for letter, (name, (value, code, words)) in zip(dead, BAD.items(), strict=True):
        assert (letter.code, letter.size) == (code, len(value or b"")), name
        assert words in letter.reason, name
        assert letter.truncated == (name == "300 KiB")
        kept = None if letter.value_base64 is None else b64decode(letter.value_base64)
        assert kept == (value[:1024] if value and letter.truncated else value), name
    assert {record.key for record in await read_all(at.kafka, REJECTED)} == {b"hourly"}
    entries = await audit(at, *AuditKind)
    assert [each.kind for each in entries] == [AuditKind.EVENT_REFUSED] * len(BAD)
    assert [(each.position, each.message) for each in entries] == [
        (f"{each.topic}/{each.partition}@{each.offset}", each.reason) for each in dead
    ]


async def give_undecodable(at: Installed, partition: int = 0) -> int:
    """Write a record with a header name in Latin-1, which no brokers mind; returns its offset."""
    producer = AIOKafkaProducer(bootstrap_servers=at.kafka, enable_idempotence=False)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch.append(key=b"k", value=event("never"), timestamp=None, headers=[("f?r", b"")])
        build = batch._build

        def build_wrongly() -> bytes:
            raw = bytearray(build())
            at = raw.index(b"f?r")
            raw[at : at + 3] = "f\u00fcr".encode("latin-1")
            raw[17:21] = calc_crc32c(bytes(raw[21:])).to_bytes(4, "big")
            batch._buffer = bytes(raw)
            return bytes(raw)

        batch._build = build_wrongly
        stored = await (await producer.send_batch(batch, ASSET_EVENTS, partition=partition))
        return int(stored.offset)
    finally:
        await producer.stop()


async def test_a_record_that_the_client_cannot_decode_is_a_dead_letter_too(install: Install) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    await give(at, *(event(f"before {n}") for n in range(150)))
    first = await give_undecodable(at)
    transactions = PartitionTransactions(at.kafka, f"{at.namespace}-t", ids=1)
    await transactions.start()
    await transactions.commit([Outgoing(ASSET_EVENTS, 0, None, event("between"))], {}, "unused")
    await transactions.stop()
    await give(at, *(event(f"elsewhere {n}") for n in range(150)), partition=1)

    async def has_its_marker() -> bool:
        return await end_of(at.kafka, TopicPartition(ASSET_EVENTS, 0)) == first + 3

    await until_async(has_its_marker, "the marker, which is written a moment after the commit")
    second = await give_undecodable(at)
    third = await give_undecodable(at)
    await give(at, event("after"))
    with at.service("ingest", TIDEGATE_BATCH_RECORDS="100") as ingest:
        ingest.wait_ready()
        await until_accepted(at, "after", "between", "elsewhere 149")
        await give(at, event("later"))
        await until_accepted(at, "later")
    assert [(each.offset, each.code) for each in await letters(at)] == [
        (offset, "undecodable") for offset in (first, second, third)
    ]
    expected = [*(f"before {n}" for n in range(150)), "between", "after", "later"]
    found = await accepted(at, drop_repeats=False)
    assert [each.id for source, each in found if source == "asset-events/0"] == expected
    assert len(found) == len(expected) + 150


async def test_records_that_barely_fit_their_topic_do_not_stop_it(install: Install) -> None:
    at = install()
    large = 1_000_000
    await send(at.kafka, [(ASSET_EVENTS, 0, b"k" * large, b"\x01")])
    await send(at.kafka, [(ASSET_EVENTS, 0, None, b"\x01" * 200_000)], [("h", b"\xff" * 800_000)])
    await send(at.kafka, [(ASSET_EVENTS, 0, None, b"\x01" * large)])
    await give(at, event("small numbers", extra={"x": [1e15] * 12_000}), event("last"))
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        await until_accepted(at, "small numbers", "last")
    assert [each.truncated for each in await letters(at)] == [True, True, True]


async def test_a_repeated_id_is_accepted_once_in_one_poll_in_a_later_one_and_after_a_restart(
    install: Install,
) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    await give(at, event("1"), event("1"), event("2"))
    ingest = at.service("ingest")
    with ingest:
        ingest.wait_ready()
        await until_accepted(at, "1", "2")
        await give(at, event("1"), event("3"))
        await until_accepted(at, "3")
    assert ingest.exit_code == 0
    await give(at, event("2"), event("4"))
    await give(at, event("1"), partition=1)
    with ingest:
        ingest.wait_ready()
        await until_accepted(at, "4")

        async def all_audited() -> bool:
            return len(await audit(at, AuditKind.DUPLICATE_EVENT)) == 4

        await until_async(all_audited, "four duplicates in the audit log")
    assert [each.id for _, each in await accepted(at, drop_repeats=False)] == ["1", "2", "3", "4"]
    assert {
        (each.position, (each.details or {})["first"]) for each in await audit(at, AuditKind.DUPLICATE_EVENT)
    } == {
        ("asset-events/0@1", "asset-events/0@0"),
        ("asset-events/0@3", "asset-events/0@0"),
        ("asset-events/0@5", "asset-events/0@2"),
        ("asset-events/1@0", "asset-events/0@0"),
    }
    assert not await letters(at)


async def test_teams_uris_and_unknown_assets(install: Install) -> None:
    at = install(more=(team_events_topic("blue", 2),))
    await define(at.kafka, Asset("orders", "s3://bucket/orders"))
    await give(at, event("from blue", "orders"), topic="asset-events.blue")
    await give(at, event("by uri", asset=None, asset_uri="s3://bucket/orders"), event("unknown", "nobody's"))
    with at.service("ingest", TIDEGATE_TEAMS='["blue"]') as ingest:
        ingest.wait_ready()
        await until_accepted(at, "from blue", "by uri", "unknown")
    found = {each.id: (source, each.asset, each.team) for source, each in await accepted(at)}
    assert found == {
        "from blue": ("asset-events.blue/0", "orders", "blue"),
        "by uri": ("asset-events/0", "orders", None),
        "unknown": ("asset-events/0", "nobody's", None),
    }
    assert [each.event_id for each in await audit(at, AuditKind.UNKNOWN_ASSET)] == ["unknown"]


async def test_the_stamp_follows_the_definitions(install: Install) -> None:
    at = install()
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        await give(at, event("before"))
        await until_accepted(at, "before")
        await define(at.kafka, Asset("hourly"), Asset("daily"))

        async def is_stamped_anew() -> bool:
            await give(at, event(f"after {os.urandom(4).hex()}"))
            return {each.definitions for _, each in await accepted(at)} >= {1, 3}

        await until_async(is_stamped_anew, "an event that is stamped with the new definitions")


@pytest.mark.timeout(240)
async def test_killed_and_started_again_it_accepts_the_input_in_order_and_once(install: Install) -> None:
    at = install(partitions=3)
    chosen = random.Random(3)
    assets = [f"asset {number}" for number in range(7)]
    written: dict[int, list[tuple[str, str] | None]] = {0: [], 1: [], 2: []}
    first_place: dict[str, tuple[int, int]] = {}
    env = {"TIDEGATE_BATCH_RECORDS": "40", "TIDEGATE_POLL_WAIT_MS": "20"}
    if at.backend.name == "real":
        env["TIDEGATE_SESSION_TIMEOUT_MS"] = "1000"
    else:  # it never gives a killed member's partitions to another, only to the one of the same name
        env["TIDEGATE_INSTANCE_ID"] = "one"
    ingest = at.service("ingest", **env)
    ingest.start()

    async def write(count: int) -> None:
        """Repeats stay on their partition, where their order is known."""
        for partition, place in written.items():
            records = []
            for _ in range(count):
                each: tuple[str, str] | None = (
                    f"{partition}-{chosen.randrange(1500)}",
                    chosen.choice(assets),
                )
                if chosen.random() < 0.02:
                    each = None
                elif each is not None:
                    first_place.setdefault(each[0], (partition, len(place)))
                place.append(each)
                records.append((ASSET_EVENTS, partition, None, b"[]" if each is None else event(*each)))
            await send(at.kafka, records)

    kills = 0
    try:
        for _ in range(4):
            await write(700)
            before = len(await accepted(at))

            async def is_moving(before: int = before) -> bool:
                return len(await accepted(at)) > before

            await until_async(is_moving, "the next batch", 30)
            if ingest.ready().get("lag", 0) > 0:
                kills += 1
            ingest.kill(signal.SIGKILL)
            ingest.start()
        last = [event(f"last {partition}") for partition in written]
        for partition, value in enumerate(last):
            await give(at, value, partition=partition)
        await until_accepted(at, *(f"last {partition}" for partition in written), timeout=60)
    finally:
        ingest.stop()

    assert kills >= 2, "the kills must meet a process that has work waiting"
    expected = {
        f"asset-events/{partition}": [
            (offset, *each)
            for offset, each in enumerate(place)
            if each is not None and first_place[each[0]] == (partition, offset)
        ]
        for partition, place in written.items()
    }
    found: dict[str, list[tuple[int, str, str]]] = {source: [] for source in expected}
    order: dict[tuple[str, str], list[int]] = {}
    for source, each in await accepted(at):
        if not each.id.startswith("last"):
            found[source].append((each.offset, each.id, each.asset))
            order.setdefault((source, each.asset), []).append(each.offset)
    assert {source: sorted(events) for source, events in found.items()} == expected
    assert all(offsets == sorted(offsets) for offsets in order.values())
    refused = {(each.partition, each.offset) for each in await letters(at)}
    assert refused == {
        (partition, offset)
        for partition, place in written.items()
        for offset, each in enumerate(place)
        if each is None
    }
    total = sum(map(len, written.values()))
    duplicates = {each.position for each in await audit(at, AuditKind.DUPLICATE_EVENT)}
    assert len(duplicates) == total - len(refused) - sum(map(len, expected.values()))


async def accept(at: Installed, beginning: int, partition: int = 0) -> None:
    async with Redis.from_url(at.redis, decode_responses=True) as redis:
        tp = TopicPartition(ASSET_EVENTS, partition)
        await accept_gap(redis, at.namespace, f"{at.namespace}-ingest", tp, beginning)


async def test_records_lost_before_they_were_read_stop_the_partition_until_a_person_accepts(
    install: Install,
) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    await give(at, event("0"), event("1"))
    ingest = at.service("ingest")
    with ingest:
        ingest.wait_ready()
        await until_accepted(at, "1")
    await give(at, event("2"), event("3"), event("4"), event("5"))
    async with admin_client(at.kafka) as admin:
        await admin.delete_records({TopicPartition(ASSET_EVENTS, 0): RecordsToDelete(before_offset=4)})
    with ingest:
        reason = ingest.wait_not_ready("gap")
        assert "records 2 to 3 are gone" in reason
        await give(at, event("elsewhere"), partition=1)
        await until_accepted(at, "elsewhere")
        assert "4" not in await ids(at)
        await accept(at, 3)  # another gap than the one that is there
        assert not ingest.ready()["ready"]
        await accept(at, 4)
        await until_accepted(at, "4", "5")
        ingest.wait_ready()
    first, second = await audit(at, AuditKind.LOG_GAP)
    assert [each.position for each in (first, second)] == ["asset-events/0@2"] * 2
    assert [(each.details or {})["accepted"] for each in (first, second)] == [False, True]
    assert first.service == "ingest"


@pytest.mark.parametrize(
    ("backend", "events_after"),
    [("embedded", 2), ("real", 1), ("real", 2), ("real", 5)],
    indirect=["backend"],
)
async def test_a_topic_that_was_created_again_is_noticed(install: Install, events_after: int) -> None:
    at = install()
    await define(at.kafka, Asset("hourly"))
    await give(at, event("old 0"), event("old 1"))
    ingest = at.service("ingest")
    with ingest:
        ingest.wait_ready()
        await until_accepted(at, "old 1")
    (topic,) = (each for each in declared_topics(at.partitions) if each.name == ASSET_EVENTS)
    async with admin_client(at.kafka) as admin:
        await delete_topics(admin, [ASSET_EVENTS])
        await create_topics(admin, [topic])
    await give(at, *(event(f"new {n}") for n in range(events_after)))
    with ingest:
        reason = ingest.wait_not_ready("gap")
        assert "asset-events/0: " in reason
        assert "created again" in reason
        # Kafka forgets the committed offsets of every partition, the embedded broker keeps them
        for partition in range(at.partitions):
            await accept(at, 0, partition)
        await until_accepted(at, *(f"new {n}" for n in range(events_after)))
        ingest.wait_ready()
    assert {source for source, each in await accepted(at) if each.id.startswith("new")} == {
        "asset-events/0~1"
    }
    await give(at, event("later"))
    with ingest:
        ingest.wait_ready()
        await until_accepted(at, "later")
    assert (await accepted(at))[-1][0] == "asset-events/0~1"


async def test_a_position_behind_a_transaction_marker_proves_nothing(install: Install) -> None:
    at = install()
    transactions = PartitionTransactions(at.kafka, f"{at.namespace}-t", ids=1)
    await transactions.start()
    await transactions.commit([Outgoing(ASSET_EVENTS, 0, None, b"1")], {}, "unused")
    await transactions.stop()

    async def has_its_marker() -> bool:
        return await end_of(at.kafka, TopicPartition(ASSET_EVENTS, 0)) == 2

    await until_async(has_its_marker, "the marker, which is written a moment after the commit")
    await give(at, event("later"))
    records = await read_all(at.kafka, ASSET_EVENTS)
    assert [record.offset for record in records] == [0, 2]
    tp = TopicPartition(ASSET_EVENTS, 0)
    for position, is_recreated in [
        (Position(1, records[0].timestamp), False),
        (Position(1, records[0].timestamp - 1), True),
        (Position(2, 1), False),
        (Position(3, records[1].timestamp), False),
        (Position(3, 1), True),
        (Position(3), False),
    ]:
        assert await recreated(at.kafka, {tp: position}) == ({tp} if is_recreated else set()), position


@pytest.mark.parametrize("wrong", ["missing", "partition count", "not installed", "team"])
async def test_it_is_not_ready_on_topics_that_are_not_what_they_must_be(install: Install, wrong: str) -> None:
    at = install()
    env = {"TIDEGATE_TEAMS": '["blue"]'} if wrong == "team" else {}
    async with admin_client(at.kafka) as admin:
        if wrong != "team":
            name = "definitions" if wrong == "not installed" else RUNS
            await delete_topics(admin, [name])
            partitions = 3 if wrong == "partition count" else 1
            again = [each for each in declared_topics(partitions) if each.name == name]
            if wrong != "missing":
                await create_topics(admin, again)
        with at.service("ingest", **env) as ingest:
            expected = {
                "missing": "runs: topic is missing",
                "partition count": "runs: partition count is 3, wanted 2",
                "not installed": "tidegate topics create",
                "team": "asset-events.blue: topic is missing",
            }

            async def says_so() -> bool:
                return expected[wrong] in ingest.ready().get("reasons", {}).get("session", "")

            await until_async(says_so, f"the reason {expected[wrong]!r}")
            assert ingest.is_alive()
            if wrong in ("missing", "team"):
                topic = (
                    _topic("blue")
                    if wrong == "team"
                    else next(t for t in declared_topics(2) if t.name == RUNS)
                )
                await create_topics(admin, [topic])
                ingest.wait_ready()


def _topic(team: str) -> Topic:
    return team_events_topic(team, 2)


async def test_it_waits_for_redis_and_goes_on(install: Install) -> None:
    at = install()
    server = at.backend.redis_server
    if server is None or at.backend.name != "real":
        pytest.skip("needs a Redis that can be stopped on its own")
    with at.service("ingest") as ingest:
        ingest.wait_ready()
        await give(at, event("before"))
        await until_accepted(at, "before")
        server.stop()
        try:
            await give(at, event("during"))
            ingest.wait_not_ready("session")
            assert ingest.is_alive()
        finally:
            server.start()
        await until_accepted(at, "during")
        ingest.wait_ready()
    assert await ids(at) == ["before", "during"]


async def test_two_processes_share_the_partitions_and_hand_them_over(install: Install) -> None:
    at = install()
    if at.backend.name != "real":
        pytest.skip("the embedded broker confuses a commit during a rebalance with one of a stranger")
    await define(at.kafka, Asset("hourly"))
    first, second = at.service("ingest", "first"), at.service("ingest", "second")
    with first:
        first.wait_ready()
        await give(at, event("a"))
        await until_accepted(at, "a")
        with second:

            def share() -> set[str]:
                return {name for name in second.metrics() if name.startswith("tidegate_lag_records{")}

            async def has_its_share() -> bool:
                await give(at, event(f"0 {os.urandom(4).hex()}"))
                await give(at, event(f"1 {os.urandom(4).hex()}"), partition=1)
                return bool(share()) and bool(second.ready().get("ready"))

            await until_async(has_its_share, "the second process to have a partition")
        await give(at, event("b"))
        await give(at, event("c"), partition=1)
        await until_accepted(at, "b", "c")
    records = await read_all(at.kafka, ASSET_EVENTS)
    sent = [json.loads(record.value)["id"] for record in records]
    assert sorted(await ids(at)) == sorted(sent)
    assert not await audit(at, AuditKind.DUPLICATE_EVENT)
