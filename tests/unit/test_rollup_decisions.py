"""The rollup's decisions apart from Redis: arguments of the script, requests, audit entries."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.requested import acted, run_request
from tidegate.contracts import contributions
from tidegate.contracts.contributions import (
    Contribution,
    ContributionBatch,
    DefinitionChange,
    JobRef,
    MemberEvent,
    OperatorAction,
    read_contributions_record,
)
from tidegate.contracts.placement import shard_of
from tidegate.contracts.topics import MAX_INTERNAL_BYTES, MIB
from tidegate.core.audit import AuditKind
from tidegate.core.instants import from_ms, from_us
from tidegate_rollup.acted import NAMED_AT_ONCE
from tidegate_rollup.inputs import (
    ENTRIES_PER_PART,
    Control,
    Entry,
    Input,
    by_shard,
    chunks,
    entries_of,
    inputs_of,
    script_arguments,
)
from tidegate_rollup.outbox import OutboxItem, StoredEvent, audit_entry, outbox_items, run_id

JOB = JobRef("day", "i1", 7, (0,), ("a", "b"), ((0, 1),))
PLAIN = JobRef("each", "i1", 8, (), ("a",), ((0,),))
AT = 1_700_000_000_000
texts = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)


def entry(offset: int = 0, ordinal: int = 0, **changes: Any) -> Entry:
    event = MemberEvent(
        changes.pop("event_key", "k"),
        changes.pop("id", "e1"),
        changes.pop("event_source", "s"),
        AT,
        None,
        None,
    )
    job, source = changes.pop("job", JOB), changes.pop("source", "accepted-events/0")
    each = Contribution(offset, ordinal, 0, 0, "2026-03-10", 0, 0, 3, 3, None, None)._replace(**changes)
    return Entry(offset, ordinal, AT, source, job, event, each)


def batch_of(entries: Sequence[Input]) -> tuple[list[str], dict[str, Any]]:
    """The rounds and the batch, whose parts have their entries one by one, as the script takes them."""
    names, text, events = script_arguments(entries)
    batch = json.loads(text)
    lines = iter(events.split("\n")[:-1])
    for part in batch["parts"]:
        if part[0] > 0:
            number, key, job, fields, groups, places, is_remapped = part
            assert len({json.dumps(group[:7] + group[9:]) for group in groups}) == len(groups), (
                "none is split"
            )
            members = iter(places or range(6 if "need:1" in fields else 4, len(fields) + 1))
            part[:] = [number, names[number - 1], key, job, fields, [], is_remapped]
            for source, offset, at, asset, needed, need, date, ordinals, read, *due in groups:
                for ordinal, high, high_ordinal in zip(
                    ordinals, json.loads(read)[::2], json.loads(read)[1::2], strict=True
                ):
                    place = [
                        source,
                        high,
                        high_ordinal,
                        offset,
                        ordinal,
                        at,
                        asset,
                        2 + 2 * asset,
                        next(members),
                    ]
                    part[5].append([*place, needed, need, date, next(lines), *due])
            assert next(members, None) is None
    assert next(lines, None) is None
    return names, batch


# Cutting


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(1, 8))
def test_chunks_are_cut_between_records_only_and_lose_nothing(records: list[int], limit: int) -> None:
    entries = [entry(offset, n) for offset, size in enumerate(records) for n in range(size)]
    cut = list(chunks(entries, limit))
    assert [each for chunk in cut for each in chunk] == entries
    offsets = [{each.offset for each in chunk} for chunk in cut]
    assert sum(map(len, offsets)) == len(records)
    for chunk, of_chunk in zip(cut, offsets, strict=True):
        assert len(chunk) <= limit or len(of_chunk) == 1
    for one, other in pairwise(cut):
        first_of_next = sum(each.offset == other[0].offset for each in other)
        assert len(one) + first_of_next > limit


@given(st.lists(st.tuples(st.sampled_from([JOB, PLAIN]), texts), max_size=12), st.integers(1, 16))
def test_every_shard_gets_its_own_entries_in_order(drawn: list[tuple[JobRef, str]], shards: int) -> None:
    packed = [
        ContributionBatch(
            source="s",
            jobs=(job,),
            events=(entry().event,),
            entries=(entry().contribution._replace(key=key),),
        )
        for job, key in drawn
    ]
    entries = [
        each for n, batch in enumerate(packed) for each in entries_of(n, AT, batch, range(shards), shards)
    ]
    for shard, mine in by_shard(entries).items():
        assert mine == [
            each for each in entries if shard_of(each.job.id, each.contribution.key, shards) == shard
        ]
    assert sum(map(len, by_shard(entries).values())) == len(entries)


def test_the_entries_of_a_record_keep_their_places() -> None:
    each = entry().contribution
    packed = ContributionBatch(
        source="s",
        jobs=(PLAIN, JOB),
        events=(entry().event,),
        entries=(each._replace(job=1), each._replace(job=0)),
    )
    found = entries_of(12, AT, packed, range(8), 8)
    assert [(one.offset, one.ordinal, one.at, one.source, one.job) for one in found] == [
        (12, 0, AT, "s", JOB),
        (12, 1, AT, "s", PLAIN),
    ]


def test_what_is_replayed_is_older_than_what_comes_as_what_is_mapped_again_is() -> None:
    for is_remapped, is_replayed in [(False, False), (True, False), (False, True)]:
        packed = ContributionBatch(
            source="s",
            is_remapped=is_remapped,
            is_replayed=is_replayed,
            jobs=(JOB,),
            events=(entry().event,),
            entries=(entry().contribution,),
        )
        (found,) = entries_of(12, AT, packed, range(8), 8)
        assert (found.is_remapped, found.is_replayed) == (is_remapped or is_replayed, is_replayed)


@pytest.mark.parametrize(
    "change",
    [{"job": 1}, {"job": -1}, {"event": 1}, {"asset": 2}, {"member": 99}, {"also": (2,)}, {"also": (-1,)}],
)
def test_a_record_that_names_what_it_does_not_hold_is_refused(change: dict[str, Any]) -> None:
    """Such a record would otherwise end every session at the same place (rule E5)."""
    broken = entry().contribution._replace(**change)
    packed = ContributionBatch(source="s", jobs=(JOB,), events=(entry().event,), entries=(broken,))
    with pytest.raises(IndexError):
        entries_of(12, AT, packed, range(8), 8)


def test_a_record_on_the_partition_of_another_shard_is_refused() -> None:
    packed = ContributionBatch(
        source="s", jobs=(JOB,), events=(entry().event,), entries=(entry().contribution,)
    )
    shard = shard_of(JOB.id, entry().contribution.key, 8)
    with pytest.raises(IndexError, match=f"shard {shard}"):
        entries_of(12, AT, packed, [each for each in range(8) if each != shard], 8)


# What the script is given


def test_every_round_and_job_is_said_once_and_entries_point_at_them() -> None:
    entries = [entry(0), entry(1, job=PLAIN), entry(2, member=2), entry(3, key="2026-03-11")]
    names, batch = batch_of(entries)
    assert names == ["day/i1/2026-03-10", "each/i1/2026-03-10", "day/i1/2026-03-11"]
    assert [json.loads(job)[0] for job in batch["jobs"]] == ["day", "each"]
    assert [(part[0], part[1], json.loads(part[2]), part[3]) for part in batch["parts"]] == [
        (1, "day/i1/2026-03-10", "2026-03-10", 1),
        (2, "each/i1/2026-03-10", "2026-03-10", 2),
        (3, "day/i1/2026-03-11", "2026-03-11", 1),
    ]
    assert batch["parts"][0][4] == ["opened", "count:0", "need:0", "count:1", "need:1", "m:0:0", "m:0:2"]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=12))
def test_places_point_at_the_fields_they_stand_for(drawn: list[tuple[int, int]]) -> None:
    _, batch = batch_of([entry(n, asset=asset, member=member) for n, (asset, member) in enumerate(drawn)])
    (part,) = batch["parts"]
    fields, entries = part[4], part[5]
    assert len(set(fields)) == len(fields)
    for (asset, member), each in zip(drawn, entries, strict=True):
        assert each[6] == asset
        assert fields[each[7] - 1] == f"count:{asset}"
        assert fields[each[7]] == f"need:{asset}"
        assert fields[each[8] - 1] == f"m:{asset}:{member}"


def test_another_revision_of_a_job_and_a_long_round_begin_new_parts() -> None:
    revised = JOB._replace(revision=9)
    jobs = [JOB, JOB, revised, JOB]
    _, batch = batch_of([entry(n, job=job) for n, job in enumerate(jobs)])
    assert [(part[0], part[3], len(part[5])) for part in batch["parts"]] == [(1, 1, 2), (1, 2, 1), (1, 1, 1)]
    _, batch = batch_of([entry(n) for n in range(2 * ENTRIES_PER_PART + 1)])
    assert [len(part[5]) for part in batch["parts"]] == [ENTRIES_PER_PART, ENTRIES_PER_PART, 1]


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 4), st.integers(0, 2)), max_size=12))
def test_only_rising_coordinates_of_a_source_are_handed_on(drawn: list[tuple[str, int, int]]) -> None:
    entries = [
        entry(offset, ordinal, source=source)._replace(offset=place, ordinal=0)
        for place, (source, offset, ordinal) in enumerate(drawn)
    ]
    _, batch = batch_of(entries)
    kept = [(each[0], each[1], each[2]) for part in batch["parts"] for each in part[5]]
    assert len(kept) + batch["repeats"] == len(entries)
    numbers = {name: n for n, (name, *_) in enumerate(batch["sources"], 1)}
    for name, *coordinates in batch["sources"]:
        of_source = [(offset, ordinal) for number, offset, ordinal in kept if number == numbers[name]]
        assert of_source == sorted(set(of_source))
        assert tuple(coordinates) == (*of_source[0], *of_source[-1])
        given_ones = [(offset, ordinal) for source, offset, ordinal in drawn if source == name]
        assert of_source[-1] == max(given_ones)


@given(texts, texts, texts)
def test_a_stored_event_reads_back(key: str, event_id: str, source: str) -> None:
    _, batch = batch_of([entry(event_key=key, id=event_id, event_source=source)])
    stored = batch["parts"][0][5][0][-1]
    digest, *values = json.loads(f"[{stored}]")
    assert len(digest) == len(digest.encode()) == 16
    assert values[:3] == [key, event_id, source]
    assert "\n" not in stored
    assert stored.startswith('"')


def digest_of(each: Entry) -> str:
    _, batch = batch_of([each])
    return str(batch["parts"][0][5][0][-1][1:17])


def test_the_digest_tells_rounds_and_events_apart_and_nothing_else() -> None:
    same = {digest_of(entry(n, n, event_key=key, member=n)) for n, key in enumerate(["k", "other"])}
    assert len(same) == 1
    different = [
        entry(),
        entry(id="e2"),
        entry(event_source="s2"),
        entry(key="2026-03-11"),
        entry(job=PLAIN),
        entry(job=JOB._replace(incarnation="i2")),
        entry(event_source="s e1", id="x"),
        entry(event_source="s", id="e1 x"),
    ]
    assert len({digest_of(each) for each in different}) == len(different)


def test_a_missing_date_is_false_and_a_date_before_1970_is_kept() -> None:
    _, batch = batch_of([entry(0), entry(1, decoded=-5)])
    assert [each[11] for each in batch["parts"][0][5]] == [False, "-5"]


# What is read


wrong: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, -1, 0, 1, 1.5, "", "x", [], [1, "x"], {"n": 1}]
)


def outcome(read: Callable[[bytes], Any], raw: bytes) -> Any:
    """What is read, or what is wrong with it."""
    try:
        return read(raw)
    except ValidationError as error:
        return error.errors(include_url=False, include_context=False)


@given(st.data())
def test_a_record_is_read_as_its_models_read_it(data: st.DataObject) -> None:
    """Whole or with less in its entries than is written today, and whatever is wrong with it."""
    batch = ContributionBatch(
        source="s",
        is_remapped=data.draw(st.booleans()),
        jobs=(JOB, PLAIN),
        events=(entry().event, entry().event._replace(extra={"n": [1.5, None]}, asset="a", aliases=("x",))),
        entries=(entry().contribution, entry().contribution._replace(event=1, also=(1,), decoded=5)),
    )
    read = json.loads(batch.to_bytes())
    for _ in range(data.draw(st.integers(0, 2))):
        where = data.draw(st.sampled_from(["jobs", "events", "entries"]))
        array = data.draw(st.sampled_from(read[where]))
        if data.draw(st.booleans()):
            array[data.draw(st.integers(0, len(array) - 1))] = data.draw(wrong)
        elif data.draw(st.booleans()):
            del array[data.draw(st.integers(1, len(array))) :]
        else:
            array.append(data.draw(wrong))
    if data.draw(st.booleans()):
        read[data.draw(st.sampled_from(["kind", "v", "source", "jobs", "other"]))] = data.draw(wrong)
    raw = json.dumps(read).encode()
    found, wanted = outcome(read_contributions_record, raw), outcome(contributions._READER.validate_json, raw)
    assert found == wanted
    if isinstance(found, ContributionBatch):
        assert found.to_bytes() == wanted.to_bytes()
        assert {type(each) for each in (*found.events, *found.entries)} == {MemberEvent, Contribution}


# What comes back


@given(
    texts,
    texts,
    st.none() | texts,
    st.none() | st.integers(-(10**15), 10**15),
    st.integers(0, 4 * 10**12),
    st.booleans(),
)
def test_a_request_is_written_as_its_model_would_write_it(
    event_id: str, source: str, key: str | None, date: int | None, at: int, is_named: bool
) -> None:
    """`run_request` of these tests holds every request to that."""
    extra = {"none": None, "deep": [None, {"nan": float("nan"), "f": 1e22}]} if is_named else None
    values = [
        "d" * 16,
        key,
        event_id,
        source,
        at,
        date,
        date,
        extra,
        *(["other", "team", ["z"], [1]] if is_named else []),
    ]
    request, _ = run_request(fired("m:0:1", json.dumps(values)[1:-1], "count:0", 1, "need:0", "3 3"))
    (event,) = request.events
    assert (event.id, event.source, event.partition_key) == (event_id, source, key)
    assert (event.received_at, request.partition_date) == (
        from_ms(at),
        None if date is None else from_us(date),
    )


def stored(
    event_id: str,
    key: str = "k",
    source: str = "s",
    carried: int | None = None,
    extra: Any = None,
    *more: str,
) -> str:
    values = ["d" * 16, key, event_id, source, AT, None, carried, extra, *more]
    return json.dumps(values)[1:-1]


def fired(*fields: Any, key: str = "2026-03-10", generation: int = 1, job: JobRef = JOB) -> OutboxItem:
    head = {
        "job": job,
        "key": key,
        "at": AT,
        "event": json.loads(f"[{stored('last')}]"),
        "generation": generation,
    }
    (found,) = outbox_items(["7.2", "\n".join([json.dumps(head), *map(str, fields)])])
    return found


ROUND = ("m:0:0", stored("e1"), "m:0:1", stored("e2"), "m:1:0", stored("e3"), "count:0", 2, "need:0", "3 2")
ROUND = (*ROUND, "count:1", "1", "need:1", "1 1", "job", "x", "opened", "3.0.5", "r:abc", "")


def test_a_fired_round_becomes_a_request_with_everything_that_started_it() -> None:
    request, conflict = run_request(fired(*ROUND))
    assert conflict is None
    assert (request.offset, request.ordinal, request.job, request.revision, request.generation) == (
        7,
        2,
        "day",
        7,
        1,
    )
    assert (request.partition_key, request.completed_by, request.partition_date) == (
        "2026-03-10",
        "last",
        None,
    )
    assert [(each.asset, each.member, each.id) for each in request.events] == [
        ("a", 0, "e1"),
        ("a", 1, "e2"),
        ("b", 0, "e3"),
    ]
    assert [(each.asset, each.arrived, each.expected) for each in request.windows] == [
        ("a", 2, 3),
        ("b", 1, 1),
    ]
    assert request.events[0].received_at == from_ms(AT)


@given(st.permutations(range(0, len(ROUND), 2)))
def test_the_order_in_which_redis_gives_the_fields_never_matters(order: list[int]) -> None:
    shuffled = [part for n in order for part in ROUND[n : n + 2]]
    assert run_request(fired(*shuffled)) == run_request(fired(*ROUND))


def test_several_events_of_one_member_are_all_told_and_ordered_by_key() -> None:
    request, _ = run_request(
        fired('x:0:0:"b:x"', stored("e2", "b:x"), "m:0:0", stored("e1", "c"), 'x:0:0:"a"', stored("e3", "a"))
    )
    assert [(each.partition_key, each.id) for each in request.events] == [
        ("a", "e3"),
        ("b:x", "e2"),
        ("c", "e1"),
    ]


@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=6, unique=True), st.randoms(use_true_random=False)
)
def test_a_run_id_is_made_of_content_and_free_of_order(events: list[tuple[str, str]], random: Any) -> None:
    found = [StoredEvent("k", event_id, source, AT, None, None, None) for source, event_id in events]
    shuffled = [each._replace(at=n, extra={"n": n}) for n, each in enumerate(found)]
    random.shuffle(shuffled)
    assert run_id(JOB, "k", 1, shuffled) == run_id(JOB, "k", 1, found)
    others = [
        run_id(JOB, "k", 2, found),
        run_id(JOB, "k2", 1, found),
        run_id(JOB._replace(id="day2"), "k", 1, found),
        run_id(JOB._replace(incarnation="i2"), "k", 1, found),
        run_id(JOB, "k", 1, found[1:]),
    ]
    assert len({run_id(JOB, "k", 1, found), *others}) == 6
    assert run_id(JOB._replace(revision=99), "k", 1, found) == run_id(JOB, "k", 1, found)


def test_a_run_id_tells_sources_and_ids_with_spaces_apart() -> None:
    one, other = (
        [StoredEvent("k", event_id, source, AT, None, None, None)]
        for source, event_id in (("a b", "c"), ("a", "b c"))
    )
    assert run_id(JOB, "k", 1, one) != run_id(JOB, "k", 1, other)


def test_a_decoded_date_is_the_date_and_carried_ones_have_no_say() -> None:
    request, conflict = run_request(fired(*ROUND, "date:0", AT, 'x:0:0:"z"', stored("e9", "z", carried=5)))
    assert (request.partition_date, conflict) == (from_us(AT), None)


@pytest.mark.parametrize("order", [(AT, AT + 1), (AT + 1, AT)])
def test_dates_in_conflict_give_no_date_and_one_audit_entry_whatever_the_order(
    order: tuple[int, int],
) -> None:
    request, conflict = run_request(fired(*ROUND, "date:0", order[0], "date:1", order[1]))
    assert request.partition_date is None
    assert conflict is not None
    assert (conflict.kind, conflict.job, conflict.partition_key) == (
        AuditKind.PARTITION_DATE_CONFLICT,
        "day",
        "2026-03-10",
    )
    assert conflict.message.index(from_us(AT).isoformat()) < conflict.message.index(
        from_us(AT + 1).isoformat()
    )
    again = run_request(fired(*ROUND, "date:0", order[1], "date:1", order[0]))[1]
    assert again is not None
    assert again.id == conflict.id


def test_carried_dates_decide_where_no_key_gives_one() -> None:
    rounds = [
        ("m:0:0", stored("e1", carried=AT)),
        ("m:0:1", stored("e2", carried=AT)),
        ("m:0:2", stored("e3")),
    ]
    request, conflict = run_request(fired(*(part for pair in rounds for part in pair)))
    assert (request.partition_date, conflict) == (from_us(AT), None)
    _, conflict = run_request(fired(*rounds[0], "m:0:1", stored("e2", carried=5)))
    assert conflict is not None


def test_a_date_that_a_mapper_failed_to_read_leaves_the_run_without_one_and_is_no_conflict() -> None:
    _, batch = batch_of([entry(is_date_failed=True, carried=5)])
    failed = batch["parts"][0][5][0][12]
    others = ("date:1", AT, "m:0:1", stored("e2", carried=AT), "m:0:2", stored("e3", carried=7))
    assert run_request(fired("m:0:0", stored("e1"), *others))[0].partition_date == from_us(AT)
    request, conflict = run_request(fired("m:0:0", failed, *others))
    assert (request.partition_date, conflict) == (None, None)


def test_an_event_tells_its_asset_where_the_schedule_names_it_otherwise() -> None:
    """By the bytes of every pending member the common name is not kept."""
    texts = []
    for name in ("a", "", "the asset's own name"):
        event = entry().event._replace(asset=name, extra={"n": 1})
        _, batch = batch_of([entry()._replace(event=event)])
        texts.append(batch["parts"][0][5][0][12])
    assert texts[0] == texts[1]
    assert texts[2] == texts[0] + ',"the asset\'s own name"'
    request, _ = run_request(
        fired("m:0:0", texts[0], "m:0:1", texts[2], "m:1:0", stored("e3"), "count:0", 2, "need:0", "3 3")
    )
    assert [each.asset for each in request.events] == ["a", "the asset's own name", "b"]
    assert [window.asset for window in request.windows] == ["a"]


def test_b060_an_event_tells_the_ways_by_which_it_came_where_its_asset_does_not_say_them() -> None:
    def kept(asset: int, name: str, also: tuple[int, ...]) -> str:
        event = entry().event._replace(asset=name)
        _, batch = batch_of([entry(asset=asset, also=also)._replace(event=event)])
        return str(batch["parts"][0][5][0][12])

    fields = ("m:0:0", kept(0, "a", ()), "m:0:1", kept(0, "a", (1,)), "m:0:2", kept(0, "c", ()))
    more = ("m:1:0", kept(1, "a", (0,)), "m:1:1", kept(1, "b", ()))
    request, _ = run_request(fired(*fields, *more, "count:0", 3, "need:0", "3 3"))
    assert [each.routes for each in request.events] == [None, ("a", "b"), ("a",), ("a", "b"), None]


def test_the_run_of_a_job_without_partitions_has_no_key() -> None:
    dates = ("date:0", AT, "date:1", AT + 1)
    whole, conflict = run_request(fired("m:0:0", stored("e1"), *dates, key=""))
    assert conflict is not None
    assert (whole.partition_key, conflict.partition_key) == (None, None)
    names, _ = batch_of([entry(key="")])
    assert names == ["day/i1/"]


def test_more_members_than_there_are_are_told_apart_from_enough() -> None:
    _, batch = batch_of([entry(n, needed=needed) for n, needed in enumerate((1, 3, 4))])
    assert [(each[9], each[10]) for each in batch["parts"][0][5]] == [(1, "3 1"), (3, "3 3"), (-1, "3 4")]


def test_a_request_too_large_to_send_keeps_its_name_and_size_and_loses_its_events() -> None:
    large = {"text": "x" * (MAX_INTERNAL_BYTES // 4)}
    fields = [part for n in range(3) for part in (f"m:0:{n}", stored(f"e{n}", extra=large))]
    request, _ = run_request(fired(*fields, "count:0", 3, "need:0", "3 3"))
    assert request.events == ()
    assert request.oversize is not None
    assert request.oversize > MAX_INTERNAL_BYTES // 2
    assert len(request.to_bytes()) < 2_000
    small, _ = run_request(fired(*(part.replace("x", "") for part in fields), "count:0", 3, "need:0", "3 3"))
    assert small.oversize is None
    assert small.run_id == request.run_id


def payload(kind: str, other: str | None = None, event: str = "", **more: Any) -> str:
    head = {"job": JOB, "key": "2026-03-10", "at": AT, "audit": kind, "asset": 1}
    head["event"] = json.loads(f"[{event or stored('e1')}]")
    if other:
        head["other"] = json.loads(f"[{other}]")
    return json.dumps({**head, **more})


@given(st.permutations([(2, 0), (2, 1), (2, 10), (10, 0), (9, 3)]))
def test_what_is_pending_comes_in_the_order_of_the_log_by_number(places: list[tuple[int, int]]) -> None:
    reply = [part for offset, n in places for part in (f"{offset}.{n}.1", payload("member-late"))]
    assert [(each.offset, each.ordinal) for each in outbox_items(reply)] == [
        (2, 0),
        (2, 1),
        (2, 10),
        (9, 3),
        (10, 0),
    ]


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("duplicate-event", {}, "'e1' is already part"),
        ("member-replaced", {"other": stored("e0")}, "'e1' replaces 'e0'"),
        ("member-rerun", {}, "it starts no run"),
        ("member-rerun", {"runs": True}, "it starts the run again"),
        ("member-rerun", {"runs": True, "other": stored("e0")}, "the run again in the place of 'e0'"),
        ("member-late", {}, "'e1' came after"),
        ("window-unsatisfiable", {"window": [28, 30]}, "has 28 members and its wait policy asks for 30"),
    ],
)
def test_every_kind_of_audit_that_the_script_knows_becomes_an_entry(
    kind: str, more: dict[str, Any], words: str
) -> None:
    (found,) = outbox_items(["7.2.1", payload(kind, **more)])
    entry_ = audit_entry(found, 3)
    assert (entry_.kind, entry_.job, entry_.asset, entry_.partition_key) == (kind, "day", "b", "2026-03-10")
    assert (entry_.event_id, entry_.event_source, entry_.position) == ("e1", "s", "contributions/3@7")
    assert words in entry_.message
    assert entry_.details == {
        "event_key": "k",
        **({"replaced_event_id": "e0"} if "other" in more else {}),
        **({"size": 28, "needed": 30} if "window" in more else {}),
    }


def test_audit_entries_of_one_place_have_one_id_and_others_another() -> None:
    def made(field: str, kind: str = "member-late", partition: int = 0) -> str:
        return audit_entry(outbox_items([field, payload(kind)])[0], partition).id

    assert made("7.2.1") == made("7.2.1")
    assert len({made("7.2.1"), made("7.3.1"), made("8.2.1"), made("7.2.1", partition=1)}) == 4
    assert made("7.2.1") != made("7.2.1", "member-rerun")


def test_text_of_producers_may_hold_anything_that_json_can() -> None:
    extra = {"line": "a\nb", "quote": '"', "nul": "\u0000", "high": "\u2028😀", "deep": [[[]]]}
    _, batch = batch_of([entry()._replace(event=entry().event._replace(extra=extra))])
    text = batch["parts"][0][5][0][-1]
    assert "\n" not in text
    request, _ = run_request(fired("m:0:0", text, "count:0", 1, "need:0", "1 1"))
    assert request.events[0].extra == extra
    assert request.events[0].received_at == datetime.fromtimestamp(AT / 1000, UTC)


# Deadlines and actions


TIMED = JOB._replace(
    deadlines=((500, "fire", "first_member"), (300, "drop", "window_end")), clauses=((0, 1),)
)


@pytest.mark.parametrize(
    ("is_remapped", "changes", "due"),
    [
        (False, {"asset": 0}, (AT + 9 + 500, "fire")),
        (False, {"asset": 1, "ends": AT}, (AT + 300, "drop")),
        (False, {"asset": 1, "ends": AT + 900}, (AT + 9 + 500, "fire")),
        (False, {"asset": 1}, (AT + 9 + 300, "drop")),
        (True, {"asset": 0}, (AT + 500, "fire")),
        (True, {"asset": 1, "ends": AT + 100}, (AT + 400, "drop")),
    ],
)
def test_a_contribution_brings_its_round_the_earliest_of_the_deadlines(
    is_remapped: bool, changes: dict[str, int], due: tuple[int, str]
) -> None:
    """From the record's time, or from the event's where it waited already; or from the end of its own window."""
    each = entry(job=TIMED, **changes)._replace(at=AT + 9, is_remapped=is_remapped)
    _, batch = batch_of([each])
    assert tuple(batch["parts"][0][5][0][13:]) == due
    assert len(batch_of([entry()])[1]["parts"][0][5][0]) == 13, "others cost nothing"


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({"asset": 0}, (AT + 9 + 500, "fire")),
        ({"asset": 1, "ends": AT - 90_000}, (AT + 9 + 300, "drop")),
        ({"asset": 1, "ends": AT + 100}, (AT + 400, "drop")),
    ],
)
def test_a_replayed_event_brings_no_deadline_that_has_come_already(
    changes: dict[str, int], due: tuple[int, str]
) -> None:
    """The others of its window need the time to follow (rule D7)."""
    each = entry(job=TIMED, **changes)._replace(at=AT + 9, is_remapped=True, is_replayed=True)
    _, batch = batch_of([each])
    assert tuple(batch["parts"][0][5][0][13:]) == due


ABOUT: dict[str, Any] = {"job": "day", "incarnation": "i1", "key": "2026-03-10", "opened": "3.0"}


def test_a_control_of_a_round_is_for_the_shard_of_its_key_only_and_ends_the_part_before_it() -> None:
    action = OperatorAction.model_validate(
        {**ABOUT, "kind": "withdraw", "id": "1", "by": "ana", "event_id": "e1"}
    )
    shard = shard_of("day", "2026-03-10", 8)
    (control,) = inputs_of(12, AT, action, range(8), 8)
    assert isinstance(control, Control)
    assert control.shard == shard
    with pytest.raises(IndexError, match=f"shard {shard}"):
        inputs_of(12, AT, action, [each for each in range(8) if each != shard], 8)
    names, batch = batch_of([entry(0), control, entry(13, member=1)])
    assert names == ["day/i1/2026-03-10"]
    assert [part[0] for part in batch["parts"]] == [1, -1, 1]
    assert batch["parts"][1][1:9] == [1, names[0], '"2026-03-10"', "withdraw", "3.0", "e1", True, 12]


def test_a_change_is_for_every_shard_and_ends_the_parts_of_its_job_only() -> None:
    change = DefinitionChange(job="day", revision=9)
    assert [each.shard for each in inputs_of(1, AT, change, [1, 3], 4) if isinstance(each, Control)] == [1, 3]
    control = Control(1, AT, change, 0)
    inputs = [entry(0), entry(0, 1, job=PLAIN), control, entry(2), entry(2, 1, job=PLAIN, key="2026-03-10")]
    _, batch = batch_of(inputs)
    assert [part[0] for part in batch["parts"]] == [1, 2, 0, 1]


def acted_on(said: dict[str, Any], *lines: str, **head: Any) -> tuple[Any, list[Any]]:
    control = {"id": "1", "by": "ana"} | ABOUT | said if said["kind"] != "deadline" else ABOUT | said
    payload = {"control": control, "key": "2026-03-10", "at": AT, "job": JOB} | head
    (each,) = outbox_items(["7.0", "\n".join([json.dumps(payload), *lines])])
    return acted(each, 1)


@pytest.mark.parametrize(
    ("said", "cause", "failed", "audited"),
    [
        ({"kind": "deadline", "then": "fire"}, "deadline", None, []),
        ({"kind": "fire"}, "manual", None, [AuditKind.ROUND_FIRED]),
        (
            {"kind": "deadline", "then": "fail"},
            "deadline",
            "the deadline of the round passed with 3 of 4 members",
            [AuditKind.DEADLINE_FAILED],
        ),
    ],
)
def test_a_round_that_is_fired_as_it_is_says_so_and_why(
    said: dict[str, Any], cause: str, failed: str | None, audited: list[AuditKind]
) -> None:
    request, audit = acted_on(said, *map(str, ROUND), generation=2)
    assert (request.cause, request.is_partial, request.failed) == (cause, True, failed)
    assert (request.generation, request.completed_by, request.offset) == (2, None, 7)
    assert [(each.arrived, each.expected) for each in request.windows] == [(2, 3), (1, 1)]
    assert [entry.kind for entry in audit] == audited


def test_what_a_person_or_a_deadline_takes_away_is_audited_with_its_events() -> None:
    for said, kind in [
        ({"kind": "discard"}, AuditKind.ROUND_DISCARDED),
        ({"kind": "deadline", "then": "drop"}, AuditKind.DEADLINE_DROPPED),
    ]:
        request, (audited,) = acted_on(said, *map(str, ROUND))
        assert (request, audited.kind, audited.partition_key) == (None, kind, "2026-03-10")
        assert [each["id"] for each in audited.details["events"]] == ["e1", "e2", "e3"]
        assert [each["asset"] for each in audited.details["events"]] == ["a", "a", "b"]
    request, (audited,) = acted_on({"kind": "withdraw", "event_id": "e2"}, stored("e2"))
    assert (request, audited.kind, audited.event_id) == (None, AuditKind.MEMBER_WITHDRAWN, "e2")
    assert audited.details["by"] == "ana"
    _, (audited,) = acted_on({"kind": "withdraw", "event_id": "e2"})
    assert audited.kind is AuditKind.ACTION_WITHOUT_EFFECT
    assert "'e2'" in audited.message


def test_every_event_of_a_large_round_is_named_in_entries_that_fit_their_topic() -> None:
    size = 2 * NAMED_AT_ONCE + 1
    lines = [
        part
        for n in range(size)
        for part in (
            f"m:0:{n}",
            stored(f"{n:04}" + "\u00e9" * 252, key="\u20ac" * 250, source="\U0001f300" * 512),
        )
    ]
    _, audited = acted_on({"kind": "deadline", "then": "drop"}, *lines)
    named = [one["id"][:4] for entry in audited for one in entry.details["events"]]
    assert named == [f"{n:04}" for n in range(size)]
    assert len({entry.id for entry in audited}) == len(audited) == 3
    assert max(len(entry.to_bytes()) for entry in audited) < MIB
    assert "part 3 of 3" in audited[2].message


def test_an_action_on_a_round_that_is_gone_says_so_once() -> None:
    def told(offset: int) -> Any:
        control = ABOUT | {"kind": "fire", "id": "1", "by": "ana"}
        (each,) = outbox_items(
            [f"{offset}.0", json.dumps({"control": control, "key": "2026-03-10", "at": AT})]
        )
        return acted(each, 1)

    (none, (audited,)), (_, (again,)) = told(7), told(9)
    assert (none, audited.kind) == (None, AuditKind.ACTION_WITHOUT_EFFECT)
    assert audited.id == again.id, "a record sent twice is one action"
