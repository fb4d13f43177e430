"""Transactions bound to a partition: all or nothing, and a predecessor is fenced (rule T2)."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from tests.broker.conftest import Install, Installed, read_all
from tidegate.contracts.outgoing import Outgoing
from tidegate.contracts.topics import RUN_EVENTS, RUN_REQUESTS, RUNS, run_commands_topic
from tidegate.runtime.positions import Position, committed_positions
from tidegate.runtime.topic_admin import admin_client, create_topics
from tidegate.runtime.transactions import PartitionTransactions

TP = TopicPartition(RUN_REQUESTS, 0)


def run_quietly(scenario: Coroutine[Any, Any, None]) -> None:
    """asyncio.run, without the traces of futures that aiokafka leaves behind when a transaction fails.

    CPython 3.11 breaks when such a trace is formatted while a module is being parsed (gh-106905).
    """

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await scenario

    asyncio.run(main())


def run(number: int) -> Outgoing:
    return Outgoing(RUNS, 0, b"run-%d" % number, b"{}")


def test_records_and_offsets_are_there_together_with_where_each_record_went(install: Install) -> None:
    run_quietly(_records_and_offsets_are_there_together_with_where_each_record_went(install()))


async def _records_and_offsets_are_there_together_with_where_each_record_went(installed: Installed) -> None:
    group = installed.namespace
    transactions = PartitionTransactions(installed.kafka, f"{group}-0")
    await transactions.start()
    try:
        first = await transactions.commit(
            [run(0), run(1)], {TP: Position(5, 77, {"a/0": (4, 2)}).to_kafka()}, group
        )
        second = await transactions.commit([run(2)], {TP: Position(6, 78).to_kafka()}, group)
    finally:
        await transactions.stop()
    assert [each.offset for each in first] == [0, 1]
    assert second[0].offset >= 2, (
        "the marker of the first transaction may come before or after the second's record"
    )
    assert [record.key for record in await read_all(installed.kafka, RUNS)] == [b"run-0", b"run-1", b"run-2"]
    successor = PartitionTransactions(installed.kafka, f"{group}-0")
    await successor.start()  # offsets of a transaction are certain only after this (T2)
    await successor.stop()
    async with admin_client(installed.kafka) as admin:
        assert (await committed_positions(admin, group, [TP]))[TP] == Position(6, 78)


def test_a_successor_fences_the_predecessor_whichever_id_it_would_use_next(install: Install) -> None:
    run_quietly(_a_successor_fences_the_predecessor_whichever_id_it_would_use_next(install()))


async def _a_successor_fences_the_predecessor_whichever_id_it_would_use_next(installed: Installed) -> None:
    group = installed.namespace
    old = PartitionTransactions(installed.kafka, f"{group}-0")
    new = PartitionTransactions(installed.kafka, f"{group}-0")
    await old.start()
    try:
        await old.commit([run(0)], {}, group)
        await new.start()
        with pytest.raises(KafkaError):
            await old.commit([run(1)], {TP: Position(9).to_kafka()}, group)
        await new.commit([run(2)], {TP: Position(7).to_kafka()}, group)
    finally:
        await old.stop()
        await new.stop()
    assert [record.key for record in await read_all(installed.kafka, RUNS)] == [b"run-0", b"run-2"]


def test_a_topic_that_was_made_after_the_start_is_written_to_beside_the_others(install: Install) -> None:
    run_quietly(_a_topic_that_was_made_after_the_start_is_written_to_beside_the_others(install()))


async def _a_topic_that_was_made_after_the_start_is_written_to_beside_the_others(
    installed: Installed,
) -> None:
    """As when a job is applied while the dispatcher runs: its first command goes out with the state of its run."""
    late = run_commands_topic("late", 2)
    transactions = PartitionTransactions(installed.kafka, f"{installed.namespace}-0")
    await transactions.start()
    try:
        async with admin_client(installed.kafka) as admin:
            await create_topics(admin, [late])
        async with asyncio.timeout(15):  # where it forgets the others, records expire after 40 s
            await transactions.commit([run(0), Outgoing(late.name, None, b"k", b"{}")], {}, "group")
    finally:
        await transactions.stop()
    assert [record.key for record in await read_all(installed.kafka, late.name)] == [b"k"]


def test_after_a_failure_nothing_more_is_committed(install: Install) -> None:
    run_quietly(_after_a_failure_nothing_more_is_committed(install()))


async def _after_a_failure_nothing_more_is_committed(installed: Installed) -> None:
    transactions = PartitionTransactions(installed.kafka, f"{installed.namespace}-0")
    await transactions.start()
    try:
        with pytest.raises(KafkaError):
            await transactions.commit([run(0), Outgoing(RUN_EVENTS, 0, b"k", b"x" * 2_000_000)], {}, "group")
        with pytest.raises(RuntimeError, match="start the partition again"):
            await transactions.commit([run(1)], {}, "group")
    finally:
        await transactions.stop()
    assert await read_all(installed.kafka, RUNS) == []
