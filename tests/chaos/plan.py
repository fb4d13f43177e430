"""One seed gives one plan: which records are published in which order, and which faults strike."""

import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

from tests.chaos.jobs import (
    FACTS,
    GAPPY,
    LEFT,
    NORTH,
    NOWHERE,
    ORDERS,
    REGIONS,
    RIGHT,
    SCATTERED,
    SEGMENTS,
    SOUTH,
)

EVENT_TYPE: Final = "dev.tidegate.asset.updated.v1"
SOURCE: Final = "/chaos"
FIRST_DAY: Final = date(2026, 1, 1)

SHARES: Final = {NORTH: 0.27, SOUTH: 0.27, LEFT: 0.07, RIGHT: 0.07, ORDERS: 0.1, REGIONS: 0.16, GAPPY: 0.06}
"""What part of the events concerns each asset."""

DOUBLED, REPLACED, FINER, MISSING, GAPS, UNMAPPABLE, KEYLESS, UNKNOWN, POISONED, COUSINS = (
    0.03,  # the same (source, id) again
    0.02,  # the same key again with a new id
    0.01,  # a key within an hour, which counts for the hour
    0.002,  # hours that never come
    0.015,  # and those of GAPPY
    0.002,
    0.002,
    0.002,
    0.004,  # what is no event at all
    0.002,  # the id of another event under another source, which makes it another event
)
_BLOCK: Final = 400  # events are shuffled within blocks of this size
_SOON: Final = 300  # a double comes within so many records
_LONG_AFTER: Final = 0.2  # of the doubles and replacements come at any later time instead


class Planned(NamedTuple):
    """One record for `asset-events`."""

    partition: int
    key: str
    value: bytes | None


class Fault(NamedTuple):
    """One fault; what it strikes is chosen by `dice` when it is due, from what is alive then."""

    kind: str
    dice: int
    """A seed of its own, so that a fault does the same whatever happened before it."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    partitions: int
    records: Sequence[Planned] = field(repr=False)
    faults: Sequence[Fault]


KILLS: Final = ("kill", "crash")
"""At a random time; at a crash point."""

EVERY: Final = {
    "freeze": 8,
    "zombie": 6,
    "rebalance": 10,
    "kafka": 25,
    "redis": 15,
    "failover": 5,
    "flush": 15,
    "poison": 8,
    "slow": 20,
    "clock": 20,
    "change": 5,
    "action": 4,
}
"""What else happens, each with the number of kills for which it does once. The rest of a division is up to the dice,
but what is asked for by name happens once at least."""


def plan(
    seed: int,
    events: int,
    kills: int,
    kinds: Sequence[str] = (),
    partitions: int = 4,
    jobs: Sequence[str] = (),
) -> Plan:
    """The plan of a seed: `events` records, `kills` kills among faults of `kinds` (all where none is given).

    Where no kind is one that kills, it is so many faults of those kinds instead.
    """
    assets = sorted({asset for job in jobs or FACTS for asset in FACTS[job].assets} & SHARES.keys())
    records = _records(random.Random(f"{seed} events"), events, partitions, assets)
    return Plan(seed, partitions, records, _faults(random.Random(f"{seed} faults"), kills, kinds))


def _faults(dice: random.Random, kills: int, kinds: Sequence[str]) -> list[Fault]:
    if unknown := set(kinds) - {*KILLS, *EVERY}:
        raise ValueError(f"faults {sorted(unknown)} are not known: use {', '.join((*KILLS, *EVERY))}")
    wanted = tuple(kinds) or (*KILLS, *EVERY)
    ways = [kind for kind in wanted if kind in KILLS] or wanted
    found = [dice.choice(ways) for _ in range(kills)]
    for kind, every in EVERY.items():
        if kind in wanted and ways is not wanted:
            found += [kind] * max(kind in kinds, kills // every + (dice.random() < kills % every / every))
    dice.shuffle(found)
    return [Fault(kind, dice.randrange(2**32)) for kind in found]


def _records(dice: random.Random, events: int, partitions: int, assets: Sequence[str]) -> list[Planned]:
    ids = iter(range(2**40))
    whole = sum(SHARES[asset] for asset in assets)
    wanted = round(events * (1 - DOUBLED - REPLACED - FINER - POISONED - COUSINS) * 1.01)
    places: list[tuple[float, Planned]] = []
    for asset in assets:
        for place, key in enumerate(_keys(asset, dice, round(wanted * SHARES[asset] / whole))):
            at = (place + dice.random()) / max(1, wanted * SHARES[asset] / whole) * events
            places.append((at, _record(asset, key, next(ids), dice, partitions)))
    places.sort(key=lambda each: each[0])
    stream = [record for _, record in places]
    stream = _with_odd_ones(stream, dice, ids, events, partitions)
    for start in range(0, len(stream), _BLOCK):
        block = stream[start : start + _BLOCK]
        dice.shuffle(block)
        stream[start : start + _BLOCK] = block
    return stream[:events]


def _keys(asset: str, dice: random.Random, count: int) -> Iterator[str | None]:
    """The partition keys of an asset's events in the order in which they would come on a good day."""
    for number in range(count):
        if asset in (NORTH, SOUTH, GAPPY):
            day, hour = divmod(number, 24)
            key: str | None = f"{FIRST_DAY + timedelta(days=day)}T{hour:02}"
            if dice.random() < (GAPS if asset == GAPPY else MISSING):
                continue
            if dice.random() < UNMAPPABLE:
                key = dice.choice(("yesterday", "2026-13-01T00", "2026-01-01T25", "2026-01-01 07"))
            if dice.random() < KEYLESS:
                key = None
        elif asset == REGIONS:
            key = dice.choice(SEGMENTS)
        elif asset in (LEFT, RIGHT):
            key = f"pair-{number // 3 if dice.random() < 0.5 else dice.randrange(number // 3 + 1)}"
        else:
            key = f"order-{dice.randrange(1 + count // 2)} {{braces}}"
        yield key


def _with_odd_ones(
    stream: list[Planned], dice: random.Random, ids: Iterator[int], events: int, partitions: int
) -> list[Planned]:
    """The stream with doubles, replacements, finer keys, cousins, unknown assets and poison put in."""
    places: list[tuple[float, Planned]] = [(float(place), record) for place, record in enumerate(stream)]

    def later(place: float) -> float:
        if dice.random() < _LONG_AFTER:
            return dice.uniform(place, len(stream))
        return place + dice.uniform(0, _SOON)

    def add(share: float, make: Callable[[Planned, Any], Planned]) -> None:
        for _ in range(round(events * share)):
            place = dice.randrange(len(stream))
            record = stream[place]
            places.append((later(place), make(record, json.loads(record.value or b"null"))))

    def doubled(record: Planned, event: Any) -> Planned:
        if record.key == GAPPY:  # what a person discarded may come again where ingest's mark of it was lost
            return replaced(record, event)
        return record._replace(partition=_partition(record.key, dice, partitions))

    def replaced(record: Planned, event: Any) -> Planned:
        return _record(record.key, event["data"].get("partition_key"), next(ids), dice, partitions)

    def finer(record: Planned, event: Any) -> Planned:
        key = event["data"].get("partition_key")
        if record.key in (NORTH, SOUTH, GAPPY) and key is not None:
            key = f"{key}:{dice.choice((15, 30, 45))}"
        return _record(record.key, key, next(ids), dice, partitions)

    def cousin(record: Planned, event: Any) -> Planned:
        if record.key != ORDERS:  # audit entries name a replaced event by its id alone
            return replaced(record, event)
        event["source"] = f"{SOURCE}/cousin"
        return record._replace(value=json.dumps(event).encode())

    def unknown(record: Planned, event: Any) -> Planned:
        return _record(NOWHERE, "somewhere", next(ids), dice, partitions)

    def poison(record: Planned, event: Any) -> Planned:
        return record._replace(value=_poison(dice, event))

    for share, make in (
        (DOUBLED, doubled),
        (REPLACED, replaced),
        (FINER, finer),
        (COUSINS, cousin),
        (UNKNOWN, unknown),
        (POISONED, poison),
    ):
        add(share, make)
    places.sort(key=lambda each: each[0])
    return [record for _, record in places]


def _poison(dice: random.Random, event: Any) -> bytes | None:
    """What no ingest may accept, made from an event."""
    data = event["data"]
    forms: Sequence[Any] = (
        None,
        b"",
        b"\xff\xfe not text",
        b'{"specversion": "1.0", "id": ',
        b"[]",
        {**event, "specversion": "0.3"},
        {**event, "type": "somebody.else.v1"},
        {name: value for name, value in event.items() if name != "id"},
        {**event, "data": {**data, "partition_kye": "typo"}},
        {**event, "data": {**data, "partition_key": ""}},
        {**event, "data": {**data, "partition_key": "k" * 251}},
        {**event, "data": {"aliases": ["only_an_alias"], "partition_key": "x"}},
    )
    form = dice.choice(forms)
    return json.dumps(form).encode() if isinstance(form, dict) else form


def _record(asset: str, key: str | None, number: int, dice: random.Random, partitions: int) -> Planned:
    data: dict[str, Any] = {"asset": asset}
    if key is not None:
        data["partition_key"] = key
    if dice.random() < 0.1:
        data["extra"] = {"note": "x" * dice.randrange(200), "brace": "{}"}
    event = {"specversion": "1.0", "id": f"e{number}", "source": SOURCE, "type": EVENT_TYPE, "data": data}
    return Planned(_partition(asset, dice, partitions), asset, json.dumps(event).encode())


def _partition(asset: str, dice: random.Random, partitions: int) -> int:
    if asset in SCATTERED:
        return dice.randrange(partitions)
    return zlib.crc32(asset.encode()) % partitions
